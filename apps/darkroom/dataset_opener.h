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
  /// In the order of the addresses.
  std::vector<NamedDataset> named() const;

 private:
  MetricsRegistry metrics_;
  std::unique_ptr<StoreSet> stores_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<ServedDataset>> datasets_;
};

}  // namespace darkroom
