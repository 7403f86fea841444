#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/metrics.h"
#include "darkroom/serve/served_datasets.h"
#include "darkroom/show/dataset_pages.h"

namespace darkroom {

/// The datasets that a server shows, and the stores that they lie on.
class ServedDatasets {
 public:
  ServedDatasets() = default;
  /// Reads the footers of each. `usual` has everything but the address. Errors: those of DatasetPages::open, naming the dataset.
  Status open(const std::vector<std::string>& uris, const DatasetPagesOptions& usual, const std::stop_token& stop);
  /// Breaks off what the stores read: nobody waits for it any more. Thread safety: any thread.
  void end() { ends_.request_stop(); }
  /// In the order of the addresses.
  std::vector<NamedDataset> named() const;

 private:
  MetricsRegistry metrics_;
  std::stop_source ends_;  // Of the stores.
  std::unique_ptr<StoreSet> stores_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<ServedDataset>> datasets_;
};

}  // namespace darkroom
