#include "darkroom/optim/flat_parameters.h"

#include <gtest/gtest.h>

#include "darkroom/core/check.h"
#include "toy_network.h"

namespace darkroom {
namespace {

TEST(flat_parameters, lie_in_name_order_without_padding) {
  ToyNetwork network;
  const FlatParameters flat(network);
  std::vector<std::string> names;
  int64_t next = 0;
  for (const FlatParameters::Entry& entry : flat.entries()) {
    names.push_back(entry.name);
    EXPECT_EQ(entry.first, next);
    next += entry.count;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"in.bias", "in.weight", "norm.bias", "norm.weight", "out.bias", "out.weight", "text.bias",
                                             "text.weight"}));
  EXPECT_EQ(flat.size(), next);
  EXPECT_EQ(flat.values().numel(), next);
}

TEST(flat_parameters, keep_the_values_and_share_memory_with_the_module) {
  ToyNetwork network;
  const torch::Tensor before = network.out->weight.detach().clone();
  const FlatParameters flat(network);
  EXPECT_TRUE(torch::equal(network.out->weight.detach(), before));
  flat.values().fill_(0.25);
  EXPECT_TRUE(torch::equal(network.out->weight.detach(), torch::full_like(before, 0.25)));
}

TEST(flat_parameters, backward_adds_into_the_flat_gradients) {
  ToyNetwork network;
  FlatParameters flat(network);
  for (int i = 0; i < 2; ++i) {
    (network.out->weight.sum() + 3 * network.in->bias.sum()).backward();
  }
  flat.check_bound();
  for (const auto& [name, gradient] : flat.named_views(flat.gradients())) {
    const double want = name == "out.weight" ? 2.0 : name == "in.bias" ? 6.0 : 0.0;
    EXPECT_TRUE(torch::equal(gradient, torch::full_like(gradient, want))) << name;
  }
  flat.zero_gradients();
  EXPECT_EQ(network.out->weight.grad().abs().sum().item<double>(), 0.0);
}

TEST(flat_parameters, half_precision_weights_become_float32) {
  ToyNetwork network;
  network.to(torch::kFloat16);
  const torch::Tensor half = network.in->weight.detach().clone();
  const FlatParameters flat(network);
  EXPECT_EQ(network.in->weight.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(torch::equal(network.in->weight.detach(), half.to(torch::kFloat32)));
}

TEST(flat_parameters, a_replaced_gradient_is_a_bug) {
  ToyNetwork network;
  const FlatParameters flat(network);
  network.zero_grad();
  EXPECT_THROW(flat.check_bound(), CheckFailure);
}

}  // namespace
}  // namespace darkroom
