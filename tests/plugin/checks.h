#pragma once

#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace darkroom::plugin_checks {

/// Collects what a check found; a check without complaints passes.
class Findings {
 public:
  /// Complains unless the two have the same shape and bits (NaN equals NaN nowhere).
  void same_bits(const std::string& what, const torch::Tensor& got, const torch::Tensor& want) {
    const auto on_cpu = got.to(torch::kCPU), want_on_cpu = want.to(torch::kCPU);
    if (on_cpu.sizes() != want_on_cpu.sizes() || !torch::equal(on_cpu, want_on_cpu)) {
      complaints_.push_back(
          what + ": other bits" +
          (on_cpu.sizes() == want_on_cpu.sizes() ? ", largest difference " + difference(on_cpu, want_on_cpu) : ", other shape"));
    }
  }

  /// Complains unless the norm of the difference is at most `bound` of the norm of `want`. Both are widened to double.
  void close(const std::string& what, const torch::Tensor& got, const torch::Tensor& want, double bound) {
    const auto wide = got.to(torch::kCPU, torch::kFloat64), want_wide = want.to(torch::kCPU, torch::kFloat64);
    if (wide.sizes() != want_wide.sizes()) {
      complaints_.push_back(what + ": other shape");
      return;
    }
    const double apart = (wide - want_wide).norm().item<double>(), size = want_wide.norm().item<double>();
    if (!(apart <= bound * size) && !(apart == 0.0)) {
      complaints_.push_back(what + ": off by " + std::to_string(apart / size) + " of the norm, bound " + std::to_string(bound));
    }
  }

  void holds(const std::string& what, bool condition) {
    if (!condition) {
      complaints_.push_back(what);
    }
  }

  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  static std::string difference(const torch::Tensor& got, const torch::Tensor& want) {
    return std::to_string((got.to(torch::kFloat64) - want.to(torch::kFloat64)).abs().max().item<double>());
  }

  std::vector<std::string> complaints_;
};

/// One behaviour of the plugin on a GPU.
struct Check {
  std::string name;
  std::function<void(Findings&, const torch::Device&)> run;
};

std::vector<Check> first_checks();     ///< Of a device that nothing has touched yet: they must run first.
std::vector<Check> network_checks();   ///< Group norms and the gated unit.
std::vector<Check> training_checks();  ///< Noise, norm, update.
std::vector<Check> runtime_checks();   ///< Graphs, staging, memory.

}  // namespace darkroom::plugin_checks
