#include "fake_kernels.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>

#include "cpu_views.h"
#include "fake_memory.h"
#include "fake_order.h"
#include "fake_stream.h"

namespace darkroom::fake {
namespace {

template <typename Function>
c10::IValue map_tensors(const c10::IValue& value, const Function& function) {
  if (value.isTensor()) {
    return function(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(function(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      list.push_back(tensor ? std::optional(function(*tensor)) : tensor);
    }
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == kDeviceType) {
    return c10::Device(c10::kCPU);
  }
  return value;
}

// What makes a GPU's host wait: the result's value or shape depends on the data.
bool depends_on_values(const c10::OperatorHandle& op, const c10::Stack& stack) {
  if (op.hasTag(at::Tag::data_dependent_output)) {
    return true;
  }
  if (!op.hasTag(at::Tag::dynamic_output_shape)) {
    return false;
  }
  if (op.schema().name() != "aten::index") {
    return true;
  }
  for (const std::optional<at::Tensor> index : stack.back().toOptionalTensorList()) {
    if (index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte)) {
      return true;
    }
  }
  return false;
}

bool keeps_weight_layout() {
  static const char* layout = std::getenv(kFakeDeviceLayoutVariable);
  return layout != nullptr && std::string_view(layout) == "given";
}

// The weight of a convolution as the CPU's networks have it; `arguments` are the call's.
void lay_out_weight(const std::string& name, c10::IValue* arguments) {
  const bool is_forward = name == "aten::convolution", is_backward = name == "aten::convolution_backward";
  if ((is_forward || is_backward) && !keeps_weight_layout()) {
    c10::IValue& weight = arguments[is_forward ? 1 : 2];
    // Of one pixel or channel both layouts are contiguous, and the CPU would take channels-last convolutions by the strides alone.
    const at::Tensor plain = weight.toTensor().contiguous();
    weight = plain.as_strided(plain.sizes(), c10::contiguous_strides(plain.sizes()));
  }
}

// What a replayed kernel made anew goes where the recorded one put it.
void put_back(const at::Tensor& recorded, const at::Tensor& again) {
  if (recorded.defined() && recorded.storage().data() != again.storage().data()) {
    std::memcpy(host_pointer(recorded.storage().data()), host_pointer(again.storage().data()), again.storage().nbytes());
  }
}

void put_back(const c10::Stack& recorded, const c10::Stack& again) {
  for (size_t i = 0; i < recorded.size(); ++i) {
    if (recorded[i].isTensor()) {
      put_back(recorded[i].toTensor(), again[i].toTensor());
    } else if (recorded[i].isTensorList()) {
      const auto before = recorded[i].toTensorVector(), now = again[i].toTensorVector();
      for (size_t j = 0; j < before.size(); ++j) {
        put_back(before[j], now[j]);
      }
    }
  }
}

template <typename Function>
void for_each_tensor(const c10::IValue& value, const Function& function) {
  map_tensors(value, [&](const at::Tensor& tensor) {
    function(tensor);
    return tensor;
  });
}

// A view touches no memory.
bool makes_views(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) { return result.alias_info() != nullptr && !result.alias_info()->isWrite(); });
}

void note_inputs(const c10::FunctionSchema& schema, const c10::Stack& inputs) {
  for (size_t i = 0; i < inputs.size() && !makes_views(schema); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      (alias != nullptr && alias->isWrite() ? note_write : note_read)(tensor, schema.name());
    });
  }
}

// Of memory that no input had.
void note_results(const c10::FunctionSchema& schema, const c10::Stack& inputs, const c10::Stack& results) {
  std::set<const void*> known;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) { known.insert(tensor.defined() ? tensor.storage().data() : nullptr); });
  }
  for (const c10::IValue& result : results) {
    for_each_tensor(result, [&](const at::Tensor& tensor) {
      if (tensor.defined() && !known.contains(tensor.storage().data())) {
        note_write(tensor, schema.name());
      }
    });
  }
}

void run_on_cpu(const c10::OperatorHandle& op, c10::Stack* stack) {
  check_alive();
  const std::string& name = op.schema().name();
  const auto begin = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const c10::Stack inputs(begin, stack->end());
  note_inputs(op.schema(), inputs);
  {
    const std::lock_guard lock(device_lock());
    count_kernel();
  }
  if (depends_on_values(op, *stack)) {
    synchronize(name);
  }
  CpuViews views;
  for (auto argument = begin; argument != stack->end(); ++argument) {
    TORCH_CHECK(!argument->isGenerator(), "fake device: a CPU generator in ", name);
    *argument = map_tensors(*argument, [&](const at::Tensor& tensor) { return views.view(tensor, name); });
  }
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    lay_out_weight(name, &*begin);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  views.write_back();
  for (c10::IValue& result : *stack) {
    result = map_tensors(result, [&](const at::Tensor& tensor) { return views.device(tensor); });
  }
  note_results(op.schema(), inputs, *stack);
  if (is_recording()) {
    add_to_recording([op, inputs, outputs = *stack] {
      c10::Stack again = inputs;
      run_on_cpu(op, &again);
      put_back(outputs, again);
      note_results(op.schema(), inputs, outputs);
    });
  }
}

void count_copy(const at::Tensor& from, const at::Tensor& to) {
  const std::lock_guard lock(device_lock());
  const bool is_from_device = from.device().type() == kDeviceType, is_to_device = to.device().type() == kDeviceType;
  if (is_from_device) {
    ++(is_to_device ? counts().device_to_device : counts().device_to_host);
  } else {
    ++counts().host_to_device;
    counts().host_to_device_bytes += static_cast<int64_t>(to.nbytes());
  }
}

// A GPU copies beside the host only from and to page-locked memory, and only bytes as they lie.
bool can_be_late(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::Tensor& host = from.device().type() == kDeviceType ? to : from;
  return non_blocking && host.device().is_cpu() && is_pinned(host.const_data_ptr()) && from.scalar_type() == to.scalar_type() &&
         from.sizes() == to.sizes() && from.is_contiguous() && to.is_contiguous();
}

void copy_tensor(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  check_alive();
  count_copy(from, to);
  note_read(from, "copy_");
  note_write(to, "copy_");
  const bool is_from_device = from.device().type() == kDeviceType, is_to_device = to.device().type() == kDeviceType;
  const bool is_late = can_be_late(from, to, non_blocking);
  if (is_from_device != is_to_device && !is_late) {
    synchronize("copy_ between host and device");
  }
  CpuViews views;
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor source = is_from_device ? views.view(from, "copy_") : from, target = is_to_device ? views.view(to, "copy_") : to;
  if (is_late && is_from_device) {
    copy_out_later(target, source.clone());
  } else {
    if (is_late) {
      copy_in_later(source, source.clone());
    }
    target.copy_(source);
  }
}

at::Tensor& copy_kernel(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  copy_tensor(source, self, non_blocking);
  if (is_recording()) {
    add_to_recording([=] { copy_tensor(source, self, non_blocking); });
  }
  return self;
}

at::Scalar local_scalar(const at::Tensor& self) {
  note_read(self, "item");
  synchronize("item");
  return at::_local_scalar_dense(CpuViews().view(self, "item"));
}

// Without a choice of its own a device gets the composite attention.
int64_t choose_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
                         double dropout, bool is_causal, std::optional<double> scale, bool is_grouped) {
  if (mask) {
    return static_cast<int64_t>(at::SDPBackend::math);  // CUDA's entry below takes no mask.
  }
  CpuViews views;
  const auto view = [&](const at::Tensor& tensor) { return views.view(tensor, "attention"); };
  return at::_fused_sdp_choice(view(q), view(k), view(v), {}, dropout, is_causal, scale, is_grouped);
}

using AttentionResult =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout, bool is_causal,
                          bool /*returns_mask*/, std::optional<double> scale) {
  auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, is_causal, {}, scale);
  return {out, sums, {}, {}, q.sym_size(2), k.sym_size(2), {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                                                  const at::Tensor& v, const at::Tensor& out, const at::Tensor& sums,
                                                                  const at::Tensor& /*first_q*/, const at::Tensor& /*first_k*/,
                                                                  c10::SymInt /*most_q*/, c10::SymInt /*most_k*/, double dropout,
                                                                  bool is_causal, const at::Tensor& /*seed*/, const at::Tensor& /*offset*/,
                                                                  std::optional<double> scale) {
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, sums, dropout, is_causal, {}, scale);
}

// A composite kernel would go before the fallback, so whatever has a CPU kernel of its own is named.
void name_all_operations(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    const bool is_ours = name.name == "aten::_local_scalar_dense" || name.name == "aten::copy_" || name.name == "aten::_copy_from";
    if (!op || !name.name.starts_with("aten::") || is_ours) {
      continue;
    }
    const bool is_convolution = name.name == "aten::convolution" || name.name == "aten::convolution_backward";
    if (is_convolution || op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
    }
  }
}

}  // namespace

void register_kernels() {
  // Never destroyed: the program's end takes no kernel away from a tensor that is left.
  static auto* operations = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  static auto* fallback = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
  operations->impl("copy_", copy_kernel);  // CUDA has no _copy_from.
  operations->impl("_local_scalar_dense", local_scalar);
  operations->impl("_scaled_dot_product_flash_attention", attention);
  operations->impl("_scaled_dot_product_flash_attention_backward", attention_backward);
  name_all_operations(*operations);
}

void launch(const std::string& name, const std::vector<at::Tensor>& changed, const std::vector<at::Tensor>& read,
            std::function<void(std::vector<at::Tensor>&)> run) {
  const auto kernel = [=, run = std::move(run)] {
    {
      const std::lock_guard lock(device_lock());
      count_kernel();
    }
    CpuViews views;
    std::vector<at::Tensor> cpu;
    const auto take = [&](const at::Tensor& tensor, const auto& note) {
      TORCH_CHECK(!tensor.defined() || tensor.device().type() == kDeviceType, "fake device: a host tensor goes to the kernel ", name);
      note(tensor, name);
      cpu.push_back(views.view(tensor, name));
    };
    for (const at::Tensor& tensor : changed) {
      take(tensor, note_write);
    }
    for (const at::Tensor& tensor : read) {
      take(tensor, note_read);
    }
    run(cpu);
  };
  kernel();
  add_to_recording(kernel);
}

}  // namespace darkroom::fake
