#include "darkroom/paint/usable_samplers.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace darkroom {

Status try_sampler(const std::string& name, const SchedulerConfig& scheduler) {
  const int num_steps = static_cast<int>(std::min<int64_t>(20, scheduler.noise.num_timesteps));
  return make_sampler({.name = name, .num_steps = num_steps}, scheduler).status();
}

std::vector<std::string> usable_samplers(const SchedulerConfig& scheduler) {
  std::vector<std::string> usable;
  for (const std::string_view name : sampler_names()) {
    if (try_sampler(std::string(name), scheduler).is_ok()) {
      usable.emplace_back(name);
    }
  }
  return usable;
}

}  // namespace darkroom
