#include "packed_products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

namespace darkroom {
namespace {

using c10::IValue;

IValue optional_tensor(const torch::Tensor& tensor) { return tensor.defined() ? IValue(tensor) : IValue(); }

IValue no_scalars() { return IValue(c10::List<std::optional<at::Scalar>>()); }

IValue twice(int64_t value) { return IValue(std::vector<int64_t>{value, value}); }

torch::Tensor call(const c10::OperatorHandle& operation, std::initializer_list<IValue> arguments) {
  torch::jit::Stack stack(arguments);
  operation.callBoxed(stack);
  return std::move(stack.front()).toTensor();
}

c10::OperatorHandle find_operation(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

}  // namespace

torch::Tensor pack_linear_weight(const torch::Tensor& weight_oi) {
  static const c10::OperatorHandle reorder = find_operation("mkldnn::_reorder_linear_weight", "");
  return call(reorder, {weight_oi.detach().contiguous(), IValue()});
}

torch::Tensor packed_linear(const torch::Tensor& x, const torch::Tensor& packed, const torch::Tensor& bias, const torch::Tensor& addend) {
  static const c10::OperatorHandle plain = find_operation("mkldnn::_linear_pointwise", "");
  static const c10::OperatorHandle adding = find_operation("mkldnn::_linear_pointwise", "binary");
  if (addend.defined()) {
    return call(adding, {x, addend.contiguous(), packed, optional_tensor(bias), "add"});
  }
  return call(plain, {x, packed, optional_tensor(bias), "none", no_scalars(), ""});
}

torch::Tensor pack_convolution_weight(const torch::Tensor& weight_oihw, const ConvolutionSettings& settings) {
  static const c10::OperatorHandle reorder = find_operation("mkldnn::_reorder_convolution_weight", "");
  return call(reorder, {weight_oihw.detach().contiguous(), twice(settings.padding), twice(settings.stride), twice(1), 1, IValue()});
}

torch::Tensor packed_convolution(const torch::Tensor& x_nchw, const torch::Tensor& packed, const torch::Tensor& bias,
                                 const ConvolutionSettings& settings, const torch::Tensor& addend_nchw) {
  static const c10::OperatorHandle plain = find_operation("mkldnn::_convolution_pointwise", "");
  static const c10::OperatorHandle adding = find_operation("mkldnn::_convolution_pointwise", "binary");
  const torch::Tensor x = x_nchw.contiguous(at::MemoryFormat::ChannelsLast);
  const IValue padding = twice(settings.padding), stride = twice(settings.stride), dilation = twice(1);
  if (addend_nchw.defined()) {
    return call(adding, {x, addend_nchw.contiguous(at::MemoryFormat::ChannelsLast), packed, optional_tensor(bias), padding, stride,
                         dilation, 1, "add", IValue(), IValue(), no_scalars(), IValue()});
  }
  return call(plain, {x, packed, optional_tensor(bias), padding, stride, dilation, 1, "none", no_scalars(), ""});
}

}  // namespace darkroom
