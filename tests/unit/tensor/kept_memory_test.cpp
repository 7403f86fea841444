#include "darkroom/tensor/kept_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <thread>

namespace darkroom {
namespace {

constexpr int64_t kPage = 4096;

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// Of a tensor of so many bytes where one as large was freed before.
long faults_of_the_next(int64_t num_bytes) {
  torch::ones({num_bytes}, torch::kUInt8);
  const long before = page_faults();
  torch::ones({num_bytes}, torch::kUInt8);
  return page_faults() - before;
}

long in_a_thread(int64_t num_bytes) {
  long faults = 0;
  std::thread([&] { faults = faults_of_the_next(num_bytes); }).join();
  return faults;
}

TEST(kept_memory, of_a_tensor_is_the_next_ones) {
  constexpr int64_t kLarge = int64_t{256} << 20, kOfAThread = int64_t{16} << 20;
  keep_freed_memory(torch::Device("cuda:0"));
  EXPECT_GE(faults_of_the_next(kLarge), kLarge / kPage / 512) << "the kernel cleared it, perhaps by huge pages";
  keep_freed_memory(torch::kCPU);
  EXPECT_LE(faults_of_the_next(kLarge), 32);
  EXPECT_LE(in_a_thread(kOfAThread), 32);
}

}  // namespace
}  // namespace darkroom
