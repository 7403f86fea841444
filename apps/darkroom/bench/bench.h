#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// What a benchmark runs on: a preset's networks with random weights and synthetic inputs.
struct BenchOptions {
  std::string preset = "tiny";    ///< models init --preset.
  int64_t resolution = 0;         ///< Pixels of a side, at most 16384; 0: the preset's.
  int64_t batch_size = 8;         ///< Samples at a time.
  int64_t repeats = 10;           ///< Measured runs, after warm-up ones.
  int threads = 1;                ///< Intra-op threads.
  uint64_t seed = 0;              ///< Of weights and inputs.
  std::string device = "cpu";     ///< auto, cpu, cuda or cuda:N.
  std::string dtype = "float32";  ///< What the network computes in: float32 or bfloat16. A GPU's float32 is not TF32 here.
  bool graph = true;              ///< On a GPU: record what a run asks of it once and replay that.
  bool packing = true;            ///< On the CPU: lay a U-Net's weights out once (nn/packing.h), as `sample` does.
  std::stop_token stop = {};      ///< A request ends the measuring after the run at hand; the figures are of the runs so far.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// One benchmark under the name that `darkroom bench NAME` takes.
struct Bench {
  std::string_view name;
  std::string_view what;  ///< For the help.
  /// Figures under stable keys: `unit`, `per_second` (of that unit, from the median), `ms` (min, median, max of a run), `parameters`,
  /// `tflops`, `gemm_tflops` (a large matrix product of the same type on the same device in the same process), `gemm_share`,
  /// `peak_memory_bytes` of the process, `peak_device_memory_bytes` on a GPU, `device`, `dtype`, `graph`, of
  /// `forward` and `sample` `packed`.
  /// Errors: kInvalidArgument (options), kUnavailable (no such GPU), kInternal when the benchmark's check of its own answer fails.
  Result<nlohmann::json> (*run)(const BenchOptions& options);
};

/// The benchmarks of the networks.
std::span<const Bench> benches();
/// One of `all` by its name. Errors: kInvalidArgument naming them all.
Result<Bench> find_bench(std::span<const Bench> all, const std::string& name);
/// A line a figure, and a line a peer.
std::string bench_text(const nlohmann::json& figures);

// REQUIRES of both: at least one value.
/// `min`, `median`, `max`.
nlohmann::json spread_of(const std::vector<double>& values);
/// `unit`, `per_second` (from the median) and `ms` (their spread) of runs of `units` each.
nlohmann::json speed_of(const std::string& unit, const std::vector<double>& runs_ms, double units);

Result<nlohmann::json> bench_train_step(const BenchOptions& options);
Result<nlohmann::json> bench_forward(const BenchOptions& options);
Result<nlohmann::json> bench_sample(const BenchOptions& options);
Result<nlohmann::json> bench_encode_images(const BenchOptions& options);
Result<nlohmann::json> bench_encode_captions(const BenchOptions& options);

}  // namespace darkroom
