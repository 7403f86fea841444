#pragma once

#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

#include "darkroom/core/status.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/tensor/communicator.h"
#include "darkroom/tensor/device_event.h"
#include "gradient_sum.h"

namespace darkroom {

/// Sums gradients over the ranks while the last backward pass of a step goes on. The flat gradients are cut into pieces at parameters; a
/// piece whose parameters have all had their gradient added is summed (GradientSum::finish) by a thread of its own, which alone uses the
/// ranks meanwhile. All ranks take the pieces in one order: that in which rank 0's were complete in the first step, after which the sum is
/// made in one piece. Which order it is, and who is ready when, changes no bit. On a GPU that thread has a stream of its own, on which a
/// piece waits for the pass to have come so far; nothing of the pass may be replayed then, because a replay tells nobody how far it is.
/// Thread safety: none; backward() may call from any thread.
class GradientOverlap {
 public:
  /// Watches the gradients of the parameters until it is destroyed. The others outlive it.
  GradientOverlap(FlatParameters& parameters, GradientSum& sum, Communicator& ranks, int64_t bucket_elements);
  /// Gives up a pass that did not come to its end.
  ~GradientOverlap();
  GradientOverlap(const GradientOverlap&) = delete;
  GradientOverlap& operator=(const GradientOverlap&) = delete;

  /// The backward pass that follows is the step's last: each of its gradients is complete once it is added.
  void begin_last_pass();
  /// It is done. Waits until the sum is made; on a GPU what is asked of the current stream from now on does. Errors: those of the ranks.
  Status finish();

 private:
  class Hook;

  void cut_buckets(int64_t bucket_elements);
  void count_gradient(size_t bucket);
  void complete_all();
  void mark_ready(size_t bucket);
  bool wait_for(size_t bucket);
  Status sum_buckets();
  Status sum_on_own_stream();
  Status learn_order();

  FlatParameters& parameters_;
  GradientSum& sum_;
  Communicator& ranks_;
  std::vector<FlatRange> ranges_;
  std::vector<int64_t> num_parameters_;  // Of each bucket,
  std::vector<size_t> bucket_of_;        // and the bucket of each parameter.
  std::vector<int64_t> order_;           // That all ranks take; empty before the first step is done.
  std::future<Status> summing_;          // Under way in the last pass of a step.
  std::mutex mutex_;                     // Of what follows.
  std::condition_variable changed_;
  bool is_last_pass_ = false;
  bool is_given_up_ = false;
  std::vector<int64_t> missing_;    // Gradients of each bucket that are not complete.
  std::vector<int64_t> completed_;  // Buckets in the order in which they were.
  // On a GPU: how far the pass has to be for each bucket, and the sum's own stream. None on the CPU.
  std::vector<DeviceEvent> ready_;
  std::optional<c10::Stream> stream_;
};

}  // namespace darkroom
