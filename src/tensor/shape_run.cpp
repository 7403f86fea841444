#include "darkroom/tensor/shape_run.h"

#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>
#include <vector>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

// What tensors without memory would take.
struct ShapeTally {
  std::atomic<int64_t> held{0};
  std::atomic<int64_t> peak{0};
  std::atomic<bool> is_used{false};

  void add(int64_t num_bytes) {
    const int64_t now = held.fetch_add(num_bytes) + num_bytes;
    int64_t before = peak.load();
    while (before < now && !peak.compare_exchange_weak(before, now)) {
    }
  }
};

ShapeTally& shape_tally() {
  static ShapeTally tally;
  return tally;
}

void forget_shape(void* num_bytes) {
  auto* count = static_cast<int64_t*>(num_bytes);
  shape_tally().held -= *count;
  delete count;
}

// Of the device `meta`: no memory, but a count of it.
class ShapeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    auto* count = new int64_t(static_cast<int64_t>(num_bytes));
    shape_tally().add(*count);
    return {nullptr, count, &forget_shape, c10::Device(c10::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* /*target*/, const void* /*source*/, std::size_t /*count*/) const override {}
};

torch::Tensor shape_like(const torch::Tensor& tensor) { return at::empty_like(tensor); }

torch::Tensor wanted_shape(bool is_wanted, const torch::Tensor& like) { return is_wanted ? shape_like(like) : torch::Tensor(); }

using Three = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;
using MaybeTensor = std::optional<torch::Tensor>;

torch::Tensor convolution_shape(const torch::Tensor& input, const torch::Tensor& weight, const MaybeTensor& /*bias*/,
                                c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                                c10::SymIntArrayRef /*output_padding*/, c10::SymInt /*groups*/) {
  DARKROOM_CHECK(!transposed, "transposed convolutions have no shape here");
  std::vector<int64_t> sizes = {input.size(0), weight.size(0)};
  for (int64_t i = 2; i < input.dim(); ++i) {
    const auto at = static_cast<size_t>(i - 2);
    const auto of = [&](c10::SymIntArrayRef values) { return values[values.size() == 1 ? 0 : at].expect_int(); };
    sizes.push_back((input.size(i) + 2 * of(padding) - of(dilation) * (weight.size(i) - 1) - 1) / of(stride) + 1);
  }
  return at::empty(sizes, input.options(), input.suggest_memory_format());
}

Three convolution_backward_shapes(const torch::Tensor& /*grad*/, const torch::Tensor& input, const torch::Tensor& weight,
                                  at::OptionalSymIntArrayRef /*bias_sizes*/, c10::SymIntArrayRef /*stride*/,
                                  c10::SymIntArrayRef /*padding*/, c10::SymIntArrayRef /*dilation*/, bool /*transposed*/,
                                  c10::SymIntArrayRef /*output_padding*/, c10::SymInt /*groups*/, std::array<bool, 3> wanted) {
  return {wanted_shape(wanted[0], input), wanted_shape(wanted[1], weight),
          wanted[2] ? at::empty({weight.size(0)}, weight.options()) : torch::Tensor()};
}

Three group_norm_shapes(const torch::Tensor& input, const MaybeTensor& /*weight*/, const MaybeTensor& /*bias*/, c10::SymInt samples,
                        c10::SymInt /*channels*/, c10::SymInt /*pixels*/, int64_t groups, double /*eps*/) {
  const torch::Tensor statistics = at::empty({samples.expect_int(), groups}, input.options());
  return {shape_like(input), statistics, shape_like(statistics)};
}

Three group_norm_backward_shapes(const torch::Tensor& /*grad*/, const torch::Tensor& input, const torch::Tensor& /*mean*/,
                                 const torch::Tensor& /*rstd*/, const MaybeTensor& weight, c10::SymInt /*samples*/, c10::SymInt channels,
                                 c10::SymInt /*pixels*/, int64_t /*groups*/, std::array<bool, 3> wanted) {
  const torch::TensorOptions options = weight.has_value() ? weight->options() : input.options();
  const auto of_channels = [&](bool is_wanted) { return is_wanted ? at::empty({channels.expect_int()}, options) : torch::Tensor(); };
  return {wanted_shape(wanted[0], input), of_channels(wanted[1]), of_channels(wanted[2])};
}

Three layer_norm_shapes(const torch::Tensor& input, c10::SymIntArrayRef normalized, const MaybeTensor& /*weight*/,
                        const MaybeTensor& /*bias*/, double /*eps*/) {
  std::vector<int64_t> sizes = input.sizes().vec();
  std::fill(sizes.end() - static_cast<int64_t>(normalized.size()), sizes.end(), 1);
  const torch::Tensor mean = at::empty(sizes, input.options());
  return {at::empty_like(input, at::MemoryFormat::Contiguous), mean, shape_like(mean)};
}

Three layer_norm_backward_shapes(const torch::Tensor& /*grad*/, const torch::Tensor& input, c10::SymIntArrayRef /*normalized*/,
                                 const torch::Tensor& /*mean*/, const torch::Tensor& /*rstd*/, const MaybeTensor& weight,
                                 const MaybeTensor& bias, std::array<bool, 3> wanted) {
  return {wanted_shape(wanted[0], input), wanted[1] ? shape_like(*weight) : torch::Tensor(),
          wanted[2] ? shape_like(*bias) : torch::Tensor()};
}

// The CPU's fused attention lays its output out as [N, L, heads, width].
torch::Tensor attended_shape(const torch::Tensor& q_nhlc) {
  return at::empty({q_nhlc.size(0), q_nhlc.size(2), q_nhlc.size(1), q_nhlc.size(3)}, q_nhlc.options()).transpose(1, 2);
}

std::tuple<torch::Tensor, torch::Tensor> attention_shapes(const torch::Tensor& q_nhlc, const torch::Tensor& /*k*/,
                                                          const torch::Tensor& /*v*/, double /*dropout*/, bool /*is_causal*/,
                                                          const MaybeTensor& /*mask*/, std::optional<double> /*scale*/) {
  const torch::Tensor sums = at::empty({q_nhlc.size(0), q_nhlc.size(2), q_nhlc.size(1)}, q_nhlc.options().dtype(torch::kFloat32));
  return {attended_shape(q_nhlc), sums.transpose(1, 2)};
}

Three attention_backward_shapes(const torch::Tensor& /*grad*/, const torch::Tensor& q_nhlc, const torch::Tensor& k_nhsc,
                                const torch::Tensor& v_nhsc, const torch::Tensor& /*out*/, const torch::Tensor& /*sums*/,
                                double /*dropout*/, bool /*is_causal*/, const MaybeTensor& /*mask*/, std::optional<double> /*scale*/) {
  return {attended_shape(q_nhlc), attended_shape(k_nhsc), attended_shape(v_nhsc)};
}

torch::Tensor where_shape(const torch::Tensor& condition, const torch::Tensor& chosen, const torch::Tensor& other) {
  return at::empty(at::infer_size(condition.sizes(), at::infer_size(chosen.sizes(), other.sizes())), chosen.options());
}

// In place, for the derivative of a clamp.
torch::Tensor& both_shape(const torch::Tensor& /*left*/, const torch::Tensor& /*right*/, torch::Tensor& out) { return out; }

// Above autograd, because what torch would take here keeps every weight of the attention.
torch::Tensor fused_attention(const torch::Tensor& q_nhlc, const torch::Tensor& k_nhsc, const torch::Tensor& v_nhsc,
                              const MaybeTensor& mask, double dropout, bool is_causal, std::optional<double> scale, bool /*enable_gqa*/) {
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q_nhlc, k_nhsc, v_nhsc, dropout, is_causal, mask, scale));
}

}  // namespace

struct ShapeRun::State {
  c10::Allocator* before = c10::GetAllocator(c10::kMeta);
  torch::Library shapes{torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__};
  torch::Library above_autograd{torch::Library::IMPL, "aten", c10::DispatchKey::AutogradMeta, __FILE__, __LINE__};

  State() {
    static ShapeAllocator allocator;  // Tensors may outlive the run.
    c10::SetAllocator(c10::kMeta, &allocator);
    shapes.impl("convolution", TORCH_FN(convolution_shape));
    shapes.impl("convolution_backward", TORCH_FN(convolution_backward_shapes));
    shapes.impl("native_group_norm", TORCH_FN(group_norm_shapes));
    shapes.impl("native_group_norm_backward", TORCH_FN(group_norm_backward_shapes));
    shapes.impl("native_layer_norm", TORCH_FN(layer_norm_shapes));
    shapes.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward_shapes));
    shapes.impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(attention_shapes));
    shapes.impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(attention_backward_shapes));
    shapes.impl("where.self", TORCH_FN(where_shape));
    shapes.impl("abs", TORCH_FN(shape_like));
    shapes.impl("logical_and.out", TORCH_FN(both_shape));
    above_autograd.impl("scaled_dot_product_attention", TORCH_FN(fused_attention));
  }
  ~State() { c10::SetAllocator(c10::kMeta, before); }
};

ShapeRun::ShapeRun() {
  DARKROOM_CHECK(!shape_tally().is_used.exchange(true), "one run on shapes at a time");
  state_ = std::make_unique<State>();
  restart_peak();
}

ShapeRun::~ShapeRun() {
  state_ = nullptr;
  shape_tally().is_used = false;
}

// In place, because layers hold their parameters themselves. set_data() refuses tensors without memory.
void ShapeRun::move_here(torch::nn::Module& module, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : module.parameters()) {
    const auto options = torch::dtype(type).device(torch::kMeta);
    parameter.mutable_grad() = torch::Tensor();
    parameter.unsafeGetTensorImpl()->shallow_copy_from(torch::empty(parameter.sizes(), options).getIntrusivePtr());
    parameter.requires_grad_(true);
    parameter.mutable_grad() = torch::empty(parameter.sizes(), options);
  }
}

int64_t ShapeRun::held_bytes() const { return shape_tally().held; }
int64_t ShapeRun::peak_bytes() const { return shape_tally().peak; }
void ShapeRun::restart_peak() { shape_tally().peak = shape_tally().held.load(); }

}  // namespace darkroom
