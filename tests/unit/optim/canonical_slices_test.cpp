#include "darkroom/optim/canonical_slices.h"

#include <gtest/gtest.h>

#include "support/rank_threads.h"

namespace darkroom {
namespace {

// Convolutions that chunks of the norm cut, and sizes that alignment leaves gaps behind.
struct CutNetwork : torch::nn::Module {
  CutNetwork() {
    register_module("a", torch::nn::Conv2d(torch::nn::Conv2dOptions(37, 63, 3)));
    register_module("b", torch::nn::Linear(33, 129));
    register_module("c", torch::nn::Conv2d(torch::nn::Conv2dOptions(64, 121, 3)));
    register_module("d", torch::nn::Conv2d(torch::nn::Conv2dOptions(301, 211, 1)));
  }
};

const FlatParametersOptions kAsOnGpu = {.channels_last = true, .alignment = 64};

// What lies between parameters is zero.
torch::Tensor some_values(const FlatParameters& parameters) {
  torch::manual_seed(5);
  const torch::Tensor flat = torch::zeros({parameters.size()});
  for (const auto& [name, view] : parameters.named_views(flat)) {
    view.copy_(torch::randn(view.sizes()));
  }
  return flat;
}

TEST(canonical_slices, make_up_the_whole_in_order) {
  CutNetwork network;
  const FlatParameters parameters(network, kAsOnGpu);
  ASSERT_FALSE(parameters.is_canonical());
  for (const int64_t num_ranks : {1, 2, 3, 5, 40}) {
    int64_t next = 0;
    for (const FlatRange& slice : canonical_slices(parameters, num_ranks)) {
      EXPECT_EQ(slice.first, next);
      next += slice.count;
    }
    EXPECT_EQ(next, parameters.num_elements());
  }
}

TEST(canonical_slices, of_buffers_in_canonical_order_are_the_slices_themselves) {
  CutNetwork network;
  const FlatParameters parameters(network);
  EXPECT_EQ(canonical_slices(parameters, 3), slices_of_ranks(parameters.size(), 3));
}

TEST(canonical_slices, of_all_ranks_are_the_canonical_order_of_the_buffer_and_come_back) {
  CutNetwork network;
  const FlatParameters parameters(network, kAsOnGpu);
  const torch::Tensor flat = some_values(parameters);
  const torch::Tensor want = parameters.canonical_range(flat, {0, parameters.num_elements()});
  for (const int64_t num_ranks : {1, 2, 3, 7}) {
    run_rank_threads(num_ranks, [&](Communicator& ranks) {
      const FlatRange mine = canonical_slices(parameters, ranks.size())[static_cast<size_t>(ranks.rank())];
      const torch::Tensor own = slice_of_rank(parameters.size(), ranks.rank(), ranks.size()).of(flat);
      const torch::Tensor canonical = torch::full({mine.count}, -1.0F);
      ASSERT_TRUE(copy_canonical(ranks, parameters, own, canonical).is_ok());
      EXPECT_TRUE(torch::equal(canonical, want.narrow(0, mine.first, mine.count))) << ranks.size() << " " << ranks.rank();
      const torch::Tensor back = torch::zeros_like(own);
      ASSERT_TRUE(copy_from_canonical(ranks, parameters, canonical, back).is_ok());
      EXPECT_TRUE(torch::equal(back, own)) << ranks.size() << " " << ranks.rank();
    });
  }
}

}  // namespace
}  // namespace darkroom
