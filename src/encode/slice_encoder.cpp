#include "slice_encoder.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "darkroom/image/sandbox.h"

namespace darkroom {
namespace {

constexpr int64_t kRowsAtOnce = 16;  // A long run of rows is held as pixels so many at a time.

}  // namespace

SliceEncoder::SliceEncoder(std::shared_ptr<const RowEncoder> encoder, const SliceEncoderOptions& options,
                           std::unique_ptr<GoodPictureRows> rows, std::vector<std::unique_ptr<PictureDecoder>> decoders)
    : encoder_(std::move(encoder)),
      options_(options),
      rows_(std::move(rows)),
      decoders_(std::move(decoders)),
      encoded_(options.memory_bytes / 2) {}

Result<std::unique_ptr<SliceEncoder>> SliceEncoder::open(const DatasetFiles& dataset, const DatasetIndex& index,
                                                         std::shared_ptr<const RowEncoder> encoder, const SliceEncoderOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(auto reader, ImageRowReader::open(dataset, index, options.memory_bytes / 2));
  std::vector<std::unique_ptr<PictureDecoder>> decoders;
  for (int worker = 0; worker < options.num_workers; ++worker) {
    DARKROOM_ASSIGN_OR_RETURN(decoders.emplace_back(), open_decoder(options.decoder_program, kAnySize, {}));
  }
  auto rows = std::make_unique<GoodPictureRows>(std::move(reader));
  return std::unique_ptr<SliceEncoder>(new SliceEncoder(std::move(encoder), options, std::move(rows), std::move(decoders)));
}

Result<PreparedRow> SliceEncoder::prepare(int worker, OpenRow& open) {
  PreparedRow row;
  DARKROOM_RETURN_IF_ERROR(rows_->work(open.row, open.tries, [&](const ImageRow& image) -> Result<std::optional<RowError>> {
    DARKROOM_ASSIGN_OR_RETURN(RowResult<PreparedRow> prepared, encoder_->prepare(image, *decoders_[static_cast<size_t>(worker)]));
    if (!prepared.is_ok()) {
      return std::optional(prepared.error());
    }
    row = std::move(prepared).value();
    return std::optional<RowError>();
  }));
  return row;
}

Status SliceEncoder::encode_new(int worker, std::vector<OpenRow> open,
                                std::vector<std::pair<int64_t, std::shared_ptr<const EncodedRow>>>& made) {
  while (!open.empty()) {
    std::vector<PreparedRow> prepared;
    for (OpenRow& row : open) {
      DARKROOM_ASSIGN_OR_RETURN(prepared.emplace_back(), prepare(worker, row));
    }
    const EncodedRows encoded = encoder_->encode(prepared);
    std::vector<OpenRow> left;
    for (size_t i = 0; i < open.size(); ++i) {
      if (encoded.is_finite[i] == 0) {
        rows_->note(open[i].row + open[i].tries, RowError{.code = RowErrorCode::kNanLatents});
        left.push_back({.row = open[i].row, .tries = open[i].tries + 1});
        continue;
      }
      const auto at = static_cast<int64_t>(i);
      // Of their own: a row that is kept must not keep its whole slice.
      made.emplace_back(open[i].row, std::make_shared<EncodedRow>(EncodedRow{.key = std::move(prepared[i].key),
                                                                             .latents_chw = encoded.latents_nchw[at].clone(),
                                                                             .states_tw = encoded.states_btc[at].clone()}));
    }
    open = std::move(left);
  }
  return {};
}

Result<std::vector<std::shared_ptr<const EncodedRow>>> SliceEncoder::encode(int worker, std::span<const int64_t> rows) {
  at::set_num_threads(options_.threads);
  std::unordered_map<int64_t, std::shared_ptr<const EncodedRow>> known;
  std::vector<OpenRow> open;
  {
    const std::lock_guard lock(mutex_);
    for (const int64_t row : rows) {
      if (known.try_emplace(row).second) {
        auto found = encoded_.find(row);
        if (found == nullptr) {
          open.push_back({.row = row});
        }
        known[row] = std::move(found);
      }
    }
  }
  std::vector<std::pair<int64_t, std::shared_ptr<const EncodedRow>>> made;
  const auto at_once = static_cast<size_t>(std::max<int64_t>(kRowsAtOnce, encoder_->options().rows_together));
  for (size_t first = 0; first < open.size(); first += at_once) {
    const auto begin = open.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(at_once, open.size() - first));
    DARKROOM_RETURN_IF_ERROR(encode_new(worker, std::vector<OpenRow>(begin, end), made));
  }
  const std::lock_guard lock(mutex_);
  for (auto& [row, encoded] : made) {
    if (encoded_.find(row) == nullptr) {  // Another worker may have had it, too.
      encoded_.insert(row, *encoded, encoded->num_bytes());
    }
    known[row] = std::move(encoded);
  }
  std::vector<std::shared_ptr<const EncodedRow>> results;
  for (const int64_t row : rows) {
    results.push_back(known[row]);
  }
  return results;
}

}  // namespace darkroom
