#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/show/inspect.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

struct DatasetPagesOptions {
  std::string uri = {};         ///< A file, folder or pattern of tables, local or on a store.
  std::string vae_folder = {};  ///< Of the model that decodes latents, as load_vae() takes it; empty: they are shown as heat maps only.
  ImageLimits limits = {.min_size = 1, .max_pixels = 40'000'000};
  int64_t max_bytes = 50'000'000;                    ///< An encoded picture of more bytes is not decoded.
  std::chrono::milliseconds search_patience{3'000};  ///< After which a search goes no further than the few thousand rows at hand.
  /// Of the pictures; asked when the first one comes, and again at the next where that failed or a stop ended it. `stop` is asked for where
  /// a call of rows() is to stop while it decodes. A failure costs the picture alone.
  std::function<Result<std::unique_ptr<PictureDecoder>>(const std::stop_token& stop)> open_decoder = {};
};

/// Which rows are asked for.
struct ShownRowsAsked {
  int64_t first = 0;       ///< The first that is looked at.
  int64_t count = 12;      ///< Of rows that are shown, at most.
  std::string words = {};  ///< Which ones: as the search of inspect's page; empty: all.
  bool decodes = false;    ///< Latents, too.
};

struct ShownRows {
  std::vector<int64_t> numbers = {};  ///< Of the rows that are shown, in the dataset, from 0.
  std::vector<RowCard> cards = {};    ///< As many.
  int64_t next = 0;                   ///< Where to go on; the number of rows where there are no more.
};

/// A dataset that is looked at page by page, with what `inspect --html` shows of its first rows. The files are those that were there when
/// it was opened. Memory: the names of the parts; of rows a batch, and the shrunk pictures of those that are shown. Thread safety: one
/// thread.
class DatasetPages {
 public:
  static constexpr int64_t kMostShown = 24;         ///< Rows at a time.
  static constexpr int64_t kMostSearched = 20'000;  ///< Rows that one call looks through.

  /// Reads the footers. Errors: kNotFound, kCorruptData, kFailedPrecondition (rows that are not counted: text files above 1 GiB), the
  /// store's. `stores` outlives the object.
  static Result<std::unique_ptr<DatasetPages>> open(StoreSet& stores, const DatasetPagesOptions& options, const std::stop_token& stop);
  virtual ~DatasetPages() = default;

  /// Kind, tables of facts and summary, as inspect says them from the footers alone, but for where things lie.
  virtual const InspectReport& report() const = 0;
  virtual int64_t num_rows() const = 0;
  virtual const std::map<std::string, int64_t>& rows_by_error() const = 0;
  virtual bool can_decode() const = 0;

  /// Errors: kInvalidArgument (the numbers; latents of another model, or too large to be decoded), kCancelled, those of reading.
  virtual Result<ShownRows> rows(const ShownRowsAsked& asked, const std::stop_token& stop) = 0;
};

}  // namespace darkroom
