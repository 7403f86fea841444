#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/image.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

struct InspectOptions {
  std::string uri = {};              ///< A dataset (file, folder, pattern), a checkpoint, a run folder, a model folder or one of its parts.
  int64_t num_rows = 5;              ///< First rows of a dataset that are shown.
  std::string sheet_path = {};       ///< Contact sheet of these rows as a PNG; empty: none.
  std::string html_path = {};        ///< The report and the sheet as one page; empty: none.
  std::string model = {};            ///< Model folder whose vae decodes the latents of the sheet; empty: they are shown as heat maps only.
  int64_t max_pixels = 100'000'000;  ///< A larger picture is not decoded for the sheet: 3 to 11 bytes of memory a pixel.
  int64_t max_bytes = 50'000'000;    ///< Nor is an encoded picture of more bytes.
  std::string compare = {};          ///< Another run folder, set beside the one that is looked at; empty: none.
  bool verify = false;               ///< Read everything and look for damage.
  /// Decodes the pictures of the sheet; asked when the first one comes. Null: they are decoded in this process.
  std::function<Result<std::unique_ptr<PictureDecoder>>(const std::stop_token& stop)> open_decoder = {};

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// A table of the report: a head row (empty: none) and rows of as many cells.
struct ReportTable {
  std::string title = {};
  std::vector<std::string> head = {};
  std::vector<std::vector<std::string>> rows = {};
};

/// A row of a dataset on its page.
struct RowCard {
  struct Picture {
    Image image = {};  ///< Empty: refused, the label says why.
    std::string label = {};
  };
  std::string caption = {};
  std::vector<Picture> pictures = {};
  std::vector<std::pair<std::string, std::string>> facts = {};  ///< The other columns, as in the table of the first rows.
};

/// What there is to say about what a URI names.
struct InspectReport {
  std::string kind;  ///< "image dataset", "latents dataset", "URL table", "table", "checkpoint", "run folder", "model folder", ...
  std::string uri;
  std::vector<ReportTable> tables;
  Image sheet;                                        ///< Empty unless a sheet or a page was asked for and the kind has pictures.
  std::vector<RowCard> cards;                         ///< The first rows, when a page was asked for and the kind has pictures.
  std::vector<std::string> damage;                    ///< The first 20 findings of --verify.
  int64_t num_damages = 0;                            ///< All of them.
  nlohmann::json summary = nlohmann::json::object();  ///< The same for programs (docs/show.md).
  std::string page;                                   ///< Of a kind that has a page of its own, when one was asked for.

  /// For a terminal of `width` columns (tables that are wider are fitted, docs/show.md); 0: every cell whole.
  std::string to_text(int64_t width = 0) const;
  /// A whole page (html_page.h).
  std::string to_html() const;
};

/// Rows that the statistics of a dataset cover without --verify.
inline constexpr int64_t kRowsStudied = 10'000;

/// Looks at what `uri` names, recognises it by what is there and describes it; writes the sheet and the page when they are
/// asked for. Rows and the lines of metrics.jsonl are streamed: in memory are a batch of rows, with --verify also 8 bytes a row for
/// the keys; of a run less than 200 bytes a logged line.
/// Damage that --verify finds is in the report, not in the Status. Errors: kNotFound (nothing there, or nothing that is
/// known), kCorruptData (without --verify: what must be read is damaged), kFailedPrecondition (a sheet of something
/// without pictures; --model does not fit), kCancelled, those of the file system. `report` gets what was found, also by an inspection that
/// failed or was stopped.
/// Of a remote dataset rows are read by ranges; of a remote checkpoint, run or model the small files and the weights' headers are fetched
/// into a scratch folder, with --verify everything.
Status inspect(StoreSet& stores, const InspectOptions& options, const std::stop_token& stop, InspectReport& report);
Result<InspectReport> inspect(StoreSet& stores, const InspectOptions& options, const std::stop_token& stop);
/// The same among the files of one file system.
Status inspect(FileSystem& files, const InspectOptions& options, const std::stop_token& stop, InspectReport& report);
Result<InspectReport> inspect(FileSystem& files, const InspectOptions& options, const std::stop_token& stop);

}  // namespace darkroom
