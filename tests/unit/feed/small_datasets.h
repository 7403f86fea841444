#pragma once

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "darkroom/files/file_system.h"
#include "darkroom/tables/tensor_column.h"
#include "support/put_shard.h"

namespace darkroom {

/// Latents [4, 1, 1] and states [2, 3] of some rows: row r holds r in every element, r = first, first + 1, ...
struct SmallLatents {
  int64_t first = 0;
  int64_t num_rows = 0;
  TensorElement element = TensorElement::kFloat16;
  int64_t nan_row = -1;  ///< Of this shard; its first latent is a NaN.
  std::string latents_name = "image_latents_8";
  std::string states_name = "caption_embeddings";
  bool with_keys = true;
  KeyValues footer = {};
  int64_t row_group_bytes = 4096;
  std::shared_ptr<arrow::Array> keys = nullptr;  ///< Null: "key-R".
};

inline const std::vector<int64_t> kSmallLatentsShape = {4, 1, 1};
inline const std::vector<int64_t> kSmallStatesShape = {2, 3};

/// Elements of all rows as stored.
inline std::shared_ptr<arrow::Array> small_column(const SmallLatents& rows, const std::vector<int64_t>& shape, bool may_hold_nan) {
  int64_t num_elements = 1;
  for (const int64_t extent : shape) {
    num_elements *= extent;
  }
  std::vector<std::byte> bytes;
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    for (int64_t i = 0; i < num_elements; ++i) {
      const bool is_nan = may_hold_nan && row == rows.nan_row && i == 0;
      const float value = is_nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(rows.first + row);
      const uint16_t half = half_bits(value);
      const auto* source =
          rows.element == TensorElement::kFloat16 ? reinterpret_cast<const std::byte*>(&half) : reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), source, source + element_bytes(rows.element));
    }
  }
  auto column = make_tensor_column(rows.element, shape, bytes);
  EXPECT_TRUE(column.is_ok()) << column.status().to_string();
  return *column;
}

/// Writes one shard; a small row group every few rows.
inline void write_small_latents(const std::string& folder, const std::string& name, const SmallLatents& rows) {
  arrow::StringBuilder keys;
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    ASSERT_TRUE(keys.Append("key-" + std::to_string(rows.first + row)).ok());
  }
  const auto latents = small_column(rows, kSmallLatentsShape, true);
  const auto states = small_column(rows, kSmallStatesShape, false);
  std::vector<std::shared_ptr<arrow::Field>> fields = {arrow::field(rows.latents_name, latents->type()),
                                                       arrow::field(rows.states_name, states->type())};
  std::vector<std::shared_ptr<arrow::Array>> columns = {latents, states};
  if (rows.with_keys) {
    columns.push_back(rows.keys != nullptr ? rows.keys : *keys.Finish());
    fields.push_back(arrow::field("key", columns.back()->type()));
  }
  const auto schema = arrow::schema(fields);
  const auto batch = arrow::RecordBatch::Make(schema, rows.num_rows, columns);
  const auto written = put_shard(local_files(), folder, name, *batch, rows.footer, {.row_group_bytes = rows.row_group_bytes});
  ASSERT_TRUE(written.is_ok()) << written.status().to_string();
}

}  // namespace darkroom
