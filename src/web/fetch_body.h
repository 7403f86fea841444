#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "darkroom/core/body_memory.h"
#include "darkroom/core/row_error.h"
#include "darkroom/web/http_exchange.h"
#include "darkroom/web/opt_out.h"
#include "fetch_inbox.h"

namespace darkroom {

/// What all bodies of a fetcher share. Outlives them.
struct FetchBodyRules {
  int64_t max_body_bytes = 0;
  OptOutRules respect;
  std::string agent;          ///< Our product token.
  bool may_be_short = false;  ///< A longer body is cut, which is no failure.
  BodyMemory& memory;
  std::shared_ptr<FetchInbox> inbox;
};

/// Takes the answer to one attempt: the body into memory that it was granted, or why there is none. It asks for its Content-Length, but for
/// no more than 1 MiB or four times what it has; else for twice what it has; and pauses the exchange until that is granted; then the inbox
/// gets a BytesGranted.
/// Thread safety: HttpSink's calls by the loop's thread; take_progress(), is_paused() and return_unused() by the fetch thread; the rest
/// when the exchange has ended.
class FetchBody final : public HttpSink {
 public:
  /// The memory knows the body as `order`, which is inside; `attempt` is told to the inbox.
  FetchBody(const FetchBodyRules& rules, uint64_t order, uint64_t attempt) : rules_(rules), order_(order), attempt_(attempt) {}

  /// Asks for the first bytes, before the exchange begins.
  void expect(int64_t num_bytes);
  /// Instead, where it holds so many already.
  void begin_with(int64_t num_bytes) { granted_ = num_bytes; }

  Want headers(const HttpHead& head) override;
  Take bytes(std::span<const std::byte> piece) override;

  /// Whether 1 KiB has come since this last said so, or the state is another one.
  bool take_progress();
  bool is_paused() const { return is_paused_; }
  /// Gives back the bytes that have not come, unless it waits for some: they are asked for again when more come.
  void return_unused();
  /// Why this has ended the exchange.
  const std::optional<RowError>& stopped() const { return stopped_; }
  /// What it has or has asked for.
  int64_t wanted_bytes() const { return granted_; }
  /// Whether it has all that it may be of a longer body.
  bool is_cut() const { return is_cut_; }
  std::string take_bytes() { return std::move(body_); }
  std::chrono::nanoseconds paused() const;

 private:
  bool has_room_for(int64_t num_bytes);
  void append(std::span<const std::byte> piece);
  void ask_for(int64_t num_bytes);
  int64_t next_size(int64_t num_bytes) const;

  const FetchBodyRules& rules_;
  const uint64_t order_;
  const uint64_t attempt_;
  std::string body_;
  std::optional<RowError> stopped_;
  bool is_cut_ = false;
  int64_t content_length_ = -1;
  int64_t granted_ = 0;  // When nothing is pending; else what will be.
  std::chrono::nanoseconds paused_{0};
  std::optional<std::chrono::steady_clock::time_point> paused_since_;

  std::mutex mutex_;                     // Of bytes() and return_unused().
  std::atomic<bool> is_pending_{false};  // Bytes up to granted_ are asked for.
  std::atomic<bool> is_paused_{false};
  std::atomic<int64_t> num_bytes_{0};
  std::atomic<int> num_states_{0};
  int64_t bytes_seen_ = 0;  // Of take_progress(), like states_seen_.
  int states_seen_ = 0;
};

}  // namespace darkroom
