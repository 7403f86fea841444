#include "darkroom/ops/geglu.h"

#include "references.h"

namespace darkroom {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class GegluFunction : public torch::autograd::Function<GegluFunction> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x) {
    ForwardResult result = operations_for(x.device().type()).geglu(x);
    context->save_for_backward(std::move(result.saved));
    return result.value;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {operations_for(grads[0].device().type()).geglu_backward(grads[0], context->get_saved_variables())};
  }
};

}  // namespace

torch::Tensor geglu(const torch::Tensor& x) {
  if (at::GradMode::is_enabled() && x.requires_grad()) {
    return GegluFunction::apply(x);
  }
  return operations_for(x.device().type()).geglu(x).value;
}

namespace reference {

// The operations of ATen's autograd in its order, so its bits.
ForwardResult geglu(const torch::Tensor& x) {
  const auto halves = x.chunk(2, -1);
  const torch::Tensor gate = at::gelu(halves[1]);
  return {halves[0] * gate, {x, gate}};
}

torch::Tensor geglu_backward(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved) {
  const auto halves = saved[0].chunk(2, -1);
  return at::cat({grad * saved[1], at::gelu_backward(grad * halves[0], halves[1])}, -1);
}

}  // namespace reference
}  // namespace darkroom
