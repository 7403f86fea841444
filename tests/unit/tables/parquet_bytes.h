#pragma once

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <string>

namespace darkroom {

/// The bytes of a Parquet file with these rows as another program would write it, without page checksums.
inline std::string parquet_bytes(const arrow::RecordBatch& batch, int64_t rows_per_group, bool with_statistics) {
  parquet::WriterProperties::Builder properties;
  if (!with_statistics) {
    properties.disable_statistics();
  }
  const auto table = arrow::Table::FromRecordBatches({batch.Slice(0)}).ValueOrDie();
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  EXPECT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, rows_per_group, properties.build()).ok());
  return sink->Finish().ValueOrDie()->ToString();
}

}  // namespace darkroom
