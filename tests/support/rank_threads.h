#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/tensor/communicator.h"
#include "support/free_loopback_port.h"

namespace darkroom {

inline GlooOptions loopback_rank(int64_t rank, int64_t num_ranks, int64_t port) {
  GlooOptions options;
  options.place = {.rank = rank, .size = num_ranks, .local_size = num_ranks, .port = port};
  options.agreement = R"({"recipe": "same"})";
  return options;
}

/// What a rank makes of the ranks that Gloo has joined.
using JoinFurther = std::function<Result<std::unique_ptr<Communicator>>(std::unique_ptr<Communicator>)>;

/// Runs `body` for every rank of a group, a thread each; they are joined by Gloo on the loopback, or the one rank is alone.
inline void run_rank_threads(int64_t num_ranks, const std::function<void(Communicator&)>& body, const JoinFurther& join_further = {}) {
  if (num_ranks == 1) {
    body(lone_rank());
    return;
  }
  // Torch's log of collectives (FlightRecorder) is one for all groups of a process, and groups of several threads race in it.
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  const int64_t port = free_loopback_port();
  ASSERT_GT(port, 0);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([=, &body, &join_further] {
      at::set_num_threads(1);
      auto ranks = join_gloo(loopback_rank(rank, num_ranks, port));
      if (ranks.is_ok() && join_further != nullptr) {
        ranks = join_further(std::move(*ranks));
      }
      ASSERT_TRUE(ranks.is_ok()) << ranks.status().to_string();
      body(**ranks);
      EXPECT_TRUE((*ranks)->finish().is_ok());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace darkroom
