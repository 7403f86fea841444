#include "darkroom/ops/operation_table.h"

#include <array>

#include "darkroom/core/check.h"
#include "darkroom/ops/geglu.h"
#include "darkroom/ops/group_norm_silu.h"

namespace darkroom {
namespace {

torch::Tensor reference_group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t num_groups,
                                        double eps) {
  const auto normed = at::group_norm(x, num_groups, weight, bias, eps);
  // Without autograd nobody needs the normed values again, so they are overwritten: one buffer less.
  return normed.requires_grad() ? at::silu(normed) : at::silu_(const_cast<torch::Tensor&>(normed));
}

torch::Tensor reference_geglu(const torch::Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return halves[0] * at::gelu(halves[1]);
}

using TablesByDevice = std::array<OperationTable, static_cast<size_t>(torch::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

TablesByDevice& tables() {
  static TablesByDevice instance = [] {
    TablesByDevice all{};
    all.fill(reference_operations());
    return all;
  }();
  return instance;
}

}  // namespace

const OperationTable& reference_operations() {
  static const OperationTable table{.group_norm_silu = reference_group_norm_silu, .geglu = reference_geglu};
  return table;
}

const OperationTable& operations_for(torch::DeviceType device) { return tables()[static_cast<size_t>(device)]; }

void install_operations(torch::DeviceType device, const OperationTable& table) {
  DARKROOM_CHECK(table.group_norm_silu != nullptr && table.geglu != nullptr, "an operation table with an empty entry");
  tables()[static_cast<size_t>(device)] = table;
}

torch::Tensor group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t num_groups,
                              double eps) {
  return operations_for(x.device().type()).group_norm_silu(x, weight, bias, num_groups, eps);
}

torch::Tensor geglu(const torch::Tensor& x) { return operations_for(x.device().type()).geglu(x); }

}  // namespace darkroom
