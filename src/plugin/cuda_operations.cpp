#include "cuda_operations.h"

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

const OperationTable* given_reference = nullptr;

}  // namespace

namespace cuda {

const OperationTable& fallback() {
  DARKROOM_CHECK(given_reference != nullptr, "the plugin's operations run before the program asked for them");
  return *given_reference;
}

}  // namespace cuda

const OperationTable* cuda_operations(const OperationTable& reference) {
  static const OperationTable table = {.group_norm = cuda::group_norm,
                                       .group_norm_backward = cuda::group_norm_backward,
                                       .group_norm_silu = cuda::group_norm_silu,
                                       .group_norm_silu_backward = cuda::group_norm_silu_backward,
                                       .geglu = cuda::geglu,
                                       .geglu_backward = cuda::geglu_backward,
                                       .add_noise = cuda::add_noise,
                                       .counter_normal = cuda::counter_normal,
                                       .norm_partials = cuda::norm_partials,
                                       .add_norm_partials = cuda::add_norm_partials,
                                       .clip_scale = cuda::clip_scale,
                                       .adamw_update = cuda::adamw_update};
  given_reference = &reference;
  return &table;
}

}  // namespace darkroom
