#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/body_memory.h"
#include "darkroom/ingest/body_pool.h"
#include "darkroom/ingest/open_items.h"
#include "darkroom/web/host_scheduler.h"

namespace darkroom {

/// A download in one thread: the real HostScheduler, BodyMemory, BodyPool and OpenItems; toy readers, network, workers and writers. Which
/// of them moves next, what each row is and how long everything takes is drawn from the seed. It shows the rules by which a fetcher and a
/// pipeline use these objects together, and that no order of events breaks them.
class World {
 public:
  /// A mistake that the simulation must find.
  enum class Fault {
    kNone,
    kWaitsForEver,    ///< A transfer that waits for memory keeps the place of its host.
    kHoldsItsPlace,   ///< It also keeps the fetcher's place.
    kSleepsThrough,   ///< The fetcher is not woken by bytes that were granted.
    kLosesPiece,      ///< One that was spilled does not go on.
    kMixesUpBodies,   ///< What is read back from the disk is another piece's.
    kGrantsToItself,  ///< A transfer takes memory without asking.
  };

  World(uint64_t seed, const std::string& scratch_folder, Fault fault = Fault::kNone) : random_(seed), seed_(seed), fault_(fault) {
    draw(scratch_folder);
  }

  /// Runs until every item is committed, or to the stop that was drawn. Throws what went wrong.
  void run() {
    for (int step = 0; num_committed_ < items_.size(); ++step) {
      if (step == stop_at_) {
        return;
      }
      require(step < kMostSteps, "it goes on for ever");
      if (!move()) {
        require(pass_time(), "nothing can move");
      }
      check(step);
    }
    require(bodies_.num_inside() == 0 && bodies_.used_bytes() == 0 && bodies_.num_waiting() == 0, "bodies are left behind");
    require(window_.num_inside() == 0 && window_.used_bytes() == 0, "rows are left behind");
    require(pool_->scratch_used_bytes() == 0, "scratch is left behind");
    require(scheduler_->num_waiting() == 0 && scheduler_->num_on_wire() == 0 && transfers_.empty(), "attempts are left behind");
  }
  int64_t num_spilled() const { return pool_->num_spilled(); }
  int64_t num_pauses() const { return num_pauses_; }
  int64_t num_given_back() const { return num_given_back_; }
  bool went_over() const { return bodies_.peak_bytes() > bodies_.limit_bytes(); }

 private:
  using Instant = HostScheduler::Instant;
  using Milliseconds = std::chrono::milliseconds;

  static constexpr int kMostSteps = 300'000;
  static constexpr size_t kExpected = 16;               // What a body is admitted with.
  static constexpr Milliseconds kLongestPause{10'000};  // Of a transfer that waits for memory.

  enum class Fate { kBody, kNotFound, kBreaksOnce, kSilent, kRedirect, kNoUrl };
  struct Row {
    Fate fate = Fate::kBody;
    size_t size = 0;
    bool says_length = true;
    int host = 0;
  };
  struct Item {
    std::vector<Row> rows;
    size_t num_written = 0;
    bool is_committed = false;
  };
  struct ToyPiece {
    size_t item = 0;  // Also its number in OpenItems: items are opened in order.
    size_t position = 0;
    BodyLease window, lease;
    std::string body;
    bool has_failed = false;
    SpilledBody spilled;
  };
  using PiecePtr = std::unique_ptr<ToyPiece>;
  struct Reader {
    std::optional<size_t> item;
    PiecePtr piece;  // Read, waits for the window.
    bool is_waiting = false;
  };
  struct Transfer {
    std::unique_ptr<Attempt> attempt;
    size_t num_got = 0, num_granted = 0;
    bool has_headers = false;
    bool is_paused = false, is_granted = false;
    Instant next;  // Something happens; of a paused one: it gives up waiting.
  };
  struct Writer {
    std::optional<OpenItems<PiecePtr>::Turn> turn;
    uint64_t steps_left = 0;
  };

  // What is drawn.

  uint64_t below(uint64_t bound) { return random_() % bound; }
  bool chance(uint64_t percent) { return below(100) < percent; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + static_cast<int64_t>(below(values.size())));
  }

  void draw(const std::string& scratch_folder) {
    max_body_ = one_of<size_t>({1, 40, 200});
    const auto scratch_bytes = one_of<int64_t>({0, 1, 150, 1'000'000});
    std::unique_ptr<ScratchFiles> scratch;
    if (scratch_bytes > 0) {
      scratch = ScratchFiles::open(scratch_folder, scratch_bytes, 256).value();
    }
    pool_ = std::make_unique<BodyPool>(bodies_, std::move(scratch));
    max_started_ = one_of<size_t>({1, 2, 4});
    open_ = std::make_unique<OpenItems<PiecePtr>>(one_of<size_t>({1, 2, 8}), max_started_);
    scheduler_ = std::make_unique<HostScheduler>(HostRules{.per_host = one_of({1, 2, 8}), .max_park = std::chrono::seconds(30)}, seed_);
    readers_.resize(one_of<size_t>({1, 1, 2, 3}));
    writers_.resize(1 + below(3));
    num_places_ = one_of<size_t>({1, 3, 16});
    max_outstanding_ = readers_.size() == 1 ? one_of<size_t>({1, 7, 1000}) : SIZE_MAX;
    num_hosts_ = 1 + below(4);
    stop_at_ = chance(5) ? static_cast<int>(below(2000)) : -1;
    for (uint64_t& weight : weights_) {
      weight = one_of<uint64_t>({1, 4, 16});
    }
    const uint64_t percent_trouble = one_of<uint64_t>({0, 10, 50});
    items_.resize(1 + below(10));
    for (Item& item : items_) {
      item.rows.resize(below(25));
      for (Row& row : item.rows) {
        row = {.fate = chance(percent_trouble) ? static_cast<Fate>(below(6)) : Fate::kBody,
               .size = chance(20) ? max_body_ : below(max_body_ + 1),
               .says_length = chance(70),
               .host = static_cast<int>(below(num_hosts_))};
      }
    }
    throttled_until_.resize(num_hosts_ + 1, now_);
    if (chance(20)) {
      throttled_until_[0] = now_ + std::chrono::seconds(below(100));
    }
  }

  static std::string body_of(size_t item, size_t position, size_t size) {
    std::string body(size, '\0');
    for (size_t i = 0; i < size; ++i) {
      body[i] = static_cast<char>(item * 31 + position * 7 + i);
    }
    return body;
  }
  static uint64_t order_of(size_t item, size_t position) { return (static_cast<uint64_t>(item) << 32) + position; }
  const Row& row_of(uint64_t order) const { return items_[order >> 32].rows[order & UINT32_MAX]; }

  void require(bool holds, const char* what) const {
    if (!holds) {
      throw std::runtime_error(fmt::format("seed {}: {} (items committed {} of {}, rows waiting {}, on the wire {}, bodies {} of {})",
                                           seed_, what, num_committed_, items_.size(), scheduler_->num_waiting(), transfers_.size(),
                                           bodies_.used_bytes(), bodies_limit_));
    }
  }

  // Who moves.

  bool move() {
    struct Candidate {
      uint64_t weight;
      int kind;
      size_t index;
    };
    std::vector<Candidate> candidates;
    uint64_t total = 0;
    const auto add = [&](bool is_able, int kind, size_t index) {
      if (is_able) {
        candidates.push_back({weights_[kind], kind, index});
        total += weights_[kind];
      }
    };
    for (size_t i = 0; i < readers_.size(); ++i) {
      add(reader_can_move(readers_[i]), 0, i);
    }
    add(fetch_can_move(), 1, 0);
    add(!fetched_.empty(), 2, 0);
    for (size_t i = 0; i < writers_.size(); ++i) {
      add(writer_can_move(writers_[i]), 3, i);
    }
    add(!finished_.empty(), 4, 0);
    if (candidates.empty() || (chance(2) && pass_time())) {
      return !candidates.empty();
    }
    uint64_t drawn = below(total);
    size_t chosen = 0;
    while (drawn >= candidates[chosen].weight) {
      drawn -= candidates[chosen++].weight;
    }
    const size_t index = candidates[chosen].index;
    switch (candidates[chosen].kind) {
      case 0:
        move_reader(readers_[index]);
        break;
      case 1:
        move_fetch();
        break;
      case 2:
        move_order();
        break;
      case 3:
        move_writer(writers_[index]);
        break;
      default:
        commit();
    }
    return true;
  }

  std::optional<Instant> next_instant() const {
    std::optional<Instant> next = scheduler_->next_instant();
    for (const auto& [order, transfer] : transfers_) {
      next = std::min(next.value_or(transfer.next), transfer.next);
    }
    return next;
  }
  // To the next instant at which something happens. False: there is none.
  bool pass_time() {
    const std::optional<Instant> next = next_instant();
    if (!next || *next <= now_ || *next == Instant::max()) {
      return false;
    }
    now_ = *next;
    return true;
  }

  // Reading.

  bool reader_can_move(const Reader& reader) const {
    if (reader.is_waiting) {
      return false;
    }
    if (reader.piece) {
      return in_fetch_.size() < max_outstanding_;
    }
    return reader.item || (next_item_ < items_.size() && open_->has_room());
  }
  void move_reader(Reader& reader) {
    if (reader.piece) {
      submit(std::move(reader.piece));
      return;
    }
    if (!reader.item) {
      reader.item = next_item_++;
      require(open_->open() == *reader.item, "items are numbered otherwise");
      next_position_[*reader.item] = 0;
      return;
    }
    size_t& position = next_position_[*reader.item];
    if (position == items_[*reader.item].rows.size()) {
      open_->end(*reader.item, static_cast<int64_t>(position));
      reader.item.reset();
      return;
    }
    reader.piece = std::make_unique<ToyPiece>();
    reader.piece->item = *reader.item;
    reader.piece->position = position;
    const uint64_t order = order_of(*reader.item, position++);
    reader.piece->window = BodyLease(window_, order);
    reader.is_waiting = window_.ask(order, 1 + below(30), [&reader] { reader.is_waiting = false; }) == BodyMemory::Answer::kQueued;
  }
  void submit(PiecePtr piece) {
    const uint64_t order = order_of(piece->item, piece->position);
    piece->lease = BodyLease(bodies_, order);
    if (row_of(order).fate == Fate::kNoUrl) {
      piece->has_failed = true;
      fetched_.push_back(std::move(piece));
      return;
    }
    in_fetch_.emplace(order, std::move(piece));
    inbox_.push_back(order);
    is_fetch_awake_ = true;
  }

  // Fetching: one turn of the loop. What wakes it: rows, bytes that were granted, an instant.

  bool fetch_can_move() const {
    const std::optional<Instant> next = next_instant();
    return is_fetch_awake_ || (next && *next <= now_);
  }
  void move_fetch() {
    is_fetch_awake_ = false;
    for (const uint64_t order : std::exchange(inbox_, {})) {
      auto attempt = std::make_unique<Attempt>();
      attempt->row = attempt->order = order;
      attempt->host = host_name(row_of(order).host);
      scheduler_->add(std::move(attempt), now_);
    }
    close_door();
    std::vector<uint64_t> due;
    for (auto& [order, transfer] : transfers_) {
      if (transfer.is_granted || transfer.next <= now_) {
        due.push_back(order);
      }
    }
    for (const uint64_t order : due) {
      advance_transfer(order);
    }
    while (std::optional<HostScheduler::Expired> expired = scheduler_->take_expired(now_)) {
      fail_row(expired->attempt->order);
    }
    start_transfers();
  }

  std::string host_name(int host) const { return std::to_string(host); }
  bool is_place_free() const {
    size_t num_running = 0;
    for (const auto& [order, transfer] : transfers_) {
      num_running += transfer.is_paused && fault_ != Fault::kHoldsItsPlace ? 0 : 1;  // Who waits for memory holds no place.
    }
    return num_running < num_places_;
  }
  void wake_for_memory() { is_fetch_awake_ = is_fetch_awake_ || fault_ != Fault::kSleepsThrough; }
  // The question of a row that was not admitted stays, only to wake the loop.
  void close_door() {
    if (door_ && !bodies_.withdraw(*door_)) {
      bodies_.set_held(*door_, 0);
    }
    door_.reset();
  }
  void start_transfers() {
    while (is_place_free()) {
      std::unique_ptr<Attempt> attempt = scheduler_->take(now_);
      if (!attempt) {
        return;
      }
      const uint64_t order = attempt->order;
      const size_t wanted = known_sizes_.contains(order) ? known_sizes_[order] : std::min(kExpected, max_body_);
      if (bodies_.ask(order, wanted, [this] { wake_for_memory(); }) == BodyMemory::Answer::kQueued) {
        door_ = order;
        scheduler_->put_back(std::move(attempt), now_);
        return;
      }
      const Milliseconds latency(row_of(order).fate == Fate::kSilent ? 20'000 : 1 + below(chance(10) ? 15'000 : 300));
      transfers_[order] = Transfer{.attempt = std::move(attempt), .num_granted = wanted, .next = now_ + latency};
    }
  }
  void advance_transfer(uint64_t order) {
    Transfer& transfer = transfers_.at(order);
    const Row& row = row_of(order);
    if (transfer.is_paused) {
      if (!transfer.is_granted) {
        if (fault_ == Fault::kWaitsForEver || fault_ == Fault::kHoldsItsPlace) {
          transfer.next = Instant::max();
        } else {
          give_place_back(order);
        }
        return;
      }
      transfer.is_paused = transfer.is_granted = false;
      transfer.next = now_ + Milliseconds(1 + below(300));
      return;
    }
    if (!transfer.has_headers) {
      transfer.has_headers = true;
      if (std::optional<AttemptOutcome> outcome = outcome_of(transfer, row)) {
        end_transfer(order, *outcome);
        return;
      }
      if (row.says_length && transfer.num_granted < row.size) {
        ask_for(transfer, order, row.size);
        return;
      }
    }
    transfer.num_got = std::min({transfer.num_got + 1 + below(64), transfer.num_granted, row.size});
    if (transfer.num_got == row.size) {
      end_transfer(order, {.kind = AttemptOutcome::Kind::kAnswered, .status = 200});
    } else if (transfer.num_got == transfer.num_granted) {
      ask_for(transfer, order, std::min(2 * transfer.num_granted, max_body_));
    } else {
      transfer.next = now_ + Milliseconds(1 + below(300));
    }
  }
  void ask_for(Transfer& transfer, uint64_t order, size_t size) {
    const size_t more = size - transfer.num_granted;
    transfer.num_granted = size;
    const auto granted = [this, &transfer] {
      transfer.is_granted = true;
      wake_for_memory();
    };
    if (fault_ == Fault::kGrantsToItself) {
      transfer.next = now_ + Milliseconds(1 + below(300));
      return;
    }
    if (bodies_.ask(order, more, granted) == BodyMemory::Answer::kQueued) {
      transfer.is_paused = true;
      transfer.next = now_ + kLongestPause;
      ++num_pauses_;
    } else {
      transfer.next = now_ + Milliseconds(1 + below(300));
    }
  }
  // It has waited for memory so long that a place of its host may be what an older row needs: it starts anew when all of it is granted.
  void give_place_back(uint64_t order) {
    Transfer transfer = std::move(transfers_.extract(order).mapped());
    require(bodies_.withdraw(order), "a transfer gives up what it was granted");
    bodies_.set_held(order, 0);
    known_sizes_[order] = transfer.num_granted;
    scheduler_->put_back(std::move(transfer.attempt), now_);
    ++num_given_back_;
  }
  std::optional<AttemptOutcome> outcome_of(const Transfer& transfer, const Row& row) {
    const auto host = static_cast<size_t>(std::stoi(transfer.attempt->host));
    if (now_ < throttled_until_[host]) {
      return AttemptOutcome{.kind = AttemptOutcome::Kind::kAnswered,
                            .status = 429,
                            .error = RowError{.code = RowErrorCode::kHttpStatus, .http_status = 429},
                            .retry_after = std::chrono::seconds(below(20))};
    }
    if (row.fate == Fate::kNotFound) {
      return AttemptOutcome{
          .kind = AttemptOutcome::Kind::kAnswered, .status = 404, .error = RowError{.code = RowErrorCode::kHttpStatus, .http_status = 404}};
    }
    if (row.fate == Fate::kSilent) {
      return AttemptOutcome{.kind = AttemptOutcome::Kind::kFailed, .error = RowError{RowErrorCode::kTimeout}};
    }
    if (row.fate == Fate::kBreaksOnce && transfer.attempt->num_retries == 0) {
      return AttemptOutcome{.kind = AttemptOutcome::Kind::kFailed, .error = RowError{RowErrorCode::kConnect}, .is_network = chance(50)};
    }
    if (row.fate == Fate::kRedirect && transfer.attempt->num_redirects == 0) {
      return AttemptOutcome{.kind = AttemptOutcome::Kind::kRedirect, .status = 302};
    }
    return std::nullopt;
  }
  void end_transfer(uint64_t order, const AttemptOutcome& outcome) {
    Transfer transfer = std::move(transfers_.extract(order).mapped());
    if (outcome.status != 200) {
      bodies_.set_held(order, 0);
    }
    AttemptVerdict verdict = scheduler_->report(transfer.attempt, outcome, now_);
    if (verdict.kind == AttemptVerdict::Kind::kSuspect) {
      verdict = scheduler_->judge(transfer.attempt, outcome, now_);
    }
    if (verdict.kind == AttemptVerdict::Kind::kRedirect) {
      transfer.attempt->host = host_name(static_cast<int>(below(num_hosts_)));
      scheduler_->add(std::move(transfer.attempt), now_);
    } else if (verdict.kind == AttemptVerdict::Kind::kFinish && verdict.error) {
      fail_row(order);
    } else if (verdict.kind == AttemptVerdict::Kind::kFinish) {
      PiecePtr piece = std::move(in_fetch_.extract(order).mapped());
      piece->body = body_of(piece->item, piece->position, row_of(order).size);
      piece->lease.set_held(piece->body.size());
      fetched_.push_back(std::move(piece));
    }
    is_fetch_awake_ = true;
  }
  void fail_row(uint64_t order) {
    PiecePtr piece = std::move(in_fetch_.extract(order).mapped());
    piece->has_failed = true;
    fetched_.push_back(std::move(piece));
  }

  // From the workers, in any order, into the order of their items.

  void move_order() {
    const size_t index = below(fetched_.size());
    PiecePtr piece = std::move(fetched_[index]);
    fetched_.erase(fetched_.begin() + static_cast<int64_t>(index));
    const auto position = static_cast<int64_t>(piece->position);
    if (open_->would_wait(piece->item, position)) {
      pool_->keep(piece->body, piece->lease, piece->spilled);
    }
    if (piece->spilled.is_on_disk() && fault_ == Fault::kLosesPiece) {
      return;
    }
    const size_t item = piece->item;
    open_->arrive(item, position, std::move(piece));
  }

  // Writing and committing.

  bool writer_can_move(const Writer& writer) const {
    if (!writer.turn) {
      return open_->has_turn();
    }
    return writer.turn->piece || writer.steps_left > 0 || finished_.size() < 2 * writers_.size();
  }
  void move_writer(Writer& writer) {
    if (!writer.turn) {
      writer.turn = open_->take();
      writer.steps_left = below(4);
      if (writer.turn->piece && (*writer.turn->piece)->spilled.is_on_disk()) {
        ToyPiece& piece = **writer.turn->piece;
        require(pool_->load(piece.spilled, piece.body).is_ok(), "scratch cannot be read");
        if (fault_ == Fault::kMixesUpBodies) {
          piece.body = body_of(piece.item, piece.position + 1, piece.body.size());
        }
      }
      return;
    }
    if (writer.steps_left > 0) {
      --writer.steps_left;
      return;
    }
    const uint64_t number = writer.turn->item;
    if (writer.turn->piece) {
      write(items_[number], number, **writer.turn->piece);
      writer.turn.reset();
      open_->end_turn(number);
    } else {
      writer.turn.reset();
      open_->close(number);
      finished_.push_back(number);
    }
  }
  void write(Item& item, uint64_t number, const ToyPiece& piece) {
    require(piece.item == number && piece.position == item.num_written && item.num_written < item.rows.size(), "a piece out of order");
    const Row& row = item.rows[piece.position];
    require(piece.has_failed || piece.body == body_of(piece.item, piece.position, row.size), "another body than was fetched");
    ++item.num_written;
  }
  void commit() {
    Item& item = items_[finished_.front()];
    finished_.pop_front();
    require(!item.is_committed && item.num_written == item.rows.size(), "an item is committed twice or with holes");
    item.is_committed = true;
    ++num_committed_;
  }

  // What must always hold.

  void check(int step) const {
    const size_t most_of_a_piece = std::max(max_body_, kExpected);
    const size_t oldest = bodies_.oldest() ? bodies_.held_bytes(*bodies_.oldest()) : 0;
    require(readers_.size() > 1 || bodies_.used_bytes() - oldest <= bodies_limit_, "more memory than the limit and the oldest piece");
    require(bodies_.used_bytes() <= bodies_limit_ + readers_.size() * most_of_a_piece, "more memory than the limit and a piece a reader");
    require(open_->num_started() <= max_started_, "more writers than there is memory for");
    if (step % 16 == 0) {
      for (const auto& [order, transfer] : transfers_) {
        require(transfer.num_got <= bodies_.held_bytes(order), "bytes that nobody granted");
      }
      for (const PiecePtr& piece : fetched_) {
        require(piece->body.size() <= piece->lease.held_bytes(), "a body that nobody granted");
      }
    }
  }

  std::mt19937_64 random_;
  const uint64_t seed_;
  const Fault fault_;
  const size_t bodies_limit_ = one_of<size_t>({1, 50, 100, 400});
  BodyMemory bodies_{bodies_limit_}, window_{one_of<size_t>({1, 50, 2000})};  // Before all that holds leases.
  size_t max_body_ = 0, max_started_ = 1;
  std::unique_ptr<BodyPool> pool_;
  std::unique_ptr<OpenItems<PiecePtr>> open_;
  std::unique_ptr<HostScheduler> scheduler_;
  std::vector<Item> items_;
  std::vector<Reader> readers_;
  std::vector<Writer> writers_;
  size_t num_places_ = 1, max_outstanding_ = 1, num_hosts_ = 1;
  std::array<uint64_t, 5> weights_{};
  int stop_at_ = -1;

  Instant now_{std::chrono::hours(1)};
  size_t next_item_ = 0;
  std::map<size_t, size_t> next_position_;
  std::vector<uint64_t> inbox_;
  std::map<uint64_t, Transfer> transfers_;  // Before the pieces: when these leave the memory, a transfer may be told of its grant.
  std::map<uint64_t, PiecePtr> in_fetch_;
  std::map<uint64_t, size_t> known_sizes_;
  std::vector<Instant> throttled_until_;
  std::optional<uint64_t> door_;
  bool is_fetch_awake_ = false;
  std::vector<PiecePtr> fetched_;
  std::deque<uint64_t> finished_;
  size_t num_committed_ = 0;
  int64_t num_pauses_ = 0, num_given_back_ = 0;
};

}  // namespace darkroom
