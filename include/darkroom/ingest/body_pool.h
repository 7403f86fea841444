#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "darkroom/core/body_memory.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/files/scratch.h"

namespace darkroom {

/// Bytes that a BodyPool has put on disk. Gives their place back when destroyed; move-only. The pool must outlive it.
/// Thread safety: one owner at a time.
class SpilledBody {
 public:
  SpilledBody() = default;
  SpilledBody(SpilledBody&& other) noexcept;
  SpilledBody& operator=(SpilledBody&& other) noexcept;
  ~SpilledBody() { discard(); }

  bool is_on_disk() const { return scratch_ != nullptr; }
  int64_t num_bytes() const { return place_.num_bytes; }
  void discard();

 private:
  friend class BodyPool;
  ScratchFiles* scratch_ = nullptr;
  ScratchFiles::Place place_ = {};
};

/// Bodies that wait for the pieces before them: in memory as long as there is plenty, else in scratch files. Waits for nothing, and lack of
/// room is no failure: where there is no disk, or it is full or broken, bodies stay in the memory that they were granted, so that fewer are
/// admitted (BodyMemory) until some have been written.
/// Thread safety: any thread may call anything.
class BodyPool {
 public:
  /// `memory` outlives the pool. Without `scratch` nothing is spilled.
  explicit BodyPool(BodyMemory& memory, std::unique_ptr<ScratchFiles> scratch = nullptr) : memory_(memory), scratch_(std::move(scratch)) {}

  enum class Kept {
    kMemory,   ///< It stays, because there is plenty of memory (three quarters of the limit are not used, and nobody asks for any).
    kScratch,  ///< Its bytes are on disk, `body` is empty and its memory is given back.
    kNoRoom,   ///< It stays, because there is no room on a disk.
  };
  /// For a body that waits for other pieces; one that only waits for its writer's turn had better stay. `lease`: the body's stay in
  /// memory().
  Kept keep(std::string& body, BodyLease& lease, SpilledBody& spilled);
  /// Puts the bytes back into `body`, over the limit: a writer does this with one body at a time. Gives the place on disk back.
  /// Errors: kUnavailable; the bytes are lost, and fetching them again is a new run's.
  Status load(SpilledBody& spilled, std::string& body);

  BodyMemory& memory() { return memory_; }
  int64_t num_spilled() const { return num_spilled_; }  ///< Bodies so far.
  int64_t scratch_used_bytes() const { return scratch_ == nullptr ? 0 : scratch_->used_bytes(); }

 private:
  bool has_plenty() const;

  BodyMemory& memory_;
  const std::unique_ptr<ScratchFiles> scratch_;
  std::atomic<int64_t> num_spilled_ = 0;
  std::atomic<bool> is_broken_ = false;  // The disk failed: nothing more is written to it.
  std::atomic<bool> was_full_ = false;   // Said once.
};

/// Bytes that wait in a job (docs/metrics.md: darkroom_queue_bytes), read at each scrape. `pool` may be null; both outlive it.
MetricsRegistry::Collection collect_queue_bytes(MetricsRegistry& metrics, const BodyMemory& intake, BodyPool* pool);

}  // namespace darkroom
