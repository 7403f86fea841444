#include "darkroom/show/dataset_pages.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"
#include "darkroom/nn/model_folder.h"
#include "dataset_view.h"
#include "first_rows.h"
#include "inspect_table.h"
#include "listed_parts.h"
#include "row_search.h"

namespace darkroom {
namespace {

constexpr int64_t kSearchedAtOnce = 4096;

// A pattern or a split of the hub names no folder.
Result<bool> is_folder_at(StoreSet& stores, const std::string& uri) {
  if (uri.starts_with("hf://") && uri.find('?') != std::string::npos) {
    return false;
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(uri, Access::kRead));
  const Result<FileInfo> info = place.store->stat(place.path);
  if (!info.is_ok()) {
    return info.status().code() == StatusCode::kNotFound ? Result<bool>(false) : info.status();
  }
  return info->is_folder;
}

class ListedDatasetPages final : public DatasetPages {
 public:
  ListedDatasetPages(DatasetFiles dataset, DatasetPagesOptions options) : options_(std::move(options)), view_(std::move(dataset)) {}

  Status read_footers(const std::stop_token& stop) {
    report_.uri = recorded_uri(options_.uri);
    DamageLog damage(false);
    DARKROOM_ASSIGN_OR_RETURN(parts_, find_table_parts(files_, view_.inputs(), report_.uri, kMaxBytesCounted, damage, stop));
    if (parts_.schema == nullptr || parts_.num_rows() < 0) {
      return Status::failed_precondition("rows of the dataset are not counted; convert text files above 1 GiB to Parquet (address):",
                                         report_.uri);
    }
    kind_ = kind_of_parts(parts_);
    report_.kind = kind_.name;
    describe_tables(parts_, report_);
    return Status::ok();
  }

  const InspectReport& report() const override { return report_; }
  int64_t num_rows() const override { return parts_.num_rows(); }
  const std::map<std::string, int64_t>& rows_by_error() const override { return parts_.tally.rows_by_error; }
  bool can_decode() const override { return kind_.image.empty() && kind_.has_pictures() && !options_.vae_folder.empty(); }

  Result<ShownRows> rows(const ShownRowsAsked& asked, const std::stop_token& stop) override {
    if (asked.first < 0 || asked.count < 1 || asked.count > kMostShown) {
      return Status::invalid_argument("rows are asked for from 0 on, 1 to 24 at a time, got (from, count):", asked.first, asked.count);
    }
    Result<ShownRows> shown = find_and_show(asked, stop);
    if (decoding_.stop_requested()) {  // The decoder is of no use any more.
      decoder_.reset();
      decoding_ = {};
    }
    return shown;
  }

 private:
  Result<ShownRows> find_and_show(const ShownRowsAsked& asked, const std::stop_token& stop) {
    const std::stop_callback at_stop(stop, [this] { decoding_.request_stop(); });
    const Clock::Instant until = system_clock().now() + options_.search_patience;
    DARKROOM_ASSIGN_OR_RETURN(ShownRows found, find(asked, until, stop));
    DARKROOM_RETURN_IF_ERROR(show(asked.decodes, until, stop, found));
    return found;
  }

  Result<ShownRows> find(const ShownRowsAsked& asked, Clock::Instant until, const std::stop_token& stop) {
    const RowSearch search(asked.words, *parts_.schema, kind_);
    const int64_t num_rows = parts_.num_rows();
    ShownRows found{.next = std::min(num_rows, asked.first)};
    const int64_t end = found.next + std::min(num_rows - found.next, search.is_empty() ? asked.count : kMostSearched);
    for (; search.is_empty() && found.next < end; ++found.next) {
      found.numbers.push_back(found.next);
    }
    bool is_late = false;
    while (found.next < end && !is_late && static_cast<int64_t>(found.numbers.size()) < asked.count) {
      DARKROOM_RETURN_IF_ERROR(
          search_some(search, {.first = found.next, .count = std::min(kSearchedAtOnce, end - found.next)}, stop, found));
      is_late = system_clock().now() >= until;
    }
    if (static_cast<int64_t>(found.numbers.size()) > asked.count) {
      found.numbers.resize(static_cast<size_t>(asked.count));
      found.next = found.numbers.back() + 1;
    }
    return found;
  }

  Status search_some(const RowSearch& search, const RowSpan& span, const std::stop_token& stop, ShownRows& found) {
    int64_t batch_begin = span.first;
    const auto visit = [&](const arrow::RecordBatch& batch, const BatchPlace& place) -> Status {
      DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, search.find(batch, place.part.path));
      for (const int64_t row : rows) {
        found.numbers.push_back(batch_begin + row);
      }
      batch_begin += batch.num_rows();
      return Status::ok();
    };
    if (!search.columns().empty()) {
      DARKROOM_RETURN_IF_ERROR(visit_dataset_rows(files_, parts_, span, search.columns(), stop, visit));
    }
    found.next = span.first + span.count;
    return Status::ok();
  }

  // Neighbours are read together. Each further run of them may be in another file: after `until` the next call shows it.
  Status show(bool decodes, Clock::Instant until, const std::stop_token& stop, ShownRows& found) {
    RowCardOptions options{.shrink = [this](std::string_view bytes) { return shrink(bytes); }};
    if (decodes && can_decode()) {
      DARKROOM_RETURN_IF_ERROR(load_vae_once());
      options.vae = &*vae_;
    }
    for (size_t begin = 0; begin < found.numbers.size();) {
      size_t end = begin + 1;
      while (end < found.numbers.size() && found.numbers[end] == found.numbers[end - 1] + 1) {
        ++end;
      }
      const RowSpan span{.first = found.numbers[begin], .count = static_cast<int64_t>(end - begin)};
      DARKROOM_ASSIGN_OR_RETURN(std::vector<RowCard> cards, row_cards(files_, parts_, kind_, span, options, stop));
      if (static_cast<int64_t>(cards.size()) != span.count) {
        return Status::corrupt_data("the dataset has other rows than when the server started (address):", report_.uri);
      }
      std::move(cards.begin(), cards.end(), std::back_inserter(found.cards));
      begin = end;
      if (begin < found.numbers.size() && system_clock().now() >= until) {
        found.next = found.numbers[begin];
        found.numbers.resize(begin);
      }
    }
    return Status::ok();
  }

  Status load_vae_once() {
    if (!vae_.has_value()) {
      DARKROOM_ASSIGN_OR_RETURN(vae_, load_vae(options_.vae_folder));
    }
    return Status::ok();
  }

  // A decoder that is lost, as where the kernel grants no sandbox, costs the pictures and not the page.
  Result<RowResult<Image>> without_decoder(const Status& lost) {
    decoder_.reset();
    if (lost.code() == StatusCode::kCancelled) {
      return lost;
    }
    if (!std::exchange(is_loss_told_, true)) {
      log_warning("pictures of the dataset are not shown, because nothing decodes them: {}", lost.message());
    }
    return RowResult<Image>(RowError{.code = RowErrorCode::kDecodeFailed});
  }

  Result<RowResult<Image>> shrink(std::string_view bytes) {
    const auto open = [this] { return options_.open_decoder(decoding_.get_token()); };
    auto shown = shrink_with(bytes, options_.max_bytes, options_.limits, decoder_, open);
    if (!shown.is_ok()) {
      return without_decoder(shown.status());
    }
    if (decoder_ != nullptr) {  // Else none was needed yet.
      is_loss_told_ = false;
    }
    return shown;
  }

  const DatasetPagesOptions options_;
  DatasetView view_;
  ListedParts files_{view_, view_.inputs()};
  TableParts parts_;
  TableKind kind_;
  InspectReport report_;
  std::stop_source decoding_;  // Of the decoder, which outlives the call that it was opened in.
  std::unique_ptr<PictureDecoder> decoder_;
  bool is_loss_told_ = false;
  std::optional<AutoencoderKL> vae_;
};

}  // namespace

Result<std::unique_ptr<DatasetPages>> DatasetPages::open(StoreSet& stores, const DatasetPagesOptions& options,
                                                         const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_folder, is_folder_at(stores, options.uri));
  DARKROOM_ASSIGN_OR_RETURN(DatasetFiles dataset, find_shown_dataset(stores, options.uri, is_folder));
  auto pages = std::make_unique<ListedDatasetPages>(std::move(dataset), options);
  DARKROOM_RETURN_IF_ERROR(pages->read_footers(stop));
  return std::unique_ptr<DatasetPages>(std::move(pages));
}

}  // namespace darkroom
