#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>

#include "darkroom/image/picture_decoder.h"
#include "darkroom/stream/memory_budget.h"

namespace darkroom {

/// The memory in which the workers of a job decode pictures, in processes of their own or here: each takes what its picture needs
/// (image/decoding_memory.h), and holds nothing else that anybody waits for meanwhile. One that needs more than there is waits until no
/// other is decoded. Thread safety: any thread may call anything.
class DecodingBudget {
 public:
  explicit DecodingBudget(size_t limit_bytes) : memory_(limit_bytes) {}

  /// So many bytes (image/decoding_memory.h), for as long as the picture is decoded; of none at once. Empty when `stop` was requested
  /// first.
  std::optional<MemoryLease> acquire(size_t num_bytes, std::stop_token stop);

  const MemoryBudget& memory() const { return memory_; }

 private:
  MemoryBudget memory_;
};

/// A decoder whose calls wait for their memory; kCancelled when `stop` is requested first. What its limits refuse by the header waits for
/// nothing. `budget` outlives it.
std::unique_ptr<PictureDecoder> decoder_within(DecodingBudget& budget, std::unique_ptr<PictureDecoder> decoder, std::stop_token stop);

}  // namespace darkroom
