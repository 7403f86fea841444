#include "train/trace.h"

#include <gtest/gtest.h>

#include "darkroom/files/fault_files.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

TEST(TraceWriter, a_disk_that_fails_at_any_call_leaves_a_whole_trace_or_none) {
  torch::nn::Linear network(3, 2);
  const FlatParameters parameters(*network);
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite}) {
    bool is_written = false;
    for (int64_t call = 0; !is_written; ++call) {
      ASSERT_LT(call, 100) << "the trace is never written";
      const TemporaryFolder folder;
      const std::string path = folder.path("trace.safetensors");
      FaultInjectingFileSystem files(local_files());
      auto trace = TraceWriter::begin(files, path, 1, parameters);
      ASSERT_TRUE(trace.is_ok()) << trace.status().to_string();
      files.fail_call(call, fault);
      is_written = (*trace)->finish().is_ok();
      const bool is_there = *local_files().exists(path);
      EXPECT_TRUE(is_there || !is_written) << call;
      EXPECT_TRUE(!is_there || SafetensorsFile::open(path).is_ok()) << "call " << call << " leaves half a trace";
    }
  }
}

}  // namespace
}  // namespace darkroom
