#include "darkroom/tensor/kept_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>

#include "support/counted_memory.h"

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

// Each case in a process of its own, as what is kept once is kept until the end.
void in_a_child(void (*judged)()) {
  const auto run = [&] {
    judged();
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "") << "what it missed is printed above";
}

void of_a_tensor_is_the_next_ones() {
  constexpr int64_t kLarge = int64_t{256} << 20, kOfAThread = int64_t{16} << 20;
  keep_freed_memory(torch::Device("cuda:0"));
  EXPECT_GE(faults_of_the_next(kLarge), kLarge / kPage / 512) << "the kernel cleared it, perhaps by huge pages";
  keep_freed_memory(torch::kCPU);
  EXPECT_LE(faults_of_the_next(kLarge), 32);
  EXPECT_LE(in_a_thread(kOfAThread), 32);
}

void is_aligned_and_grows_and_ends_as_torchs_own() {
  const torch::Tensor before = torch::arange(1000);
  keep_freed_memory(torch::kCPU);
  for (const int64_t size : {0, 1, 15, 16, 17, 63, 64, 65, 4096, 1'000'003}) {
    const torch::Tensor tensor = torch::full({size}, 7, torch::kUInt8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64, 0) << size;
    EXPECT_EQ(tensor.sum().item<int64_t>(), 7 * size);
  }
  torch::Tensor grown = torch::arange(1000);
  grown.resize_({100'000});
  EXPECT_TRUE(torch::equal(grown.slice(0, 0, 1000), before));
  c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::CPU);
  allocator->raw_deallocate(allocator->raw_allocate(100));
  const CountedMemory counted;
  const int64_t held = counted.held();
  {
    const torch::Tensor told = torch::empty({1000}, torch::kUInt8);
    EXPECT_EQ(counted.held() - held, 1000);
  }
  EXPECT_EQ(counted.held(), held);
  EXPECT_THROW(torch::empty({int64_t{1} << 50}), std::bad_alloc);
}

TEST(kept_memory, of_a_tensor_is_the_next_ones) { in_a_child(of_a_tensor_is_the_next_ones); }

TEST(kept_memory, is_aligned_and_grows_and_ends_as_torchs_own) { in_a_child(is_aligned_and_grows_and_ends_as_torchs_own); }

}  // namespace
}  // namespace darkroom
