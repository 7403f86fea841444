#include "darkroom/ops/operation_table.h"

#include <array>

#include "darkroom/core/check.h"
#include "darkroom/tensor/cuda_plugin.h"
#include "references.h"

namespace darkroom {
namespace {

using TablesByDevice = std::array<OperationTable, static_cast<size_t>(torch::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

TablesByDevice& tables() {
  static TablesByDevice instance = [] {
    TablesByDevice all{};
    all.fill(reference_operations());
    return all;
  }();
  return instance;
}

// A tensor on a GPU exists only after the plugin was loaded, so this finds it and loads nothing.
bool install_plugin_operations() {
  if (const CudaPlugin* plugin = loaded_cuda_plugin(); plugin != nullptr) {
    install_operations(torch::kCUDA, *plugin->operations(reference_operations()));
  }
  return true;
}

}  // namespace

const OperationTable& reference_operations() {
  static const OperationTable table{.group_norm = reference::group_norm,
                                    .group_norm_backward = reference::group_norm_backward,
                                    .group_norm_silu = reference::group_norm_silu,
                                    .group_norm_silu_backward = reference::group_norm_silu_backward,
                                    .geglu = reference::geglu,
                                    .geglu_backward = reference::geglu_backward,
                                    .add_noise = reference::add_noise,
                                    .counter_normal = reference::counter_normal,
                                    .norm_partials = reference::norm_partials,
                                    .add_norm_partials = reference::add_norm_partials,
                                    .clip_scale = reference::clip_scale,
                                    .adamw_update = reference::adamw_update};
  return table;
}

const OperationTable& operations_for(torch::DeviceType device) {
  if (device == torch::kCUDA) {
    static const bool installed = install_plugin_operations();
    (void)installed;
  }
  return tables()[static_cast<size_t>(device)];
}

void install_operations(torch::DeviceType device, const OperationTable& table) {
  const bool is_whole = table.group_norm != nullptr && table.group_norm_backward != nullptr && table.group_norm_silu != nullptr &&
                        table.group_norm_silu_backward != nullptr && table.geglu != nullptr && table.geglu_backward != nullptr &&
                        table.add_noise != nullptr && table.counter_normal != nullptr && table.norm_partials != nullptr &&
                        table.add_norm_partials != nullptr && table.clip_scale != nullptr && table.adamw_update != nullptr;
  DARKROOM_CHECK(is_whole, "an operation table with an empty entry");
  tables()[static_cast<size_t>(device)] = table;
}

}  // namespace darkroom
