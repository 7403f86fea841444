#pragma once

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/util/compression.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace darkroom {

/// An Arrow stream of one batch with its bodies packed, as no peer of ours sends them; those that would save less are marked as left alone.
inline std::string packed_stream(const std::string& bytes, double least_savings = 0) {
  const auto input = std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(bytes));
  const auto batch = arrow::ipc::RecordBatchStreamReader::Open(input).ValueOrDie()->Next().ValueOrDie();
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.codec = arrow::util::Codec::Create(arrow::Compression::LZ4_FRAME).ValueOrDie();
  options.min_space_savings = least_savings;
  const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  const auto writer = arrow::ipc::MakeStreamWriter(sink, batch->schema(), options).ValueOrDie();
  EXPECT_TRUE(writer->WriteRecordBatch(*batch).ok());
  EXPECT_TRUE(writer->Close().ok());
  return sink->Finish().ValueOrDie()->ToString();
}

}  // namespace darkroom
