#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>

#include "darkroom/tensor/device.h"
#include "flags.h"
#include "parity.h"

// Compares a device with the CPU and with the reference packages' recorded results; prints a Markdown table and exits 1 when a bound is
// broken.
//   gpu_parity check [--device D] [--source FOLDER]
//   gpu_parity curves --output FILE [--device D] [--preset P] [--batch-size N] [--steps N]

namespace darkroom {
namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

Result<int> check(const Flags& flags, const torch::Device& device) {
  DARKROOM_ASSIGN_OR_RETURN(auto comparisons, compare_with_golden_files(flags.text("source", "."), device));
  DARKROOM_ASSIGN_OR_RETURN(const auto training, compare_training(device));
  comparisons.insert(comparisons.end(), training.begin(), training.end());
  fmt::print("| comparison on {} | dtype | error | bound | |\n|---|---|---|---|---|\n", device.str());
  for (const Comparison& one : comparisons) {
    fmt::print("| {} | {} | {:.2e} | {:.2e} | {} |\n", one.what, one.dtype, one.error, one.bound, one.holds() ? "holds" : "BROKEN");
  }
  const bool all_hold = std::all_of(comparisons.begin(), comparisons.end(), [](const Comparison& one) { return one.holds(); });
  return all_hold ? 0 : kFailed;
}

Result<int> write_curves(const Flags& flags, const torch::Device& device) {
  constexpr int64_t kSteps = 200;
  constexpr int64_t kBatchSize = 8;
  DARKROOM_ASSIGN_OR_RETURN(const int64_t steps, flags.number("steps", kSteps));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t batch_size, flags.number("batch-size", kBatchSize));
  if (steps < 1 || batch_size < 1) {
    return Status::invalid_argument("--steps and --batch-size must be at least 1, got:", steps, batch_size);
  }
  const std::string path = flags.text("output", "");
  if (path.empty()) {
    return Status::invalid_argument("curves are written to a file: give", "--output FILE");
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string csv, loss_curves(flags.text("preset", "tiny"), batch_size, steps, device));
  std::ofstream file(path, std::ios::binary);
  file << csv;
  file.close();
  if (!file) {
    return Status::unavailable("cannot write the loss curves:", path);
  }
  return 0;
}

Result<int> run(int argc, char** argv) {
  DARKROOM_ASSIGN_OR_RETURN(const Flags flags,
                            Flags::parse(argc, argv, {"device", "source", "output", "preset", "batch-size", "steps", "threads"}));
  if (flags.names().size() != 1 || (flags.names()[0] != "check" && flags.names()[0] != "curves")) {
    return Status::invalid_argument("usage: gpu_parity check|curves [--flag VALUE]...; names given:", flags.names().size());
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string device, resolve_device(flags.text("device", "auto")));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t threads, flags.number("threads", 1));
  at::set_num_threads(static_cast<int>(std::max<int64_t>(threads, 1)));
  at::globalContext().setAllowTF32CuDNN(false);  // float32 means float32.
  at::globalContext().setAllowTF32CuBLAS(false);
  return flags.names()[0] == "check" ? check(flags, torch::Device(device)) : write_curves(flags, torch::Device(device));
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  try {
    const auto code = darkroom::run(argc, argv);
    if (code.is_ok()) {
      return *code;
    }
    fmt::print(stderr, "gpu_parity: {}\n", code.status().message());
    return code.status().code() == darkroom::StatusCode::kInvalidArgument ? darkroom::kBadUsage : darkroom::kFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_parity: {}\n", error.what());
    return darkroom::kFailed;
  }
}
