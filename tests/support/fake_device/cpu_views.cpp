#include "cpu_views.h"

#include "fake_memory.h"

namespace darkroom::fake {
namespace {

at::Tensor tensor_in(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

}  // namespace

c10::Storage& CpuViews::cpu_storage(const c10::Storage& device) {
  SharedStorage& shared = storages_.try_emplace(device.unsafeGetStorageImpl(), SharedStorage{device, {}}).first->second;
  if (!shared.cpu) {
    shared.cpu = c10::Storage(c10::Storage::use_byte_size_t(), device.nbytes(), c10::DataPtr(host_pointer(device.data()), c10::kCPU),
                              c10::GetAllocator(c10::kCPU), /*resizable=*/true);
  }
  return shared.cpu;
}

at::Tensor CpuViews::view(const at::Tensor& tensor, const std::string& operation) {
  if (!tensor.defined()) {
    return tensor;
  }
  if (tensor.device().type() != kDeviceType) {
    TORCH_CHECK(tensor.dim() == 0, "fake device: a host tensor among the device's in ", operation);
    return tensor;
  }
  if (const auto found = tensors_.find(tensor.unsafeGetTensorImpl()); found != tensors_.end()) {
    return found->second.cpu;
  }
  const at::Tensor cpu = tensor_in(cpu_storage(tensor.storage()), c10::DispatchKey::CPU, tensor);
  tensors_.emplace(tensor.unsafeGetTensorImpl(), Pair{tensor, cpu});
  return cpu;
}

// A part of an input is made as torch's own views are: of a tensor that knows autograd it is one, too, also in InferenceMode.
at::Tensor CpuViews::view_of_input(const c10::Storage& storage, const at::Tensor& like) {
  for (const auto& [impl, pair] : tensors_) {
    if (pair.device.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      at::Tensor view =
          at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(storage), pair.device.key_set(), like.dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
      return view;
    }
  }
  return tensor_in(storage, c10::DispatchKey::CUDA, like);
}

at::Tensor CpuViews::device(const at::Tensor& cpu) {
  if (!cpu.defined() || cpu.device().type() == kDeviceType) {
    return cpu;
  }
  for (const auto& [impl, pair] : tensors_) {
    if (pair.cpu.unsafeGetTensorImpl() == cpu.unsafeGetTensorImpl()) {
      return pair.device;
    }
  }
  for (const auto& [impl, shared] : storages_) {
    if (shared.cpu.unsafeGetStorageImpl() == cpu.storage().unsafeGetStorageImpl()) {
      return view_of_input(shared.device, cpu);
    }
  }
  const c10::Storage storage(c10::Storage::use_byte_size_t(), cpu.storage().nbytes(), adopt(cpu.storage()), &device_allocator(),
                             /*resizable=*/true);
  storages_.emplace(storage.unsafeGetStorageImpl(), SharedStorage{storage, cpu.storage()});  // Two results may share memory.
  return tensor_in(storage, c10::DispatchKey::CUDA, cpu);
}

void CpuViews::write_back() {
  for (auto& [impl, shared] : storages_) {
    if (host_pointer(shared.device.data()) == shared.cpu.data()) {
      continue;
    }
    const c10::Storage moved(c10::Storage::use_byte_size_t(), shared.cpu.nbytes(),
                             shared.cpu.set_data_ptr(c10::DataPtr(nullptr, c10::kCPU)), c10::GetAllocator(c10::kCPU), /*resizable=*/true);
    shared.device.set_nbytes(moved.nbytes());
    shared.device.set_data_ptr_noswap(adopt(moved));
  }
  for (auto& [impl, pair] : tensors_) {
    if (pair.device.sizes() != pair.cpu.sizes() || pair.device.strides() != pair.cpu.strides()) {
      impl->set_sizes_and_strides(pair.cpu.sizes(), pair.cpu.strides(), pair.cpu.storage_offset());
    }
  }
}

}  // namespace darkroom::fake
