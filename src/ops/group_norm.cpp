#include "darkroom/ops/group_norm.h"

#include "darkroom/ops/group_norm_silu.h"
#include "references.h"

namespace darkroom {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Autograd's view of a pair of entries; `Entries` says which.
template <typename Entries>
class GroupNormFunction : public torch::autograd::Function<GroupNormFunction<Entries>> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                               int64_t num_groups, double eps) {
    ForwardResult result = Entries::forward(operations_for(x.device().type()))(x, weight, bias, {num_groups, eps, true});
    context->save_for_backward(std::move(result.saved));
    context->saved_data["num_groups"] = num_groups;
    context->saved_data["eps"] = eps;
    return result.value;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const GroupNormSettings settings{context->saved_data["num_groups"].toInt(), context->saved_data["eps"].toDouble(), true};
    const std::array<bool, 3> wanted = {context->needs_input_grad(0), context->needs_input_grad(1), context->needs_input_grad(2)};
    const auto& entry = Entries::backward(operations_for(grads[0].device().type()));
    const auto gradients = entry(grads[0], context->get_saved_variables(), settings, wanted);
    return {gradients[0], gradients[1], gradients[2], {}, {}};
  }
};

struct PlainEntries {
  static auto forward(const OperationTable& table) { return table.group_norm; }
  static auto backward(const OperationTable& table) { return table.group_norm_backward; }
};

struct SiluEntries {
  static auto forward(const OperationTable& table) { return table.group_norm_silu; }
  static auto backward(const OperationTable& table) { return table.group_norm_silu_backward; }
};

bool records_gradient(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  return at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || bias.requires_grad());
}

}  // namespace

torch::Tensor group_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t num_groups, double eps) {
  if (records_gradient(x, weight, bias)) {
    return GroupNormFunction<PlainEntries>::apply(x, weight, bias, num_groups, eps);
  }
  return operations_for(x.device().type()).group_norm(x, weight, bias, {num_groups, eps, false}).value;
}

torch::Tensor group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t num_groups,
                              double eps) {
  if (records_gradient(x, weight, bias)) {
    return GroupNormFunction<SiluEntries>::apply(x, weight, bias, num_groups, eps);
  }
  return operations_for(x.device().type()).group_norm_silu(x, weight, bias, {num_groups, eps, false}).value;
}

}  // namespace darkroom
