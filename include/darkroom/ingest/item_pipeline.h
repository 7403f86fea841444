#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/body_memory.h"
#include "darkroom/core/check.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/core/trace_recorder.h"
#include "darkroom/ingest/body_pool.h"
#include "darkroom/ingest/open_items.h"
#include "darkroom/stream/bounded_queue.h"
#include "darkroom/stream/pipeline.h"

namespace darkroom {

// The one loop of both jobs: items are read, their pieces (rows of download, batches of process) go through a middle that may finish them
// in any order, are written in order, item by item and side by side, and each item is committed.
//
//   readers (R) -> read -> middle -> done -> order (1) -> OpenItems -> writers (W) -> finished -> commit (1)

/// Where the spans of an item belong; without a recorder there are none.
struct ItemTrace {
  TraceRecorder* recorder = nullptr;
  SpanContext context = {};    ///< Of the item's own span.
  Clock::Instant began = {};   ///< When a reader asked for the item.
  int64_t piece_interval = 1;  ///< Pieces at multiples of it have spans.

  /// Null: this piece has none.
  TraceRecorder* for_piece(int64_t position) const { return recorder != nullptr && position % piece_interval == 0 ? recorder : nullptr; }
};

/// An item that is being worked on. A job derives its own from it. Shared by its pieces, its reader and its writer.
class ItemInWork {
 public:
  virtual ~ItemInWork() = default;
  ItemInWork(const ItemInWork&) = delete;
  ItemInWork& operator=(const ItemInWork&) = delete;

  /// What the item's span says of it.
  virtual SpanAttributes describe() const { return {}; }

  ItemTrace trace;  ///< Set before the first piece.

 protected:
  ItemInWork() = default;
};

/// What a writer made of an item: complete, and not visible before it is published. Destroyed unpublished it takes everything back.
class FinishedItem {
 public:
  virtual ~FinishedItem() = default;
  /// What the item's span says of it.
  virtual SpanAttributes describe() const { return {}; }
};

/// Which items there are to do, and how one is committed: what the loop needs of a job's plan and claims.
class ItemSource {
 public:
  virtual ~ItemSource() = default;
  /// The next item to work on; null: there is none left. May wait for other processes; obeys `stop`. Called by the readers at once.
  virtual Result<std::shared_ptr<ItemInWork>> next(std::stop_token stop) = 0;
  /// Publishes what was finished. Called by one thread, in the order in which items were finished.
  virtual Status commit(ItemInWork& item, std::unique_ptr<FinishedItem> finished) = 0;
};

/// A part of an item on its way from its reader to its writer. Move-only. Members are destroyed bottom up: the body before its leases.
template <typename Body>
struct ItemPiece {
  std::shared_ptr<ItemInWork> item;
  uint64_t item_number = 0;  ///< Items are numbered as they are opened.
  int64_t position = 0;      ///< Within the item: 0, 1, 2, ...
  Clock::Instant sent = {};  ///< When a fetcher took it over, where it has spans.
  BodyLease intake = {};     ///< What was admitted by the reader.
  BodyLease bodies = {};     ///< What a fetcher was granted (in BodyPool::memory()); no stay where the job has no pool.
  SpilledBody spilled = {};
  Body body = {};

  /// Of both leases, and of the requests made for it: ascending by item, then by position.
  uint64_t order() const { return order_of(item_number, position); }
  static uint64_t order_of(uint64_t item_number, int64_t position) {
    DARKROOM_CHECK(item_number < (uint64_t{1} << 32) && position >= 0 && position < (int64_t{1} << 32),
                   "an item or a piece too many (item, position):", item_number, position);
    return (item_number << 32) + static_cast<uint64_t>(position);
  }
};

/// A reader's way to hand over the pieces of one item. Thread safety: one reader.
template <typename Body>
class ItemIntake {
 public:
  using Piece = ItemPiece<Body>;

  ItemIntake(std::shared_ptr<ItemInWork> item, uint64_t item_number, BodyMemory& intake, BodyPool* pool, Emitter<Piece>& out)
      : item_(std::move(item)), item_number_(item_number), intake_(intake), pool_(pool), out_(out) {}

  const std::shared_ptr<ItemInWork>& item() const { return item_; }
  /// Has `bytes` more admitted for the next piece; waits while the pieces inside hold too much, unless this is the oldest of them. May be
  /// called while a piece is put together, before each part of it. Errors: kCancelled.
  Status admit(size_t bytes) {
    if (!lease_.is_inside()) {
      lease_ = BodyLease(intake_, Piece::order_of(item_number_, next_position_));
    }
    const bool is_admitted = out_.waiting([&] { return intake_.wait_for(lease_.order(), bytes, out_.stop()); });
    return is_admitted ? Status() : Status::cancelled("stopped while reading an item");
  }
  /// Says how many bytes the reader itself holds while it reads (a page that it takes rows out of), beside its pieces: they count with the
  /// piece that is put together, then with the next one. Waits for more as admit() does; fewer are given back. Errors: kCancelled.
  Status keep(size_t bytes) {
    if (bytes > kept_bytes_) {
      DARKROOM_RETURN_IF_ERROR(admit(bytes - kept_bytes_));
    } else if (bytes < kept_bytes_) {
      lease_.set_held(lease_.held_bytes() - (kept_bytes_ - bytes));
    }
    kept_bytes_ = bytes;
    return {};
  }
  /// Hands the next piece over with what was admitted for it. Errors: kCancelled.
  Status emit(Body body) {
    Piece piece{
        .item = item_, .item_number = item_number_, .position = next_position_++, .intake = std::move(lease_), .body = std::move(body)};
    if (kept_bytes_ > 0) {
      lease_ = BodyLease(intake_, Piece::order_of(item_number_, next_position_));
      lease_.set_held(kept_bytes_);
      piece.intake.set_held(piece.intake.held_bytes() - kept_bytes_);
    }
    if (pool_ != nullptr) {
      piece.bodies = BodyLease(pool_->memory(), piece.order());
    }
    return out_.emit(std::move(piece));
  }
  int64_t num_pieces() const { return next_position_; }
  void count(int64_t num_rows, int64_t num_bytes) { out_.count(num_rows, num_bytes); }
  const std::stop_token& stop() const { return out_.stop(); }

 private:
  const std::shared_ptr<ItemInWork> item_;
  const uint64_t item_number_;
  BodyMemory& intake_;
  BodyPool* const pool_;
  Emitter<Piece>& out_;
  BodyLease lease_;        // Of the piece that is put together, and of kept_bytes_.
  size_t kept_bytes_ = 0;  // Where there are some, lease_ is inside.
  int64_t next_position_ = 0;
};

/// Reads items, one after the other: one worker's, kept for all of its items.
template <typename Body>
class ItemReader {
 public:
  virtual ~ItemReader() = default;
  /// Hands over all pieces of intake.item(), in order.
  virtual Status read(ItemIntake<Body>& intake) = 0;
};

/// Writes one item. Thread safety: one thread at a time. Destroyed before finish(): nothing of it is visible.
template <typename Body>
class ItemWriter {
 public:
  virtual ~ItemWriter() = default;
  /// The pieces in the order of their positions. What it keeps of a body is its own memory: the piece's is given back when this returns, so
  /// that the next piece can always come.
  virtual Status add(int64_t position, Body body) = 0;
  /// After the last piece; there may have been none.
  virtual Result<std::unique_ptr<FinishedItem>> finish() = 0;
};

/// What the two jobs do differently.
template <typename Body>
struct ItemJob {
  using Piece = ItemPiece<Body>;

  std::function<Result<std::unique_ptr<ItemReader<Body>>>(int worker)> make_reader;
  /// Adds the stages between `read` and `done`. Each piece that comes must go on, once, without waiting for a later one (the later one may
  /// wait for its memory). A fetcher's own bound on the number of requests must not bind where there are several readers.
  std::function<void(Pipeline& pipeline, BoundedQueue<Piece>& read, BoundedQueue<Piece>& done)> add_middle;
  std::function<Result<std::unique_ptr<ItemWriter<Body>>>(const std::shared_ptr<ItemInWork>& item)> open_writer;
  /// The bytes of a body that waits, which may go to disk meanwhile; may be null, and null for a body that never has any. Of a body whose
  /// bytes are on disk it gives where they come back to.
  std::function<std::string*(Body&)> spillable = {};
  /// Rows of a body; null: each is one.
  std::function<int64_t(const Body&)> num_rows = {};
  /// Waits until the middle has use for more pieces than it was given, before another item is asked for: an item that is taken is no other
  /// process's any more. Null: it always has. Errors end the run.
  std::function<Status()> wait_for_demand = {};
};

struct ItemPipelineOptions {
  int num_readers = 1;
  int num_writers = 2;
  size_t max_open_items = 256;        ///< Read and not finished; what they hold is bounded in bytes besides.
  size_t max_started_items = 8;       ///< With a writer, which costs memory (OpenItems).
  size_t queue_pieces = 64;           ///< In each queue between stages.
  TraceRecorder* trace = nullptr;     ///< Of the items' spans; null: none. Outlives the run.
  int64_t traced_piece_interval = 1;  ///< Of an item, pieces at multiples of it have spans, too.
};

/// Runs a job's items. The first failure wins and ends it (Pipeline); what was committed stays, nothing else is visible. A thread that
/// cannot be started ends it with kResourceExhausted.
/// Thread safety: built and executed by one thread; snapshots() and the numbers by any.
template <typename Body>
class ItemRun {
 public:
  using Piece = ItemPiece<Body>;

  /// All that is given by reference outlives the run. `intake` bounds what readers have admitted; `pool` (null: none) holds the bodies that
  /// come later. `metrics` may be null.
  ItemRun(ItemSource& source, ItemJob<Body> job, BodyMemory& intake, BodyPool* pool, const ItemPipelineOptions& options,
          MetricsRegistry* metrics, std::stop_token stop)
      : source_(source),
        job_(std::move(job)),
        intake_(intake),
        pool_(pool),
        options_(options),
        items_(options.max_open_items, options.max_started_items),
        read_(options.queue_pieces),
        done_(options.queue_pieces),
        finished_(2 * static_cast<size_t>(options.num_writers)),
        pipeline_(std::move(stop), metrics),
        queue_bytes_(metrics == nullptr ? std::nullopt : std::optional(collect_queue_bytes(*metrics, intake, pool))) {
    add_stages();
  }
  ItemRun(const ItemRun&) = delete;
  ItemRun& operator=(const ItemRun&) = delete;

  /// REQUIRES: called once.
  Status execute() { return pipeline_.run(); }

  /// Requested at the stop from outside or by the first failure.
  std::stop_token stop_token() const { return pipeline_.stop_token(); }
  std::vector<StageSnapshot> snapshots() const { return pipeline_.snapshots(); }
  int64_t num_committed() const { return num_committed_.value(); }
  /// Pieces in queues and waiting for those before them.
  size_t num_waiting() const {
    const std::lock_guard hold(mutex_);
    return read_.size() + done_.size() + items_.num_waiting();
  }

 private:
  /// An open item and its writer, which is its current turn's.
  struct Entry {
    std::shared_ptr<ItemInWork> item;
    std::unique_ptr<ItemWriter<Body>> writer = nullptr;
    int64_t num_rows = 0;  // That were written.
  };
  struct Finished {
    std::shared_ptr<ItemInWork> item;
    int64_t num_rows;
    std::unique_ptr<FinishedItem> finished;
  };
  using Turn = typename OpenItems<Piece>::Turn;

  void add_stages() {
    pipeline_.add_source<Piece>(
        "read", options_.num_readers, [this](int worker, Emitter<Piece>& out) { return read_items(worker, out); }, read_);
    job_.add_middle(pipeline_, read_, done_);
    pipeline_.add_sink<Piece>(
        "order", [this](Piece piece, StageStats& stats) { return order(std::move(piece), stats); }, done_,
        [this] { return end_of_pieces(); });
    pipeline_.add_source<Finished>(
        "write", options_.num_writers, [this](int, Emitter<Finished>& out) { return write_items(out); }, finished_);
    pipeline_.add_sink<Finished>(
        "commit", [this](Finished item, StageStats& stats) { return commit(std::move(item), stats); }, finished_);
  }

  int64_t rows_of(const Piece& piece) const { return job_.num_rows ? job_.num_rows(piece.body) : 1; }

  // Reading.

  Status read_items(int worker, Emitter<Piece>& out) {
    DARKROOM_ASSIGN_OR_RETURN(const auto reader, job_.make_reader(worker));
    while (true) {
      // The place first, so that an item that was taken is begun at once.
      if (!out.waiting([&] { return wait_for_place(out.stop()); })) {
        return Status::cancelled("stopped before an item");
      }
      if (job_.wait_for_demand) {
        DARKROOM_RETURN_IF_ERROR(out.waiting([&] { return job_.wait_for_demand(); }));
      }
      const Clock::Instant asked = options_.trace == nullptr ? Clock::Instant() : options_.trace->now();
      DARKROOM_ASSIGN_OR_RETURN(auto item, out.starving([&] { return source_.next(out.stop()); }));
      if (item == nullptr) {
        give_place_back();
        return Status();
      }
      begin_trace(*item, asked);
      const uint64_t number = open(item);
      ItemIntake<Body> intake(std::move(item), number, intake_, pool_, out);
      TraceSpan span(options_.trace, "read", intake.item()->trace.context);
      const Status read = reader->read(intake);
      span.set("pieces", intake.num_pieces());
      span.fail(read);
      span.end();  // Within the item's, which may end as soon as the last piece is known.
      DARKROOM_RETURN_IF_ERROR(read);
      end(number, intake.num_pieces());
    }
  }
  void begin_trace(ItemInWork& item, Clock::Instant asked) const {
    TraceRecorder* const trace = options_.trace;
    if (trace == nullptr) {
      return;
    }
    item.trace = {.recorder = trace, .context = trace->make_context(), .began = asked, .piece_interval = options_.traced_piece_interval};
    trace->record({.name = "claim",
                   .context = trace->make_context(item.trace.context),
                   .parent = item.trace.context.span,
                   .begin = asked,
                   .end = trace->now()});
  }
  bool wait_for_place(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [&] { return items_.num_open() + num_places_ < options_.max_open_items; })) {
      return false;
    }
    ++num_places_;
    return true;
  }
  void give_place_back() {
    const std::lock_guard hold(mutex_);
    --num_places_;
    changed_.notify_all();
  }
  uint64_t open(const std::shared_ptr<ItemInWork>& item) {
    const std::lock_guard hold(mutex_);
    --num_places_;
    const uint64_t number = items_.open();
    entries_.emplace(number, Entry{.item = item});
    return number;
  }
  void end(uint64_t number, int64_t num_pieces) {
    const std::lock_guard hold(mutex_);
    items_.end(number, num_pieces);
    changed_.notify_all();
  }

  // Bringing into order.

  Status order(Piece piece, StageStats& stats) {
    const uint64_t number = piece.item_number;
    const int64_t position = piece.position;
    std::string* const bytes = pool_ != nullptr && job_.spillable ? job_.spillable(piece.body) : nullptr;
    stats.count(rows_of(piece), bytes == nullptr ? 0 : static_cast<int64_t>(bytes->size()));
    if (bytes != nullptr && would_wait(number, position)) {
      pool_->keep(*bytes, piece.bodies, piece.spilled);
    }
    const std::lock_guard hold(mutex_);
    items_.arrive(number, position, std::move(piece));
    changed_.notify_all();
    return {};
  }
  bool would_wait(uint64_t number, int64_t position) const {
    const std::lock_guard hold(mutex_);
    return items_.would_wait(number, position);
  }
  Status end_of_pieces() {
    const std::lock_guard hold(mutex_);
    if (const auto cut = items_.first_cut()) {
      return Status::internal("pieces were lost between their reader and their writer (item of this run, first piece):", cut->first,
                              cut->second);
    }
    all_arrived_ = true;
    changed_.notify_all();
    return {};
  }

  // Writing.

  Status write_items(Emitter<Finished>& out) {
    while (true) {
      Entry* entry = nullptr;
      std::optional<Turn> turn = out.starving([&] { return take(out.stop(), entry); });
      if (!turn) {
        return out.stop().stop_requested() ? Status::cancelled("stopped while writing") : Status();
      }
      if (entry->writer == nullptr) {
        DARKROOM_ASSIGN_OR_RETURN(entry->writer, job_.open_writer(entry->item));
      }
      if (turn->piece) {
        const int64_t num_rows = rows_of(*turn->piece);
        DARKROOM_RETURN_IF_ERROR(write(*entry->writer, *std::move(turn->piece)));
        entry->num_rows += num_rows;
        out.count(num_rows, 0);
        end_turn(turn->item);
      } else {
        TraceSpan span(options_.trace, "finish", entry->item->trace.context);
        DARKROOM_ASSIGN_OR_RETURN(auto finished, entry->writer->finish());
        span.end();
        entry->writer.reset();
        const int64_t num_rows = entry->num_rows;
        DARKROOM_RETURN_IF_ERROR(out.emit({close(turn->item), num_rows, std::move(finished)}));
      }
    }
  }
  /// The next turn, and the item's entry; nullopt: there will be none, or a stop.
  std::optional<Turn> take(std::stop_token stop, Entry*& entry) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [&] { return items_.has_turn() || (all_arrived_ && items_.num_open() == 0); }) ||
        stop.stop_requested()) {
      return std::nullopt;
    }
    std::optional<Turn> turn = items_.take();
    if (turn) {
      entry = &entries_.at(turn->item);  // Stays where it is until close().
    }
    return turn;
  }
  Status write(ItemWriter<Body>& writer, Piece piece) {
    if (piece.spilled.is_on_disk()) {
      DARKROOM_RETURN_IF_ERROR(pool_->load(piece.spilled, *job_.spillable(piece.body)));
    }
    TraceSpan span(piece.item->trace.for_piece(piece.position), "write", piece.item->trace.context);
    span.set("piece", piece.position);
    return writer.add(piece.position, std::move(piece.body));
  }
  void end_turn(uint64_t number) {
    const std::lock_guard hold(mutex_);
    items_.end_turn(number);
    changed_.notify_all();
  }
  std::shared_ptr<ItemInWork> close(uint64_t number) {
    const std::lock_guard hold(mutex_);
    items_.close(number);
    changed_.notify_all();
    return std::move(entries_.extract(number).mapped().item);
  }

  Status commit(Finished item, StageStats& stats) {
    const ItemTrace& trace = item.item->trace;
    SpanAttributes attributes = trace.recorder == nullptr ? SpanAttributes() : item.finished->describe();
    TraceSpan span(trace.recorder, "commit", trace.context);
    const Status committed = source_.commit(*item.item, std::move(item.finished));
    span.fail(committed);
    span.end();
    if (trace.recorder != nullptr) {
      end_trace(*item.item, std::move(attributes), committed);
    }
    DARKROOM_RETURN_IF_ERROR(committed);
    stats.count(item.num_rows, 0);
    num_committed_.add();
    return {};
  }
  /// The item's own span, from the claim to the commit.
  static void end_trace(const ItemInWork& item, SpanAttributes of_part, const Status& committed) {
    Span span{.name = "item", .context = item.trace.context, .begin = item.trace.began, .end = item.trace.recorder->now()};
    span.attributes = item.describe();
    std::move(of_part.begin(), of_part.end(), std::back_inserter(span.attributes));
    span.failure = committed.message();
    span.is_on_thread = false;
    item.trace.recorder->record(std::move(span));
  }

  ItemSource& source_;
  const ItemJob<Body> job_;
  BodyMemory& intake_;
  BodyPool* const pool_;
  const ItemPipelineOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  OpenItems<Piece> items_;  // Guarded by mutex_, like all below up to the queues.
  std::map<uint64_t, Entry> entries_;
  size_t num_places_ = 0;  // Of readers that ask for an item.
  bool all_arrived_ = false;

  Counter num_committed_;
  BoundedQueue<Piece> read_;
  BoundedQueue<Piece> done_;
  BoundedQueue<Finished> finished_;
  Pipeline pipeline_;
  std::optional<MetricsRegistry::Collection> queue_bytes_;
};

}  // namespace darkroom
