#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"

namespace darkroom {

// Spans of a job in the words of OpenTelemetry, written to a file while the job runs (docs/metrics.md, Traces). A span is a name, a begin
// and an end; spans of one trace (an item's life, a training step) hang together by their parents.

/// Which span: none where `span` is 0.
struct SpanContext {
  uint64_t trace_high = 0;
  uint64_t trace_low = 0;
  uint64_t span = 0;

  bool operator==(const SpanContext&) const = default;
};

using SpanValue = std::variant<int64_t, double, std::string>;
using SpanAttributes = std::vector<std::pair<std::string, SpanValue>>;

/// A span that has ended.
struct Span {
  std::string name;
  SpanContext context;
  uint64_t parent = 0;  ///< A span of the same trace; 0: the first one.
  Clock::Instant begin;
  Clock::Instant end;
  SpanAttributes attributes = {};
  std::string failure = {};  ///< Why what it tells of failed; empty: it did not.
  bool is_on_thread = true;  ///< One thread was at it from begin to end, and at nothing else but spans within.
};

struct TraceOptions {
  std::string path = {};            ///< Local; replaced. Its ending chooses the form (chooses_chrome_form).
  SpanAttributes resource = {};     ///< Of the process.
  int64_t max_bytes = 256'000'000;  ///< Of the file; spans after it are left out and counted.
  size_t batch_spans = 256;         ///< That are kept before they are written: a second's at most, while spans come.
  uint64_t seed = 0;                ///< Of the identifiers; 0: one that differs from process to process.
  Clock* clock = &system_clock();   ///< Outlives the recorder.
};

/// Whether a file is written as trace events of Chrome and Perfetto (`.trace.json`, `.perfetto.json`) instead of as OTLP's JSON lines.
bool chooses_chrome_form(std::string_view path);

/// Takes spans and writes them in batches, each with one write: after a kill the file holds whole batches and at most one torn line at its
/// end. What cannot be written ends the recording, not the job. Thread safety: any thread.
class TraceRecorder {
 public:
  /// Errors: kNotFound, kFailedPrecondition, kResourceExhausted: the file cannot be made.
  static Result<std::unique_ptr<TraceRecorder>> open(TraceOptions options);
  /// As finish().
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  /// A span of a trace of its own, or of the trace of `parent` where that is a span.
  SpanContext make_context(const SpanContext& parent = {});
  Clock::Instant now() const { return options_.clock->now(); }
  void record(Span span);

  /// Writes what is kept, and the end of the form. Later spans are left out. Errors: the first write that failed.
  Status finish();
  /// Spans that were left out: past the file's limit, or after a failure.
  int64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }

 private:
  TraceRecorder(TraceOptions options, int descriptor);
  int64_t unix_nanoseconds(Clock::Instant instant) const;
  std::string otlp_line() const;
  std::string chrome_events(const Span& span, int64_t thread);
  void write_batch();
  void write_text(std::string_view text);

  const TraceOptions options_;
  const bool is_chrome_;
  const int descriptor_;
  const Clock::Instant began_ = options_.clock->now();
  const int64_t wall_began_;  // Unix nanoseconds: dates that jump later change no span's length.
  const uint64_t seed_;
  std::atomic<uint64_t> num_contexts_ = 0;
  std::atomic<int64_t> num_dropped_ = 0;

  std::mutex mutex_;  // Of all below.
  std::vector<std::pair<Span, int64_t>> batch_;
  std::set<int64_t> named_threads_;
  Clock::Instant batch_began_{};
  int64_t num_bytes_ = 0;
  Status failure_;
  bool is_finished_ = false;
};

/// A span from its making to its end, on this thread. Of a null recorder it does nothing. Thread safety: one thread.
class TraceSpan {
 public:
  TraceSpan(TraceRecorder* recorder, const char* name, const SpanContext& parent = {}) : recorder_(recorder) {
    if (recorder_ != nullptr) {
      begin(name, parent);
    }
  }
  ~TraceSpan() { end(); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  void set(const char* key, SpanValue value) {
    if (recorder_ != nullptr) {
      span_.attributes.emplace_back(key, std::move(value));
    }
  }
  void fail(const Status& status) {
    if (recorder_ != nullptr && !status.is_ok()) {
      span_.failure = status.message();
    }
  }
  const SpanContext& context() const { return span_.context; }
  Clock::Instant began() const { return span_.begin; }
  void end() {
    if (recorder_ != nullptr) {
      span_.end = recorder_->now();
      std::exchange(recorder_, nullptr)->record(std::move(span_));
    }
  }

 private:
  void begin(const char* name, const SpanContext& parent);

  TraceRecorder* recorder_;
  Span span_{};
};

}  // namespace darkroom
