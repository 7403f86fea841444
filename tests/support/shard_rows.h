#pragma once

#include <arrow/api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "darkroom/tables/tensor_column.h"

namespace darkroom {

// Rows that tests write into shards and that tools/parity/shard_readers_parity.py works out again.

/// `image` is what the paged writer streams.
inline std::shared_ptr<arrow::Schema> shard_schema() {
  return arrow::schema({arrow::field("image", arrow::binary()), arrow::field("key", arrow::utf8(), false),
                        arrow::field("caption", arrow::utf8()), arrow::field("width", arrow::int32())});
}

/// Byte i of row r is (31 r + 7 i + i / 256) mod 256; of seven rows one is null and one has no bytes.
inline std::optional<std::string> shard_image(int row) {
  if (row % 7 == 3) {
    return std::nullopt;
  }
  std::string bytes(row % 7 == 5 ? 0 : static_cast<size_t>(row * 397 % 9000), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(static_cast<size_t>(row) * 31 + i * 7 + i / 256);
  }
  return bytes;
}

/// The rows first .. first + count - 1 without their images.
inline std::shared_ptr<arrow::RecordBatch> rows_without_images(int first, int count) {
  arrow::StringBuilder keys;
  arrow::StringBuilder captions;
  arrow::Int32Builder widths;
  for (int row = first; row < first + count; ++row) {
    arrow::Status status = keys.Append(fmt::format("{:012}", row));
    status &= row % 5 == 0 ? captions.AppendNull() : captions.Append(fmt::format("caption {} é", row));
    status &= row % 11 == 1 ? widths.AppendNull() : widths.Append(row * 3);
    DARKROOM_CHECK(status.ok(), "a row was not built:", status.ToString());
  }
  const auto schema = shard_schema();
  return arrow::RecordBatch::Make(arrow::schema(arrow::FieldVector(schema->fields().begin() + 1, schema->fields().end())), count,
                                  {keys.Finish().ValueOrDie(), captions.Finish().ValueOrDie(), widths.Finish().ValueOrDie()});
}

/// The same with them.
inline std::shared_ptr<arrow::RecordBatch> rows_with_images(int first, int count) {
  arrow::BinaryBuilder images;
  for (int row = first; row < first + count; ++row) {
    const std::optional<std::string> image = shard_image(row);
    const arrow::Status status = image ? images.Append(*image) : images.AppendNull();
    DARKROOM_CHECK(status.ok(), "a row was not built:", status.ToString());
  }
  arrow::ArrayVector columns = rows_without_images(first, count)->columns();
  columns.insert(columns.begin(), images.Finish().ValueOrDie());
  return arrow::RecordBatch::Make(shard_schema(), count, columns);
}

/// Writes rows 0 .. num_rows - 1 with a streamed image, `step` at a time. Bytes that were taken are overwritten at once.
inline Result<FinishedShard> stream_rows(std::unique_ptr<PendingObject> object, int num_rows, int step, PagedShardOptions options = {}) {
  options.streamed_column = "image";
  DARKROOM_ASSIGN_OR_RETURN(auto writer, PagedShardWriter::open(std::move(object), shard_schema(), options));
  std::deque<std::optional<std::string>> images;  // Its strings stay where they are.
  int64_t num_overwritten = 0;
  for (int first = 0; first < num_rows; first += step) {
    const int count = std::min(step, num_rows - first);
    std::vector<BorrowedValue> borrowed;
    for (int row = first; row < first + count; ++row) {
      images.push_back(shard_image(row));
    }
    for (size_t row = images.size() - static_cast<size_t>(count); row < images.size(); ++row) {
      borrowed.push_back(images[row] ? BorrowedValue(std::as_bytes(std::span(*images[row]))) : std::nullopt);
    }
    DARKROOM_RETURN_IF_ERROR(writer->write(*rows_without_images(first, count), borrowed));
    for (; num_overwritten < writer->num_rows_taken(); ++num_overwritten) {
      if (std::optional<std::string>& image = images[static_cast<size_t>(num_overwritten)]) {
        std::fill(image->begin(), image->end(), 'x');
      }
    }
  }
  return writer->finish({{kShardKey, "{\"item\":42}"}, {"other", "value"}});
}

/// Element i of row r of the column `mean` (half) is (r + i) mod 2048, of `states` (float) r + i / 8.
inline constexpr int64_t kMeanElements = 4 * 32 * 32;
inline constexpr int64_t kStateElements = 77 * 16;

inline std::shared_ptr<arrow::RecordBatch> tensor_rows(int first, int count) {
  std::vector<uint16_t> means;
  std::vector<float> states;
  arrow::StringBuilder keys;
  for (int row = first; row < first + count; ++row) {
    DARKROOM_CHECK(keys.Append(fmt::format("{:012}", row)).ok(), "a row was not built");
    for (int i = 0; i < kMeanElements; ++i) {
      means.push_back(half_bits(static_cast<float>((row + i) % 2048)));
    }
    for (int i = 0; i < kStateElements; ++i) {
      states.push_back(static_cast<float>(row) + static_cast<float>(i) / 8);
    }
  }
  const auto mean = make_tensor_column(TensorElement::kFloat16, {4, 32, 32}, std::as_bytes(std::span(means))).value();
  const auto state = make_tensor_column(TensorElement::kFloat32, {77, 16}, std::as_bytes(std::span(states))).value();
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("key", arrow::utf8(), false), arrow::field("mean", mean->type()),
                                                 arrow::field("states", state->type(), false)}),
                                  count, {keys.Finish().ValueOrDie(), mean, state});
}

}  // namespace darkroom
