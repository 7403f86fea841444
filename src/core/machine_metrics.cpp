#include "darkroom/core/machine_metrics.h"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

namespace darkroom {
namespace {

struct HostTimes {
  std::chrono::nanoseconds busy{};
  std::chrono::nanoseconds idle{};
};

/// The first line of /proc/stat (proc_stat(5)): "cpu", then ticks by what the processors did; time of guests is in user's and nice's.
std::optional<HostTimes> read_host_times(const std::string& proc_folder) {
  std::ifstream file(proc_folder + "/stat");
  std::string name;
  int64_t user = 0, nice = 0, system = 0, idle = 0, wait = 0, interrupts = 0, soft_interrupts = 0, stolen = 0;
  if (!(file >> name >> user >> nice >> system >> idle >> wait >> interrupts >> soft_interrupts >> stolen) || name != "cpu") {
    return std::nullopt;
  }
  const auto time = [tick = std::chrono::nanoseconds(std::chrono::seconds(1)) / sysconf(_SC_CLK_TCK)](int64_t ticks) {
    return ticks * tick;
  };
  return HostTimes{.busy = time(user + nice + system + interrupts + soft_interrupts + stolen), .idle = time(idle + wait)};
}

/// A line of /proc/meminfo, such as "MemTotal:       24605684 kB", in bytes.
std::optional<int64_t> read_memory_line(const std::string& proc_folder, const std::string& wanted) {
  std::ifstream file(proc_folder + "/meminfo");
  std::string name;
  int64_t kibibytes = 0;
  while (file >> name >> kibibytes) {
    if (name == wanted + ":") {
      return kibibytes * 1024;
    }
    file.ignore(1000, '\n');
  }
  return std::nullopt;
}

/// The few functions of NVML that are asked, by their published names and types; it is opened, not linked, because most machines lack it.
class NvidiaManagement {
 public:
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };
  struct Utilization {
    unsigned int gpu = 0, memory = 0;  // Percent of the last sample period in which it was at work.
  };

  /// Null where it cannot be asked.
  static std::shared_ptr<NvidiaManagement> open(const std::string& library) {
    std::shared_ptr<NvidiaManagement> opened(new NvidiaManagement());  // Shared by a callback, which must be copyable.
    opened->library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened->library_ == nullptr || !opened->find_functions() || opened->init_() != 0) {
      return nullptr;
    }
    opened->is_begun_ = true;
    return opened;
  }
  ~NvidiaManagement() {
    if (is_begun_) {
      shutdown_();
    }
    if (library_ != nullptr) {
      dlclose(library_);
    }
  }
  NvidiaManagement(const NvidiaManagement&) = delete;
  NvidiaManagement& operator=(const NvidiaManagement&) = delete;

  unsigned int num_gpus() const {
    unsigned int count = 0;
    return count_(&count) == 0 ? count : 0;
  }
  std::optional<Memory> memory(unsigned int gpu) const { return ask<Memory>(gpu, memory_); }
  std::optional<Utilization> utilization(unsigned int gpu) const { return ask<Utilization>(gpu, utilization_); }

 private:
  NvidiaManagement() = default;

  template <typename Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    return function != nullptr;
  }
  bool find_functions() {
    return find(init_, "nvmlInit_v2") && find(shutdown_, "nvmlShutdown") && find(count_, "nvmlDeviceGetCount_v2") &&
           find(handle_, "nvmlDeviceGetHandleByIndex_v2") && find(memory_, "nvmlDeviceGetMemoryInfo") &&
           find(utilization_, "nvmlDeviceGetUtilizationRates");
  }
  template <typename Answer>
  std::optional<Answer> ask(unsigned int gpu, int (*function)(void*, Answer*)) const {
    void* device = nullptr;
    Answer answer;
    return handle_(gpu, &device) == 0 && function(device, &answer) == 0 ? std::optional(answer) : std::nullopt;
  }

  void* library_ = nullptr;
  bool is_begun_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned int*) = nullptr;
  int (*handle_)(unsigned int, void**) = nullptr;
  int (*memory_)(void*, Memory*) = nullptr;
  int (*utilization_)(void*, Utilization*) = nullptr;
};

void add_gpu(MetricsRegistry& registry, const NvidiaManagement& management, unsigned int gpu) {
  const Labels labels = {{"gpu", std::to_string(gpu)}};
  if (const auto memory = management.memory(gpu)) {
    registry.gauge("darkroom_gpu_memory_bytes", "Memory of a GPU.", labels).set(static_cast<double>(memory->total));
    registry.gauge("darkroom_gpu_memory_used_bytes", "Memory of a GPU that is taken, by any process.", labels)
        .set(static_cast<double>(memory->used));
  }
  if (const auto utilization = management.utilization(gpu)) {
    registry.gauge("darkroom_gpu_utilization", "Share of the last second in which a GPU was at work.", labels)
        .set(utilization->gpu / 100.0);
  }
}

}  // namespace

MetricsRegistry::Collection collect_host_metrics(MetricsRegistry& metrics, const std::string& proc_folder) {
  return metrics.collect([proc_folder](MetricsRegistry& registry) {
    if (const auto times = read_host_times(proc_folder)) {
      for (const auto& [state, time] : {std::pair("busy", times->busy), std::pair("idle", times->idle)}) {
        SecondsCounter& counter =
            registry.seconds_counter("darkroom_host_cpu_seconds_total", "Time of the machine's processors.", {{"state", state}});
        counter.add(time - counter.value());
      }
    }
    const auto total = read_memory_line(proc_folder, "MemTotal");
    const auto available = read_memory_line(proc_folder, "MemAvailable");
    if (total && available) {
      registry.gauge("darkroom_host_memory_bytes", "Memory of the machine.").set(static_cast<double>(*total));
      registry.gauge("darkroom_host_memory_available_bytes", "Memory of the machine that could be had.")
          .set(static_cast<double>(*available));
    }
  });
}

MetricsRegistry::Collection collect_gpu_metrics(MetricsRegistry& metrics, const std::string& library) {
  return metrics.collect([management = NvidiaManagement::open(library)](MetricsRegistry& registry) {
    const unsigned int num_gpus = management == nullptr ? 0 : management->num_gpus();
    for (unsigned int gpu = 0; gpu < num_gpus; ++gpu) {
      add_gpu(registry, *management, gpu);
    }
  });
}

MetricsRegistry::Collection collect_cost_metrics(MetricsRegistry& metrics, double dollars_per_hour, Clock& clock, Clock::Instant began) {
  metrics.gauge("darkroom_price_dollars_per_hour", "Price of the machine, or of the process' share of it.").set(dollars_per_hour);
  return metrics.collect([dollars_per_hour, &clock, began](MetricsRegistry& registry) {
    const std::chrono::duration<double, std::ratio<3600>> hours = clock.now() - began;
    registry.gauge("darkroom_cost_dollars", "What the process has cost since its start.").set(hours.count() * dollars_per_hour);
  });
}

}  // namespace darkroom
