#include "darkroom/tensor/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "darkroom/core/log.h"
#include "darkroom/tensor/cuda_plugin.h"
#include "darkroom/tensor/gpu_advice.h"

namespace darkroom {
namespace {

std::atomic<const CudaPlugin*> usable_plugin = nullptr;

// Beside the program if it is there, else wherever the loader looks: in the folders of the program's own RPATH, too, where `make install`
// and the wheel have it.
std::string plugin_path() {
  std::error_code error;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", error).replace_filename(kCudaPluginFile);
  return !error && std::filesystem::exists(beside, error) ? beside.string() : kCudaPluginFile;
}

Result<std::vector<GpuInfo>> load_plugin() {
  void* library = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
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
  usable_plugin = plugin;
  return gpus;
}

// Whoever pays for a GPU should not find out by the clock that it idles.
void warn_of_idle_gpu() {
  static std::once_flag warned;
  std::call_once(warned, [] {
    if (!list_gpus().is_ok() && has_nvidia_driver()) {
      const std::string& reason = list_gpus().status().message();
      log_warning("the CPU computes: {} ({})", gpu_advice(reason), reason);
    }
  });
}

}  // namespace

const CudaPlugin* loaded_cuda_plugin() { return usable_plugin; }

const Result<std::vector<GpuInfo>>& list_gpus() {
  static const Result<std::vector<GpuInfo>> gpus = load_plugin();
  return gpus;
}

Status check_capability(const GpuInfo& gpu) {
  constexpr int kLeastMajor = 8;
  if (gpu.compute_major < kLeastMajor) {
    return Status::unavailable("the kernels need a GPU of compute capability 8.0 or later (GPU, its capability):", gpu.name,
                               fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor));
  }
  return Status::ok();
}

bool is_device_text(std::string_view text) {
  constexpr std::string_view kPrefix = "cuda:";
  constexpr size_t kMostDigits = 3;
  const std::string_view index = text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : std::string_view();
  const bool has_index = !index.empty() && index.size() <= kMostDigits &&
                         std::all_of(index.begin(), index.end(), [](char digit) { return digit >= '0' && digit <= '9'; });
  return has_index || text == "auto" || text == "cpu" || text == "cuda";
}

Result<std::string> resolve_device(const std::string& text) {
  if (!is_device_text(text)) {
    return Status::invalid_argument("--device takes auto, cpu, cuda or cuda:N, got:", text);
  }
  if (text == "cpu") {
    return text;
  }
  if (text == "auto") {
    for (size_t gpu = 0; list_gpus().is_ok() && gpu < list_gpus()->size(); ++gpu) {
      if (check_capability((*list_gpus())[gpu]).is_ok()) {
        return fmt::format("cuda:{}", gpu);
      }
    }
    warn_of_idle_gpu();
    return std::string("cpu");
  }
  size_t index = 0;
  if (text != "cuda") {
    std::from_chars(text.data() + std::string_view("cuda:").size(), text.data() + text.size(), index);
  }
  if (!list_gpus().is_ok()) {
    return list_gpus().status();
  }
  if (index >= list_gpus()->size()) {
    return Status::unavailable("there is no such GPU (asked for, GPUs here):", text, list_gpus()->size());
  }
  DARKROOM_RETURN_IF_ERROR(check_capability((*list_gpus())[index]));
  return fmt::format("cuda:{}", index);
}

Result<std::string> resolve_rank_device(const std::string& text, int64_t local_rank, int64_t local_size, RankStarter starter) {
  const bool shares = std::getenv(kShareGpuVariable) != nullptr;
  if (local_size == 1 || text == "cpu" || (shares && text != "auto")) {
    return resolve_device(text);
  }
  const auto num_gpus = list_gpus().is_ok() ? static_cast<int64_t>(list_gpus()->size()) : 0;
  // A launcher that gives every rank its own GPU shows it no other.
  const bool sees_own = starter == RankStarter::kLauncher && num_gpus == 1 && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  if (text == "auto") {
    const auto own = resolve_device(sees_own ? "cuda:0" : fmt::format("cuda:{}", local_rank));
    return (sees_own || num_gpus >= local_size) && own.is_ok() ? own : resolve_device("cpu");
  }
  if (text != "cuda") {
    DARKROOM_RETURN_IF_ERROR(resolve_device(text).status());
    return Status::invalid_argument("ranks of one machine take a GPU each; say cuda, which gives every rank its own (ranks here):", text,
                                    local_size);
  }
  if (num_gpus > 0 && num_gpus < local_size && !sees_own) {
    return Status::unavailable("a machine has fewer GPUs than ranks (GPUs, ranks here):", num_gpus, local_size);
  }
  return resolve_device(sees_own ? "cuda:0" : fmt::format("cuda:{}", local_rank));  // A GPU of two ranks is refused when they meet.
}

}  // namespace darkroom
