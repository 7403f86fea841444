// Makes the real buffers of one rank of several and runs its real steps, alone: the other ranks send zeros. Prints what torch's allocator
// counted of each part, and how large the process became, as JSON (tests/acceptance/training_memory.py).
// usage: rank_memory PRESET LATENTS_SIDE RANKS RANK GROUPS MICRO_BATCH float32|bfloat16

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/nn/presets.h"
#include "darkroom/tensor/device_runtime.h"
#include "support/simulated_rank.h"

int main(int argc, char** argv) {
  constexpr int kWords = 8;
  if (argc != kWords) {
    std::fprintf(stderr, "usage: rank_memory PRESET LATENTS_SIDE RANKS RANK GROUPS MICRO_BATCH float32|bfloat16\n");
    return 2;
  }
  const auto preset = darkroom::find_preset(argv[1]);
  if (!preset.is_ok()) {
    std::fprintf(stderr, "%s\n", preset.status().message().c_str());
    return 2;
  }
  darkroom::SimulatedRun run{.unet = preset->unet};
  run.latents_side = std::atoll(argv[2]);
  run.num_ranks = std::atoll(argv[3]);
  run.rank = std::atoll(argv[4]);
  run.gradient_groups = std::atoll(argv[5]);
  run.micro_batch = std::atoll(argv[6]);
  run.type = std::string(argv[7]) == "bfloat16" ? torch::kBFloat16 : torch::kFloat32;
  at::set_num_threads(2);
  const int64_t before = darkroom::peak_memory_bytes(torch::kCPU);
  const darkroom::MeasuredRank measured = darkroom::measure_rank(run);
  const nlohmann::json said = {{"weights", measured.memory.compute},
                               {"moments", measured.memory.moments},
                               {"average", measured.memory.average},
                               {"gradients", measured.memory.gradients},
                               {"partial_sums", measured.memory.partial_sums},
                               {"received_sums", measured.memory.received_sums},
                               {"activations", measured.activations},
                               {"largest_kernel", measured.largest_kernel},
                               {"peak", measured.peak},
                               {"resident_growth", darkroom::peak_memory_bytes(torch::kCPU) - before},
                               {"failure", measured.failure}};
  std::printf("%s\n", said.dump().c_str());
  return measured.failure.empty() ? 0 : 1;
}
