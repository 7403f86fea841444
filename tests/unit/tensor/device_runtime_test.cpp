#include "darkroom/tensor/device_runtime.h"

#include <gtest/gtest.h>

#include "darkroom/core/check.h"
#include "darkroom/tensor/cuda_plugin.h"
#include "darkroom/tensor/device.h"

namespace darkroom {
namespace {

const torch::Device kCpu = torch::kCPU;

TEST(device_runtime, on_the_cpu_a_graph_just_calls_its_function) {
  int64_t calls = 0;
  DeviceGraph graph(kCpu, [&] { ++calls; });
  for (int64_t run = 1; run <= DeviceGraph::kWarmUpCalls + 3; ++run) {
    graph.run();
    EXPECT_EQ(calls, run);
    EXPECT_FALSE(graph.is_recorded());
  }
}

TEST(device_runtime, a_graph_reads_its_tensors_anew_in_each_run) {
  const torch::Tensor input = torch::zeros({3}), output = torch::zeros({3});
  DeviceGraph graph(kCpu, [&] { output.copy_(2 * input); });
  for (const double value : {1.0, 5.0}) {
    input.fill_(value);
    graph.run();
    EXPECT_TRUE(torch::equal(output, torch::full({3}, 2 * value)));
  }
}

TEST(device_runtime, the_cpu_is_always_done_and_counts_its_resident_memory) {
  synchronize(kCpu);
  const int64_t before = peak_memory_bytes(kCpu);
  EXPECT_GT(before, 0);
  reset_peak_memory(kCpu);
  EXPECT_GE(peak_memory_bytes(kCpu), before);
}

TEST(device_runtime, staging_for_the_cpu_is_ordinary_memory) {
  const torch::Tensor staging = empty_staging({2, 3}, torch::kInt64, kCpu);
  EXPECT_EQ(staging.sizes().vec(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(staging.scalar_type(), torch::kInt64);
  EXPECT_FALSE(staging.is_pinned());
}

TEST(device_runtime, other_devices_and_unloaded_gpus_are_bugs) {
  EXPECT_THROW(synchronize(torch::Device(torch::kMeta)), CheckFailure);
  if (loaded_cuda_plugin() == nullptr) {
    EXPECT_THROW(peak_memory_bytes(torch::Device(torch::kCUDA, 0)), CheckFailure);
  }
}

TEST(device, refuses_a_gpu_that_the_kernels_are_not_compiled_for) {
  const Status turing = check_capability({.name = "Tesla T4", .memory_bytes = 1, .compute_major = 7, .compute_minor = 5});
  EXPECT_EQ(turing.code(), StatusCode::kUnavailable);
  EXPECT_NE(turing.message().find("8.0 or later (GPU, its capability): Tesla T4 7.5"), std::string::npos) << turing.message();
  for (const auto& [major, minor] : {std::pair(8, 0), std::pair(8, 6), std::pair(9, 0), std::pair(12, 1)}) {
    EXPECT_TRUE(check_capability({.name = "later", .memory_bytes = 1, .compute_major = major, .compute_minor = minor}).is_ok());
  }
}

TEST(device, without_a_gpu_auto_is_the_cpu_and_cuda_says_why_not) {
  if (list_gpus().is_ok()) {
    GTEST_SKIP() << "there is a GPU here";
  }
  EXPECT_EQ(resolve_device("auto").value(), "cpu");
  EXPECT_EQ(resolve_device("cpu").value(), "cpu");
  const auto gpu = resolve_device("cuda:0");
  EXPECT_EQ(gpu.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(gpu.status().message().find("no GPU is used"), std::string::npos) << gpu.status().message();
  EXPECT_EQ(loaded_cuda_plugin(), nullptr);
  for (const char* text : {"gpu", "cuda:", "cuda:x", "cuda:1x", ""}) {
    EXPECT_EQ(resolve_device(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace darkroom
