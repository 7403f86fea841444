#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>

namespace darkroom {

/// While it lives, networks can run forward and backward on shapes alone: tensors on torch's device `meta` have sizes and no memory, and
/// what they would take is counted to the byte, as an allocator of the CPU would count it. Gives torch the shapes of the operations that
/// its C++ part does not know on that device: convolutions, group and layer norms, and attention as the CPU's fused one. What libraries
/// take for themselves within an operation (packed copies of weights) is not counted. Thread safety: one at a time.
class ShapeRun {
 public:
  ShapeRun();
  ~ShapeRun();
  ShapeRun(const ShapeRun&) = delete;
  ShapeRun& operator=(const ShapeRun&) = delete;

  /// Takes the memory from a module's parameters: shapes in `type` are left, each with a gradient that backward() adds to.
  static void move_here(torch::nn::Module& module, torch::ScalarType type);

  int64_t held_bytes() const;
  /// The most since restart_peak().
  int64_t peak_bytes() const;
  void restart_peak();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace darkroom
