#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// Which rows of a dataset are asked for.
struct DatasetRowsQuestion {
  static constexpr int64_t kMostRows = 24;

  int64_t from = 0;        ///< The first row that is looked at.
  int64_t count = 12;      ///< Of rows in the reply, at most kMostRows.
  std::string words = {};  ///< Which rows: every word is somewhere in them, or column>5; empty: all.
  bool decodes = false;    ///< Latents, too; of one row.
};

/// A dataset that may be looked at. It needs no torch here: what decodes latents is behind this.
class ServedDataset {
 public:
  virtual ~ServedDataset() = default;
  /// What it is, as a JSON object of docs/serve.md. Fixed from the start. Thread safety: any thread.
  virtual const nlohmann::json& facts() const = 0;
  /// Rows as a JSON object of docs/serve.md, in bounded memory and time. Asked by one thread. Errors: kInvalidArgument (the question, or
  /// latents that the model does not decode), whose message clients get; kCancelled; others, for the log.
  virtual Result<nlohmann::json> rows(const DatasetRowsQuestion& asked, const std::stop_token& stop) = 0;
};

/// A dataset by the name that addresses have.
struct NamedDataset {
  std::string name;
  ServedDataset* dataset;  ///< Outlives the service.
};

/// The names of datasets at these addresses: the last part of each, with -2, -3, ... where it is taken.
std::vector<std::string> dataset_names(const std::vector<std::string>& uris);

}  // namespace darkroom
