#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>

namespace darkroom {

/// The bytes that the pieces of one job may hold together: bodies that arrive, and bodies that wait for the pieces before them.
///
/// A piece is known by its order, its place in the job: smaller ones leave earlier. It enters (holding nothing) when it is admitted to the
/// job, asks for bytes as it learns its size, and leaves when it has been written. Bytes go to the oldest piece that asks, never past it to
/// a younger one. The oldest piece inside always gets what it asks for, over the limit if need be: so it can finish, leave, and hand that
/// right on. Where orders enter ascending, used_bytes() without what the oldest piece holds never exceeds the limit (growth by set_held()
/// aside); each entry that is older than the oldest inside, as a second reader makes them, adds one piece to that.
///
/// This never blocks for ever as long as its users keep two rules. Whoever got what it asked for can finish without anything that a waiting
/// piece holds. Whoever waits holds nothing that an older piece needs (a place of a host, a slot of a writer), or gives it back after a
/// bounded time: withdraw(), set_held(order, 0), and ask again later, for its full size at once.
///
/// Lives in core because both the fetcher (io) and the pipelines (stream) take from it. Cost: O(log pieces) a call.
/// Thread safety: any thread may call anything.
class BodyMemory {
 public:
  explicit BodyMemory(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  BodyMemory(const BodyMemory&) = delete;
  BodyMemory& operator=(const BodyMemory&) = delete;

  /// Announces a piece. REQUIRES: no piece of this order is inside.
  void enter(uint64_t order);
  /// Ends it: what it holds is given back, what it asked for is forgotten. REQUIRES: it is inside, as for all below.
  void leave(uint64_t order);

  enum class Answer {
    kGranted,  ///< The piece holds `more_bytes` more; the callback is dropped.
    kQueued,   ///< The callback will be called when it does.
  };
  /// Asks for bytes beyond those held. `granted` is called once, by the thread that made room, while this object is locked: it may only
  /// pass the word on (set a flag, post to a queue, notify), must not call this object and must not throw. REQUIRES: the piece asks for
  /// nothing yet.
  [[nodiscard]] Answer ask(uint64_t order, size_t more_bytes, std::function<void()> granted);
  /// Forgets what the piece asked for; what it holds it keeps. When this returns, the callback has run to its end or never will. False: it
  /// had been granted (or nothing had been asked).
  bool withdraw(uint64_t order);
  /// As ask(), and waits for the grant. False, and nothing is granted, when `stop` was requested first.
  [[nodiscard]] bool wait_for(uint64_t order, size_t more_bytes, std::stop_token stop);
  /// Corrects what the piece holds to what it really holds: 0 when its bytes are gone. Never waits, also not to grow.
  void set_held(uint64_t order, size_t bytes);

  size_t limit_bytes() const { return limit_bytes_; }
  size_t used_bytes() const;
  size_t peak_bytes() const;  ///< The most that was ever held at once.
  size_t held_bytes(uint64_t order) const;
  size_t num_inside() const;
  size_t num_waiting() const;              ///< Pieces that ask.
  std::optional<uint64_t> oldest() const;  ///< Of the pieces inside.

 private:
  struct Question {
    size_t more_bytes;
    std::function<void()> granted;
  };

  size_t& held_by(uint64_t order);
  Answer ask_locked(uint64_t order, size_t more_bytes, std::function<void()> granted);
  void add(size_t& held, size_t bytes);
  void grant();

  const size_t limit_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable_any granted_;  // To those within wait_for().
  std::map<uint64_t, size_t> held_;      // By order: pieces inside. Guarded by mutex_, like all below.
  std::map<uint64_t, Question> asking_;  // The first one cannot be granted now.
  size_t used_bytes_ = 0;                // Sum of held_.
  size_t peak_bytes_ = 0;
};

/// A piece's stay in a BodyMemory: enters with it, leaves when destroyed. Travels with the piece; move-only.
/// Thread safety: one owner at a time. The memory must outlive it.
class BodyLease {
 public:
  BodyLease() = default;
  BodyLease(BodyMemory& memory, uint64_t order) : memory_(&memory), order_(order) { memory.enter(order); }
  BodyLease(BodyLease&& other) noexcept;
  BodyLease& operator=(BodyLease&& other) noexcept;
  ~BodyLease() { leave(); }

  bool is_inside() const { return memory_ != nullptr; }
  uint64_t order() const { return order_; }
  /// Of a lease that has left: nothing, and nothing happens.
  size_t held_bytes() const { return memory_ == nullptr ? 0 : memory_->held_bytes(order_); }
  void set_held(size_t bytes);
  void leave();

 private:
  BodyMemory* memory_ = nullptr;
  uint64_t order_ = 0;
};

}  // namespace darkroom
