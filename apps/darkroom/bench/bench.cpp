#include "bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace darkroom {
namespace {

constexpr std::array kBenches = {
    Bench{"train-step", "a training step of the U-Net: forward, backward, clip, AdamW and EMA", bench_train_step},
    Bench{"forward", "the U-Net's forward pass", bench_forward},
    Bench{"sample", "a DDIM step with guidance: two U-Net calls in one batch and the update", bench_sample},
    Bench{"encode", "the VAE's encoder: pictures to moments", bench_encode_images},
    Bench{"encode-text", "the text encoder: token ids to states", bench_encode_captions},
};

}  // namespace

Status BenchOptions::validate() const {
  if (resolution < 0 || batch_size < 1 || repeats < 1 || threads < 1) {
    return Status::invalid_argument("--resolution must be at least 0, --batch-size, --repeats and --threads at least 1, got:", resolution,
                                    batch_size, repeats, threads);
  }
  if (dtype != "float32" && dtype != "bfloat16") {
    return Status::invalid_argument("--dtype takes float32 or bfloat16, got:", dtype);
  }
  return Status::ok();
}

std::span<const Bench> benches() { return kBenches; }

Result<Bench> find_bench(const std::string& name) {
  const auto found = std::find_if(kBenches.begin(), kBenches.end(), [&](const Bench& bench) { return bench.name == name; });
  if (found != kBenches.end()) {
    return *found;
  }
  std::string names;
  for (const Bench& bench : kBenches) {
    names += (names.empty() ? "" : ", ") + std::string(bench.name);
  }
  return Status::invalid_argument(fmt::format("the benchmarks are {}; there is no:", names), name);
}

std::string bench_text(const nlohmann::json& figures) {
  std::string text;
  for (const auto& [key, value] : figures.items()) {
    text += fmt::format("{:<18} {}\n", key, value.is_number_float() ? fmt::format("{:.5g}", value.get<double>()) : value.dump());
  }
  return text;
}

}  // namespace darkroom
