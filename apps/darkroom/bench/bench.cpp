#include "bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "darkroom/core/median.h"
#include "darkroom/image/transform.h"

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
  if (resolution < 0 || resolution > kLargestSide) {
    return Status::invalid_argument(fmt::format("--resolution must lie in 0..{}, got:", kLargestSide), resolution);
  }
  if (batch_size < 1 || repeats < 1 || threads < 1) {
    return Status::invalid_argument("--batch-size, --repeats and --threads must be at least 1, got:", batch_size, repeats, threads);
  }
  if (dtype != "float32" && dtype != "bfloat16") {
    return Status::invalid_argument("--dtype takes float32 or bfloat16, got:", dtype);
  }
  return Status::ok();
}

std::span<const Bench> benches() { return kBenches; }

Result<Bench> find_bench(std::span<const Bench> all, const std::string& name) {
  std::string names;
  for (const Bench& bench : all) {
    if (bench.name == name) {
      return bench;
    }
    names += (names.empty() ? "" : ", ") + std::string(bench.name);
  }
  return Status::invalid_argument(fmt::format("the benchmarks are {}; there is no:", names), name);
}

std::string bench_text(const nlohmann::json& figures) {
  std::string text;
  for (const auto& [key, value] : figures.items()) {
    if (key == "peers") {
      for (const auto& [peer, theirs] : value.items()) {
        const auto& ratio = theirs["ratio"];
        text += fmt::format("{:<18} {:.2f} times the speed of {} {} (from {:.2f} to {:.2f})\n", "ours is", ratio["median"].get<double>(),
                            peer, theirs["version"].get<std::string>(), ratio["min"].get<double>(), ratio["max"].get<double>());
      }
    } else if (key == "missing") {
      for (const auto& [peer, reason] : value.items()) {
        text += fmt::format("{:<18} {}: {}\n", "not compared", peer, reason.get<std::string>());
      }
    } else {
      text += fmt::format("{:<18} {}\n", key, value.is_number_float() ? fmt::format("{:.5g}", value.get<double>()) : value.dump());
    }
  }
  return text;
}

nlohmann::json spread_of(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {{"min", *least}, {"median", median(values)}, {"max", *most}};
}

nlohmann::json speed_of(const std::string& unit, const std::vector<double>& runs_ms, double units) {
  return {{"unit", unit}, {"per_second", units * 1e3 / median(runs_ms)}, {"ms", spread_of(runs_ms)}};
}

}  // namespace darkroom
