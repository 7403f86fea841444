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
  /// Complains unless the two have the same shape, type and bits: -0 is not 0, and a NaN is itself.
  void same_bits(const std::string& what, const torch::Tensor& got, const torch::Tensor& want) {
    const auto on_cpu = got.to(torch::kCPU), want_on_cpu = want.to(torch::kCPU);
    if (on_cpu.sizes() != want_on_cpu.sizes()) {
      complaints_.push_back(what + ": other shape");
    } else if (on_cpu.scalar_type() != want_on_cpu.scalar_type()) {
      complaints_.push_back(what + ": other type");
    } else if (!torch::equal(bytes_of(on_cpu), bytes_of(want_on_cpu))) {
      complaints_.push_back(what + ": other bits, largest difference " + difference(on_cpu, want_on_cpu));
    }
  }

  /// Complains unless the norm of the difference is at most `bound` of the norm of `want`, and each element's error at most `bound` of that
  /// element and the largest together: the norm of millions does not show what happened to one. Both are widened to double.
  void close(const std::string& what, const torch::Tensor& got, const torch::Tensor& want, double bound) {
    const auto wide = got.to(torch::kCPU, torch::kFloat64), want_wide = want.to(torch::kCPU, torch::kFloat64);
    if (wide.sizes() != want_wide.sizes()) {
      complaints_.push_back(what + ": other shape");
      return;
    }
    const torch::Tensor errors = (wide - want_wide).abs(), sizes = want_wide.abs();
    const double apart = errors.norm().item<double>(), size = sizes.norm().item<double>();
    if (!(apart <= bound * size)) {
      complaints_.push_back(what + ": off by " + std::to_string(apart / size) + " of the norm, bound " + std::to_string(bound));
      return;
    }
    if (errors.numel() == 0) {
      return;
    }
    const torch::Tensor over = (errors - bound * (sizes + sizes.max())).flatten();
    const int64_t worst = over.argmax().item<int64_t>();
    if (!(over[worst].item<double>() <= 0.0)) {
      const auto value = [&](const torch::Tensor& values) { return values.flatten()[worst].item<double>(); };
      complaints_.push_back(c10::str(what, ": element ", worst, " is ", value(wide), ", want ", value(want_wide), ", bound ", bound));
    }
  }

  void holds(const std::string& what, bool condition) {
    if (!condition) {
      complaints_.push_back(what);
    }
  }

  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  static torch::Tensor bytes_of(const torch::Tensor& tensor) { return tensor.contiguous().view({-1}).view(torch::kUInt8); }

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
