#pragma once

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/ingest/job_identity.h"
#include "darkroom/process/transform_row.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tables/part_name.h"
#include "support/download_web.h"
#include "support/put_shard.h"

namespace darkroom {

inline constexpr int kProcessSide = 32;

/// Small image datasets, and where jobs put what they make of them.
class ImageDatasets : public ::testing::Test {
 protected:
  /// An image dataset as one parquet file with a hash a row (null in every third); an empty image is null.
  void write_images(const std::string& name, const std::vector<ImageRow>& rows) {
    arrow::StringBuilder keys, captions;
    arrow::BinaryBuilder images;
    arrow::Int64Builder hashes;
    for (const ImageRow& row : rows) {
      const auto number = static_cast<int64_t>(hashes.length());
      ASSERT_TRUE((number % 3 == 2 ? hashes.AppendNull() : hashes.Append(number * 11)).ok());
      ASSERT_TRUE((keys.Append(row.key) & captions.Append(row.caption)).ok());
      ASSERT_TRUE((row.image.empty() ? images.AppendNull() : images.Append(row.image)).ok());
    }
    const auto schema = arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()),
                                       arrow::field("image", arrow::binary()), arrow::field("hash", arrow::int64())});
    const auto batch = arrow::RecordBatch::Make(schema, static_cast<int64_t>(rows.size()),
                                                {*keys.Finish(), *captions.Finish(), *images.Finish(), *hashes.Finish()});
    const auto written = put_shard(local_files(), folder_.path("images"), name, *batch);
    ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  }
  static std::vector<ImageRow> good_rows(int num_rows) {
    std::vector<ImageRow> rows;
    for (int i = 0; i < num_rows; ++i) {
      rows.push_back({row_key(i), "caption " + std::to_string(i), numbered_png(i, 32 + i % 5, 40)});
    }
    return rows;
  }
  std::string part(int number, const std::string& output = "latents") const {
    return folder_.path(output) + "/" + PartName{.item = number}.text();
  }

  TemporaryFolder folder_;
  MetricsRegistry metrics_;
  StoreSet stores_{{}, system_clock(), metrics_};
};

}  // namespace darkroom
