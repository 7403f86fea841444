#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace darkroom {

/// A U-Net as pictures ask it that come and go: in any order with other numbers of rows, sizes and lengths of texts. On a GPU a shape that
/// was asked for often enough is recorded (DeviceGraph) and replayed from then on, with the same bits; a few recordings are kept, in memory
/// that they share. They go where something finds no memory beside them, another painter's work, too (recorded_memory.h), and for good
/// where one cannot be made: calls are plain then, as they are on the CPU. REQUIRES of the network what DeviceGraph does, and that its
/// weights stay where they are. Thread safety: none on a GPU, where all of a process take turns.
class RecordedCalls {
 public:
  /// (N, C, h, w), (N), (N, T, W), all in one place -> (N, C, h, w).
  using Network =
      std::function<torch::Tensor(const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_ntw)>;

  /// Of one shape by one thread, until the next is recorded: as few as recorded_denoiser pays for itself in (Painter::make_denoiser).
  static constexpr int64_t kLeastCalls = 12;
  /// As many as there are numbers of guided pictures in a call of `serve`. Memory is bounded by their sum, and is the largest one's where
  /// that comes first; beside it each holds its list of kernels.
  static constexpr size_t kMostRecordings = 8;

  explicit RecordedCalls(Network network);
  ~RecordedCalls();
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  /// The network's answer, in memory of its own.
  torch::Tensor call(const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_ntw);

  /// Forgets all shapes, which begin anew; whether one was recorded.
  bool let_go();

 private:
  struct Shape {
    std::thread::id asker;  // What a recording needs set up, a thread sets up for itself.
    std::vector<int64_t> noisy, states;
    bool operator==(const Shape&) const = default;
  };
  struct Recording;
  struct Known {
    Shape shape;
    int64_t num_calls = 0;
    std::unique_ptr<Recording> recording;  // Null until it pays.
  };

  Known& find(Shape shape);
  void record(Known& known, const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_ntw);
  void give_up(const std::string& reason);

  const Network network_;
  std::list<Known> known_;     // The one that was asked for last comes first.
  bool has_given_up_ = false;  // A recording could not be made.
};

}  // namespace darkroom
