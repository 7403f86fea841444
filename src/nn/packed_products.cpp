#include "packed_products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using c10::IValue;

IValue optional_tensor(const torch::Tensor& tensor) { return tensor.defined() ? IValue(tensor) : IValue(); }

IValue no_scalars() { return IValue(c10::List<std::optional<at::Scalar>>()); }

IValue twice(int64_t value) { return IValue(std::vector<int64_t>{value, value}); }

IValue call(const c10::OperatorHandle& operation, std::initializer_list<IValue> arguments) {
  torch::jit::Stack stack(arguments);
  operation.callBoxed(stack);
  return std::move(stack.front());
}

c10::OperatorHandle find_operation(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

}  // namespace

void PackedWeight::take(torch::Tensor& weight, torch::Tensor packed) {
  DARKROOM_CHECK(!is_defined(), "a network is packed once");
  packed_ = std::move(packed);
  left_ = at::full({}, std::numeric_limits<double>::quiet_NaN(), weight.options());
  weight.set_data(left_.expand(weight.sizes()));
}

const torch::Tensor& PackedWeight::of(const torch::Tensor& weight) const {
  DARKROOM_CHECK(!at::GradMode::is_enabled(), "a packed network runs without gradients only");
  DARKROOM_CHECK(weight.const_data_ptr() == left_.const_data_ptr(), "a packed network's weights were loaded, moved or cast after packing");
  return packed_;
}

bool has_packed_bfloat16() {
#ifdef __x86_64__
  // oneDNN can be held to less than the processor has (ONEDNN_MAX_CPU_ISA), and then refuses to pack.
  return __builtin_cpu_supports("avx512bf16") != 0 && call(find_operation("mkldnn::_is_mkldnn_bf16_supported", ""), {}).toBool();
#else
  return false;
#endif
}

torch::Tensor pack_linear_weight(const torch::Tensor& weight_oi) {
  static const c10::OperatorHandle reorder = find_operation("mkldnn::_reorder_linear_weight", "");
  return call(reorder, {weight_oi.detach().contiguous(), IValue()}).toTensor();
}

torch::Tensor packed_linear(const torch::Tensor& x, const torch::Tensor& packed, const torch::Tensor& bias, const torch::Tensor& addend) {
  static const c10::OperatorHandle plain = find_operation("mkldnn::_linear_pointwise", "");
  static const c10::OperatorHandle adding = find_operation("mkldnn::_linear_pointwise", "binary");
  if (addend.defined()) {
    return call(adding, {x, addend.contiguous(), packed, optional_tensor(bias), "add"}).toTensor();
  }
  return call(plain, {x, packed, optional_tensor(bias), "none", no_scalars(), ""}).toTensor();
}

torch::Tensor pack_convolution_weight(const torch::Tensor& weight_oihw, const ConvolutionSettings& settings) {
  static const c10::OperatorHandle reorder = find_operation("mkldnn::_reorder_convolution_weight", "");
  return call(reorder, {weight_oihw.detach().contiguous(), twice(settings.padding), twice(settings.stride), twice(1), 1, IValue()})
      .toTensor();
}

torch::Tensor packed_convolution(const torch::Tensor& x_nchw, const torch::Tensor& packed, const torch::Tensor& bias,
                                 const ConvolutionSettings& settings, const torch::Tensor& addend_nchw) {
  static const c10::OperatorHandle plain = find_operation("mkldnn::_convolution_pointwise", "");
  static const c10::OperatorHandle adding = find_operation("mkldnn::_convolution_pointwise", "binary");
  const torch::Tensor x = x_nchw.contiguous(at::MemoryFormat::ChannelsLast);
  const IValue padding = twice(settings.padding), stride = twice(settings.stride), dilation = twice(1);
  const bool is_one_pixel = addend_nchw.defined() && addend_nchw.size(2) == 1 && addend_nchw.size(3) == 1;
  if (is_one_pixel) {  // The operator that adds throws "could not create a memory" there.
    return packed_convolution(x, packed, bias, settings, {}) + addend_nchw;
  }
  if (addend_nchw.defined()) {
    return call(adding, {x, addend_nchw.contiguous(at::MemoryFormat::ChannelsLast), packed, optional_tensor(bias), padding, stride,
                         dilation, 1, "add", IValue(), IValue(), no_scalars(), IValue()})
        .toTensor();
  }
  return call(plain, {x, packed, optional_tensor(bias), padding, stride, dilation, 1, "none", no_scalars(), ""}).toTensor();
}

}  // namespace darkroom
