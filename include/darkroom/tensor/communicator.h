#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tensor/progress_mark.h"
#include "darkroom/tensor/rank_place.h"

namespace darkroom {

/// What goes to, or comes from, another rank: a contiguous tensor, on the CPU or on the rank's GPU.
struct Transfer {
  int64_t peer = 0;
  torch::Tensor tensor;
};

/// The processes ("ranks") that train one network together. Every rank makes the same calls in the same order. The first failure is final:
/// each later call returns it, because nobody knows what the others have. Thread safety: none.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// Sends and receives at once and waits for all of it. What goes between two ranks arrives in the order of their lists; empty tensors
  /// take no part. On GPUs (join_gpus) it goes in the order of the current stream, for which nobody waits: a failure may show at a later
  /// call; one without transfers asks for it. REQUIRES: the peers are other ranks, with receives of these sizes; all tensors, here and
  /// there, are on CPUs or all on GPUs. Errors: kUnavailable (a rank is gone, or silent).
  virtual Status exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) = 0;
  /// Sums a tensor over the ranks in the library's own order, which depends on their number. Errors: as exchange().
  virtual Status all_reduce(const torch::Tensor& tensor) = 0;
  /// Bytes that exchange() has sent so far, to all peers together.
  virtual int64_t bytes_sent() const = 0;
  /// Where this rank says that it gets on, so that the others hear of it when it hangs; null: nobody asks.
  virtual ProgressMark* progress() { return nullptr; }
  /// The same ranks once more, by connections of their own, for another thread than this one's. All ranks call it together, with a name
  /// that no other twin of theirs has. Twins are for tensors on the CPU. A twin goes before this one does. Errors: kUnavailable (no
  /// connection).
  virtual Result<std::unique_ptr<Communicator>> twin(const std::string& name) = 0;
  /// Waits until all ranks are here, then watches them no longer: a rank may end now. Errors: as exchange().
  virtual Status finish() = 0;
};

/// The one rank of a run that is alone.
Communicator& lone_rank();

/// Gives every rank the tensor of rank `root`. Errors: as Communicator::exchange.
Status broadcast(Communicator& ranks, int64_t root, const torch::Tensor& tensor);
/// The same for a text of any length.
Result<std::string> broadcast_text(Communicator& ranks, int64_t root, const std::string& text);
/// Gives every rank all parts: parts[r] is rank r's and of the same size everywhere. Errors: as Communicator::exchange.
Status all_gather(Communicator& ranks, const std::vector<torch::Tensor>& parts);
/// Gives every rank one number of each, in the order of the ranks. Errors: as Communicator::exchange.
Result<std::vector<int64_t>> gather_numbers(Communicator& ranks, int64_t own);

struct GlooOptions {
  RankPlace place;
  std::string agreement;                ///< JSON object of what must be the same at all ranks.
  std::chrono::seconds arrival{300};    ///< How long ranks wait for each other at the start.
  std::chrono::seconds watchdog{30};    ///< A rank that gave no sign for so long is lost: dead, stopped or cut off.
  std::chrono::seconds progress{1800};  ///< A rank that gives signs of life but has not got on for so long (progress()) is lost, too.
  std::chrono::seconds longest{7200};   ///< Of one operation: rank 0 paints previews and writes checkpoints while the others wait.
  std::stop_token stop;                 ///< Ends the waiting for ranks that have not come yet.
  /// Called on a thread of its own when a rank is lost while this one may wait for it for ever: it ends the process. Empty: no watch.
  std::function<void(const std::string& what)> on_lost;
};

/// Joins the ranks by torch's Gloo over TCP. They meet at place.host:place.port, compare `agreement`, and connect.
/// Nothing is encrypted or authenticated: for private networks; with a loopback host only this machine can connect.
/// Errors: kInvalidArgument (place); kFailedPrecondition (another world size or agreement, naming the field); kUnavailable (nobody came,
/// or no connection); kCancelled (a stop at any rank, until all have come). All ranks that came get rank 0's error.
Result<std::unique_ptr<Communicator>> join_gloo(const GlooOptions& options);

struct GpuJoinOptions {
  int gpu = 0;                         ///< This rank's.
  std::chrono::seconds arrival{300};   ///< How long ranks wait for each other.
  std::chrono::seconds longest{7200};  ///< Of what one step exchanges: as GlooOptions has it.
  bool is_loopback = false;            ///< All ranks are on this machine, and nobody else is to connect.
  /// Called on a thread of its own when a connection fails, or `longest` is over, while this rank may wait for another for ever: it ends
  /// the process. Without it what was under way is given up, and the next call tells.
  std::function<void(const std::string& what)> on_lost;
};

/// The same ranks with a GPU each: tensors on GPUs go by NCCL, everything else as before. REQUIRES: ranks that are not alone;
/// resolve_device (device.h) gave the GPU's name. Errors: kUnavailable (no connection, a GPU of two ranks).
Result<std::unique_ptr<Communicator>> join_gpus(std::unique_ptr<Communicator> ranks, const GpuJoinOptions& options);

}  // namespace darkroom
