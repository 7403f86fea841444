#include "darkroom/tensor/shape_run.h"

#include <gtest/gtest.h>

#include "darkroom/core/check.h"
#include "darkroom/tensor/multiply_adds.h"
#include "support/counted_memory.h"

namespace darkroom {
namespace {

torch::TensorOptions on_shapes() { return torch::dtype(torch::kFloat32).device(torch::kMeta); }

/// A convolution, norms and an attention: what torch knows no shapes of by itself.
struct SmallMixture : torch::nn::Module {
  SmallMixture() {
    kernel = register_parameter("kernel", torch::zeros({8, 4, 3, 3}));
    bias = register_parameter("bias", torch::zeros({8}));
    weight = register_parameter("weight", torch::zeros({8}));
    product = register_parameter("product", torch::zeros({24, 8}));
  }

  torch::Tensor forward(const torch::Tensor& x_nchw) {
    const auto folded = at::conv2d(x_nchw, kernel, bias, 2, 1);
    const auto normed = at::group_norm(folded, 2, weight, bias).flatten(2).transpose(1, 2);
    const auto parts = at::linear(at::layer_norm(normed, {8}, weight, bias), product).chunk(3, 2);
    const auto heads = [](const torch::Tensor& x) { return x.reshape({x.size(0), x.size(1), 2, 4}).transpose(1, 2); };
    return at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]));
  }

  torch::Tensor kernel, bias, weight, product;
};

TEST(shape_run, counts_what_tensors_would_take) {
  ShapeRun shapes;
  const int64_t before = shapes.held_bytes();
  {
    const torch::Tensor tensor = torch::empty({1'000'000, 1'000'000}, on_shapes());
    EXPECT_EQ(shapes.held_bytes() - before, 4'000'000'000'000);
    const torch::Tensor view = tensor.narrow(0, 0, 10).transpose(0, 1);
    EXPECT_EQ(shapes.held_bytes() - before, 4'000'000'000'000) << "a view takes nothing";
  }
  EXPECT_EQ(shapes.held_bytes(), before);
  EXPECT_EQ(shapes.peak_bytes() - before, 4'000'000'000'000);
  shapes.restart_peak();
  EXPECT_EQ(shapes.peak_bytes(), before);
}

TEST(shape_run, a_second_one_at_a_time_is_refused) {
  ShapeRun shapes;
  EXPECT_THROW(ShapeRun second, CheckFailure);
}

TEST(shape_run, gives_the_shapes_and_products_that_the_cpu_gives) {
  SmallMixture on_cpu, without_memory;
  torch::Tensor want, got;
  const int64_t want_products = count_multiply_adds([&] { want = on_cpu.forward(torch::zeros({3, 4, 9, 11})); });
  ShapeRun shapes;
  ShapeRun::move_here(without_memory, torch::kFloat32);
  EXPECT_EQ(count_multiply_adds([&] { got = without_memory.forward(torch::empty({3, 4, 9, 11}, on_shapes())); }), want_products);
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_EQ(got.strides(), want.strides());
  got.sum().backward();
  for (const auto& parameter : without_memory.parameters()) {
    EXPECT_TRUE(parameter.grad().is_meta());
    EXPECT_EQ(parameter.grad().sizes(), parameter.sizes());
  }
}

TEST(shape_run, a_pass_takes_what_the_cpus_allocator_counts) {
  constexpr int64_t kSide = 129;
  SmallMixture on_cpu, without_memory;
  int64_t want = 0;
  {
    CountedMemory counted;
    for (auto& parameter : on_cpu.parameters()) {
      parameter.mutable_grad() = torch::zeros_like(parameter);
    }
    const int64_t before = counted.held();
    counted.restart_peak();
    on_cpu.forward(torch::zeros({2, 4, kSide, kSide})).sum().backward();
    want = counted.peak() - before;
  }
  ShapeRun shapes;
  ShapeRun::move_here(without_memory, torch::kFloat32);
  const int64_t before = shapes.held_bytes();
  shapes.restart_peak();
  without_memory.forward(torch::empty({2, 4, kSide, kSide}, on_shapes())).sum().backward();
  const auto got = static_cast<double>(shapes.peak_bytes() - before);
  constexpr double kScratch = 1.5e6;  // Of the fused attention, a thread.
  EXPECT_NEAR(got, static_cast<double>(want), 0.05 * static_cast<double>(want) + kScratch * at::get_num_threads());
}

TEST(shape_run, leaves_the_device_as_it_was) {
  { const ShapeRun shapes; }
  const ShapeRun again;
  EXPECT_EQ(again.held_bytes(), 0);
}

}  // namespace
}  // namespace darkroom
