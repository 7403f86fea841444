#include "darkroom/tensor/device.h"

#include <dlfcn.h>

#include <charconv>

#include "darkroom/tensor/cuda_plugin.h"

namespace darkroom {
namespace {

Result<std::vector<GpuInfo>> load_plugin() {
  void* library = dlopen(kCudaPluginFile, RTLD_NOW | RTLD_LOCAL);  // Found through the program's RUNPATH ($ORIGIN).
  if (library == nullptr) {
    return Status::unavailable("no GPU is used, because the CUDA plugin does not load:", dlerror());
  }
  const auto entry = reinterpret_cast<CudaPluginEntry>(dlsym(library, kCudaPluginEntryName));
  if (entry == nullptr) {
    return Status::unavailable("the CUDA plugin has no entry point; build program and plugin together:", kCudaPluginEntryName);
  }
  const CudaPlugin* plugin = entry();
  if (plugin->version != kCudaPluginVersion) {
    return Status::unavailable("the CUDA plugin is of another version (want, got):", kCudaPluginVersion, plugin->version);
  }
  std::vector<GpuInfo> gpus;
  std::string reason;
  if (!plugin->list_gpus(gpus, reason)) {
    return Status::unavailable("no GPU is used:", reason);
  }
  return gpus;
}

}  // namespace

const Result<std::vector<GpuInfo>>& list_gpus() {
  static const Result<std::vector<GpuInfo>> gpus = load_plugin();
  return gpus;
}

Result<std::string> resolve_device(const std::string& text) {
  if (text == "cpu") {
    return text;
  }
  if (text == "auto") {
    return std::string(list_gpus().is_ok() ? "cuda:0" : "cpu");
  }
  size_t index = 0;
  const std::string prefix = "cuda:";
  const bool has_index = text.rfind(prefix, 0) == 0;
  if (has_index) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + prefix.size(), end, index);
    if (error != std::errc() || stop != end) {
      return Status::invalid_argument("--device takes auto, cpu, cuda or cuda:N, got:", text);
    }
  } else if (text != "cuda") {
    return Status::invalid_argument("--device takes auto, cpu, cuda or cuda:N, got:", text);
  }
  if (!list_gpus().is_ok()) {
    return list_gpus().status();
  }
  if (index >= list_gpus()->size()) {
    return Status::unavailable("there is no such GPU (asked for, GPUs here):", text, list_gpus()->size());
  }
  return fmt::format("cuda:{}", index);
}

}  // namespace darkroom
