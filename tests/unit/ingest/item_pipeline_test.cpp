#include "darkroom/ingest/item_pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/no_new_threads.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

/// What a row of these items is: its item, its position and bytes that say both.
struct Picture {
  int64_t item = 0;
  int64_t position = 0;
  std::string bytes = {};
};
using PicturePiece = ItemPiece<Picture>;
using PictureQueue = BoundedQueue<PicturePiece>;

struct Album : ItemInWork {
  explicit Album(int64_t number) : number(number) {}
  const int64_t number;
};
struct FinishedAlbum : FinishedItem {
  std::vector<std::string> pictures;
};

std::string picture_bytes(int64_t item, int64_t position) {
  return std::string(static_cast<size_t>(1 + (item * 5 + position * 3) % 40), static_cast<char>('a' + (item + position) % 26));
}

/// Items 0, 1, ... of so many pictures each; keeps what was committed.
class Albums : public ItemSource {
 public:
  explicit Albums(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {}

  Result<std::shared_ptr<ItemInWork>> next(std::stop_token) override {
    const int64_t number = next_++;
    ++num_asked;
    if (number == fails_at) {
      return Status::unavailable("the list cannot be read:", number);
    }
    return number < static_cast<int64_t>(sizes_.size()) ? std::shared_ptr<ItemInWork>(std::make_shared<Album>(number)) : nullptr;
  }
  Status commit(ItemInWork& item, std::unique_ptr<FinishedItem> finished) override {
    const int64_t number = static_cast<Album&>(item).number;
    if (number == commit_fails_at) {
      return Status::resource_exhausted("the disk is full:", number);
    }
    EXPECT_TRUE(committed.emplace(number, static_cast<FinishedAlbum&>(*finished).pictures).second) << "twice: " << number;
    return {};
  }
  int64_t size(int64_t number) const { return sizes_.at(static_cast<size_t>(number)); }
  int64_t num_items() const { return static_cast<int64_t>(sizes_.size()); }
  /// Every item is there, whole and in order.
  void expect_all() const {
    ASSERT_EQ(committed.size(), sizes_.size());
    for (const auto& [number, pictures] : committed) {
      ASSERT_EQ(static_cast<int64_t>(pictures.size()), size(number));
      for (int64_t position = 0; position < size(number); ++position) {
        ASSERT_EQ(pictures[static_cast<size_t>(position)], picture_bytes(number, position)) << number << "/" << position;
      }
    }
  }

  int64_t fails_at = -1, commit_fails_at = -1;
  std::atomic<int64_t> num_asked = 0;
  std::map<int64_t, std::vector<std::string>> committed;  // Of the commit thread, then of the test.

 private:
  const std::vector<int64_t> sizes_;
  std::atomic<int64_t> next_ = 0;
};

class AlbumReader : public ItemReader<Picture> {
 public:
  AlbumReader(const Albums& albums, int64_t fails_at, size_t page_bytes) : albums_(albums), fails_at_(fails_at), page_bytes_(page_bytes) {}
  Status read(ItemIntake<Picture>& intake) override {
    const int64_t number = static_cast<Album&>(*intake.item()).number;
    for (int64_t position = 0; position < albums_.size(number); ++position) {
      if (number == fails_at_ && position == 1) {
        return Status::corrupt_data("a row is damaged:", position);
      }
      if (page_bytes_ > 0) {  // A larger one, a smaller one, none.
        DARKROOM_RETURN_IF_ERROR(intake.keep(page_bytes_ * static_cast<size_t>(position % 3 == 2 ? 0 : 2 - position % 3)));
      }
      DARKROOM_RETURN_IF_ERROR(intake.admit(3));
      DARKROOM_RETURN_IF_ERROR(intake.admit(4));  // A piece may be admitted part by part.
      DARKROOM_RETURN_IF_ERROR(intake.emit({.item = number, .position = position}));
      intake.count(1, 7);
    }
    return {};
  }

 private:
  const Albums& albums_;
  const int64_t fails_at_;
  const size_t page_bytes_;
};

class AlbumWriter : public ItemWriter<Picture> {
 public:
  AlbumWriter(int64_t number, int64_t add_fails_at, int64_t finish_fails_at)
      : number_(number), add_fails_at_(add_fails_at), finish_fails_at_(finish_fails_at) {}
  Status add(int64_t position, Picture picture) override {
    if (number_ == add_fails_at_) {
      return Status::resource_exhausted("the page cannot be written:", position);
    }
    EXPECT_EQ(picture.item, number_);
    EXPECT_EQ(position, static_cast<int64_t>(finished_->pictures.size()));
    finished_->pictures.push_back(std::move(picture.bytes));
    return {};
  }
  Result<std::unique_ptr<FinishedItem>> finish() override {
    if (number_ == finish_fails_at_) {
      throw std::runtime_error("surprise");
    }
    return std::unique_ptr<FinishedItem>(std::move(finished_));
  }

 private:
  const int64_t number_, add_fails_at_, finish_fails_at_;
  std::unique_ptr<FinishedAlbum> finished_ = std::make_unique<FinishedAlbum>();
};

/// A fetcher of one thread: any number of pieces under way, which end in an order drawn from a seed, each when it was granted its bytes.
class ToyFetcher {
 public:
  ToyFetcher(BodyMemory& memory, uint32_t seed) : memory_(memory), random_(seed) {}

  void add(Pipeline& pipeline, PictureQueue& read, PictureQueue& done) {
    pipeline.add_source<PicturePiece>(
        "submit", 1, [this, &read](int, Emitter<PicturePiece>& out) { return submit(read, out); }, done);
    pipeline.add_source<PicturePiece>(
        "fetch", 1, [this](int, Emitter<PicturePiece>& out) { return fetch(out); }, done);
  }

  /// When its threads have ended.
  void drop_all() {
    for (const auto& [order, under_way] : asked_) {
      memory_.withdraw(order);
    }
    asked_.clear();
    under_way_.clear();
  }

  std::function<bool(const PicturePiece&)> may_end = [](const PicturePiece&) { return true; };
  std::function<void(PicturePiece&)> alter = [](PicturePiece&) {};
  std::function<bool(const PicturePiece&)> is_lost = [](const PicturePiece&) { return false; };

 private:
  struct UnderWay {
    PicturePiece piece;
    bool is_granted = false;
  };

  Status submit(PictureQueue& read, Emitter<PicturePiece>& out) {
    while (auto piece = out.starving([&] { return read.pop(out.stop()); })) {
      const std::lock_guard hold(mutex_);
      piece->body.bytes = picture_bytes(piece->body.item, piece->body.position);
      under_way_.push_back({std::move(*piece)});
      changed_.notify_all();
    }
    const std::lock_guard hold(mutex_);
    is_closed_ = true;
    changed_.notify_all();
    return {};
  }
  Status fetch(Emitter<PicturePiece>& out) {
    while (auto piece = out.starving([&] { return next(out.stop()); })) {
      alter(*piece);
      if (!is_lost(*piece)) {
        DARKROOM_RETURN_IF_ERROR(out.emit(std::move(*piece)));
      }
    }
    return {};
  }
  std::optional<PicturePiece> next(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      std::vector<std::list<UnderWay>::iterator> able;
      for (auto it = under_way_.begin(); it != under_way_.end(); ++it) {
        if (may_end(it->piece) && has_bytes(*it, lock)) {
          able.push_back(it);
        }
      }
      if (!able.empty()) {
        const auto chosen = able[random_() % able.size()];
        PicturePiece piece = std::move(chosen->piece);
        under_way_.erase(chosen);
        asked_.erase(piece.order());
        return piece;
      }
      if (is_closed_ && under_way_.empty()) {
        return std::nullopt;
      }
      // may_end() tells nobody when it changes.
      changed_.wait_for(lock, stop, std::chrono::milliseconds(1), [&] { return is_granted_; });
      is_granted_ = false;
    }
    return std::nullopt;
  }
  bool has_bytes(UnderWay& under_way, std::unique_lock<std::mutex>& lock) {
    if (under_way.is_granted) {
      return true;
    }
    const uint64_t order = under_way.piece.order();
    if (!asked_.emplace(order, &under_way).second) {
      return false;
    }
    lock.unlock();  // The memory is locked before this object, never after it.
    const auto granted = [this, order] {
      const std::lock_guard hold(mutex_);
      asked_.at(order)->is_granted = true;
      is_granted_ = true;
      changed_.notify_all();
    };
    const auto answer = memory_.ask(order, under_way.piece.body.bytes.size(), granted);
    lock.lock();
    under_way.is_granted = under_way.is_granted || answer == BodyMemory::Answer::kGranted;
    return under_way.is_granted;
  }

  BodyMemory& memory_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::list<UnderWay> under_way_;
  std::map<uint64_t, UnderWay*> asked_;
  bool is_granted_ = false;
  bool is_closed_ = false;
};

/// A run over albums whose parts can be set to fail.
struct AlbumRun {
  explicit AlbumRun(std::vector<int64_t> sizes, size_t body_bytes = 1'000'000, uint32_t seed = 1)
      : albums(std::move(sizes)), bodies(body_bytes), fetcher(bodies, seed), pool(std::in_place, bodies) {}

  Status run() {
    ItemJob<Picture> job{
        .make_reader = [this](int) -> Result<std::unique_ptr<ItemReader<Picture>>> {
          if (no_reader) {
            return Status::not_found("no such table:", "x");
          }
          return std::unique_ptr<ItemReader<Picture>>(std::make_unique<AlbumReader>(albums, read_fails_at, page_bytes));
        },
        .add_middle = [this](Pipeline& pipeline, PictureQueue& read, PictureQueue& done) { fetcher.add(pipeline, read, done); },
        .open_writer = [this](const std::shared_ptr<ItemInWork>& item) -> Result<std::unique_ptr<ItemWriter<Picture>>> {
          const int64_t number = static_cast<Album&>(*item).number;
          if (number == open_fails_at) {
            return Status::failed_precondition("the folder is read-only:", number);
          }
          return std::unique_ptr<ItemWriter<Picture>>(std::make_unique<AlbumWriter>(number, add_fails_at, finish_fails_at));
        },
        .spillable = [](Picture& picture) { return &picture.bytes; },
        .num_rows = num_rows,
        .wait_for_demand = wait_for_demand};
    Status status;
    {
      ItemRun<Picture> run(albums, std::move(job), intake, &*pool, options, &metrics, stop.get_token());
      running = &run;
      status = run.execute();
      num_committed = run.num_committed();
    }
    fetcher.drop_all();
    return status;
  }
  void expect_nothing_left() const {
    EXPECT_EQ(bodies.num_inside(), 0u);
    EXPECT_EQ(bodies.used_bytes(), 0u);
    EXPECT_EQ(intake.num_inside(), 0u);
    EXPECT_EQ(pool->scratch_used_bytes(), 0);
  }

  Albums albums;
  BodyMemory intake{100};
  BodyMemory bodies;
  ToyFetcher fetcher;
  std::optional<BodyPool> pool;
  ItemPipelineOptions options = {.queue_pieces = 3};
  MetricsRegistry metrics;
  std::stop_source stop;
  std::function<int64_t(const Picture&)> num_rows = {};
  bool no_reader = false;
  size_t page_bytes = 0;
  int64_t read_fails_at = -1, open_fails_at = -1, add_fails_at = -1, finish_fails_at = -1;
  std::function<Status()> wait_for_demand = {};
  const ItemRun<Picture>* running = nullptr;
  int64_t num_committed = -1;
};

std::vector<int64_t> some_sizes(int64_t num_items) {
  std::vector<int64_t> sizes;
  for (int64_t item = 0; item < num_items; ++item) {
    sizes.push_back(item * 7 % 23);  // 0, 7, 14, 21, 5, ...
  }
  return sizes;
}

TEST(ItemRun, asks_for_an_item_when_its_middle_wants_more) {
  AlbumRun test({3, 3, 3});
  std::vector<int64_t> asked;
  test.wait_for_demand = [&] {
    asked.push_back(test.albums.num_asked);
    return Status();
  };
  ASSERT_TRUE(test.run().is_ok());
  EXPECT_EQ(asked, (std::vector<int64_t>{0, 1, 2, 3})) << "before each item, and before it learns that there is none";
  test.albums.expect_all();
}

TEST(ItemRun, ends_when_its_middle_wants_no_more) {
  AlbumRun test({3, 3, 3});
  test.wait_for_demand = [&] { return test.albums.num_asked == 0 ? Status() : Status::resource_exhausted("no sockets:", 1); };
  EXPECT_EQ(test.run().message(), "no sockets: 1");
  EXPECT_EQ(test.albums.num_asked, 1);
  test.expect_nothing_left();
}

class ItemRunSizes : public ::testing::TestWithParam<std::tuple<int64_t, int, int, size_t>> {};

TEST_P(ItemRunSizes, every_item_is_committed_whole_and_in_order) {
  const auto [num_items, num_readers, num_writers, body_bytes] = GetParam();
  AlbumRun test(some_sizes(num_items), body_bytes, static_cast<uint32_t>(num_items));
  test.options.num_readers = num_readers;
  test.options.num_writers = num_writers;
  test.options.max_open_items = 5;
  test.options.max_started_items = 2;
  const Status status = test.run();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(test.num_committed, num_items);
  test.albums.expect_all();
  test.expect_nothing_left();
  if (num_readers == 1) {
    EXPECT_LE(test.intake.peak_bytes(), test.intake.limit_bytes() + 7);
    EXPECT_LE(test.bodies.peak_bytes(), body_bytes + 40);
  }
}

INSTANTIATE_TEST_SUITE_P(HostileSizes, ItemRunSizes,
                         ::testing::Combine(::testing::Values(0, 1, 2, 31), ::testing::Values(1, 3), ::testing::Values(1, 3),
                                            ::testing::Values(size_t{1}, size_t{100}, size_t{1'000'000})));

TEST(ItemRun, what_readers_keep_counts_and_holds_nobody_up_for_ever) {
  for (const size_t page_bytes : {size_t{1}, size_t{20}, size_t{60}, size_t{1'000}}) {
    for (const int num_readers : {1, 3}) {
      AlbumRun test(some_sizes(12), 100, static_cast<uint32_t>(page_bytes));
      test.page_bytes = page_bytes;
      test.options.num_readers = num_readers;
      const Status status = test.run();
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      test.albums.expect_all();
      test.expect_nothing_left();
      EXPECT_GE(test.intake.peak_bytes(), 2 * page_bytes);
      if (num_readers == 1) {  // The oldest piece gets what it asks for, beside what the others hold within the limit.
        EXPECT_LE(test.intake.peak_bytes(), std::max<size_t>(test.intake.limit_bytes(), 2 * page_bytes) + 2 * 7 + 2 * page_bytes);
      }
    }
  }
}

/// Names of the spans of each trace, without their number.
std::map<std::string, std::multiset<std::string>> spans_by_trace(const std::string& path) {
  std::map<std::string, std::multiset<std::string>> names;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json request = nlohmann::json::parse(line);
    for (const nlohmann::json& span : request["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
      names[span["traceId"].get<std::string>()].insert(span["name"].get<std::string>() + (span.contains("status") ? " failed" : ""));
    }
  }
  return names;
}

TEST(ItemRun, tells_the_life_of_each_item_as_a_trace) {
  const TemporaryFolder folder;
  auto trace = TraceRecorder::open({.path = folder.path("spans.jsonl")});
  ASSERT_TRUE(trace.is_ok()) << trace.status().to_string();
  AlbumRun test({7, 0});
  test.options.trace = trace->get();
  test.options.traced_piece_interval = 3;
  ASSERT_TRUE(test.run().is_ok());
  ASSERT_TRUE((*trace)->finish().is_ok());
  std::multiset<std::multiset<std::string>> traces;
  for (const auto& [id, names] : spans_by_trace(folder.path("spans.jsonl"))) {
    traces.insert(names);
  }
  EXPECT_EQ(traces, (std::multiset<std::multiset<std::string>>{{"item", "claim", "read", "write", "write", "write", "finish", "commit"},
                                                               {"item", "claim", "read", "finish", "commit"}}));
}

TEST(ItemRun, marks_the_span_of_what_failed) {
  const TemporaryFolder folder;
  auto trace = TraceRecorder::open({.path = folder.path("spans.jsonl")});
  ASSERT_TRUE(trace.is_ok()) << trace.status().to_string();
  AlbumRun test({1});
  test.albums.commit_fails_at = 0;
  test.options.trace = trace->get();
  ASSERT_FALSE(test.run().is_ok());
  ASSERT_TRUE((*trace)->finish().is_ok());
  const auto traces = spans_by_trace(folder.path("spans.jsonl"));
  ASSERT_EQ(traces.size(), 1U);
  EXPECT_EQ(traces.begin()->second, (std::multiset<std::string>{"item failed", "claim", "read", "write", "finish", "commit failed"}));
}

TEST(ItemRun, a_slow_piece_holds_up_its_own_item_only) {
  AlbumRun test({3, 5, 7, 2, 4});
  test.fetcher.may_end = [&](const PicturePiece& piece) {
    return piece.body.item != 0 || piece.body.position != 1 || test.running->num_committed() == 4;
  };
  ASSERT_TRUE(test.run().is_ok());
  test.albums.expect_all();
}

// The first piece comes last: all others wait for it, and memory holds only a few of them.
TEST(ItemRun, bodies_behind_a_slow_piece_wait_on_disk) {
  const TemporaryFolder scratch;
  AlbumRun test({60}, 200);
  test.pool.emplace(test.bodies, ScratchFiles::open(scratch.path(), 1'000'000).value());
  test.options.queue_pieces = 100;
  // Fourteen are admitted at a time; those behind the first have 286 bytes, of which at most 150 stay.
  test.fetcher.may_end = [&](const PicturePiece& piece) { return piece.body.position != 0 || test.pool->num_spilled() >= 3; };
  ASSERT_TRUE(test.run().is_ok());
  test.albums.expect_all();
  test.expect_nothing_left();
  EXPECT_GT(test.pool->num_spilled(), 0);
  EXPECT_LE(test.bodies.peak_bytes(), 240u);
}

TEST(ItemRun, its_stages_count_in_the_registry) {
  AlbumRun test({3, 4});
  ASSERT_TRUE(test.run().is_ok());
  const std::string text = test.metrics.to_prometheus();
  EXPECT_NE(text.find("darkroom_rows_total{stage=\"read\"} 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("darkroom_rows_total{stage=\"write\"} 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("darkroom_rows_total{stage=\"commit\"} 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("darkroom_queue_items{stage=\"order\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("darkroom_queue_bytes{queue=\"intake\"} 0\n"), std::string::npos) << text;
}

TEST(ItemRun, its_stages_count_the_rows_of_pieces_that_hold_several) {
  AlbumRun test({3, 0, 4});
  test.num_rows = [](const Picture& picture) { return 10 + picture.position; };
  ASSERT_TRUE(test.run().is_ok());
  const std::string text = test.metrics.to_prometheus();
  for (const char* stage : {"order", "write", "commit"}) {  // 10 + 11 + 12, and 10 + 11 + 12 + 13.
    EXPECT_NE(text.find(fmt::format("darkroom_rows_total{{stage=\"{}\"}} 79\n", stage)), std::string::npos) << stage << "\n" << text;
  }
}

TEST(ItemRun, each_part_that_fails_ends_it_with_its_own_failure) {
  struct Case {
    const char* what;
    std::function<void(AlbumRun&)> plant;
    StatusCode code;
  };
  const std::vector<Case> cases = {
      {"no reader", [](AlbumRun& test) { test.no_reader = true; }, StatusCode::kNotFound},
      {"next item", [](AlbumRun& test) { test.albums.fails_at = 4; }, StatusCode::kUnavailable},
      {"read", [](AlbumRun& test) { test.read_fails_at = 4; }, StatusCode::kCorruptData},
      {"open writer", [](AlbumRun& test) { test.open_fails_at = 4; }, StatusCode::kFailedPrecondition},
      {"write", [](AlbumRun& test) { test.add_fails_at = 4; }, StatusCode::kResourceExhausted},
      {"finish", [](AlbumRun& test) { test.finish_fails_at = 4; }, StatusCode::kInternal},
      {"commit", [](AlbumRun& test) { test.albums.commit_fails_at = 4; }, StatusCode::kResourceExhausted},
  };
  for (const Case& failing : cases) {
    SCOPED_TRACE(failing.what);
    AlbumRun test(some_sizes(31));
    failing.plant(test);
    EXPECT_EQ(test.run().code(), failing.code);
    EXPECT_FALSE(test.albums.committed.contains(4));
    EXPECT_EQ(test.num_committed, static_cast<int64_t>(test.albums.committed.size()));
    for (const auto& [number, pictures] : test.albums.committed) {
      EXPECT_EQ(static_cast<int64_t>(pictures.size()), test.albums.size(number)) << "a part of an item was committed";
    }
    test.expect_nothing_left();
  }
}

TEST(ItemRun, a_piece_that_the_middle_loses_is_a_failure_not_a_hang) {
  AlbumRun test({3, 5, 7});
  test.fetcher.is_lost = [](const PicturePiece& piece) { return piece.body.item == 1 && piece.body.position == 2; };
  const Status status = test.run();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "pieces were lost between their reader and their writer (item of this run, first piece): 1 2");
  EXPECT_FALSE(test.albums.committed.contains(1));
}

TEST(ItemRun, a_piece_that_the_middle_gives_anothers_place_is_a_failure) {
  AlbumRun test({3, 5, 7});
  test.fetcher.alter = [](PicturePiece& piece) { piece.position -= piece.body.item == 1 && piece.position == 2 ? 1 : 0; };
  const Status status = test.run();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_FALSE(test.albums.committed.contains(1));
  test.expect_nothing_left();
}

TEST(ItemRun, a_stop_ends_it_while_everybody_waits) {
  AlbumRun test(some_sizes(31), 1);
  test.fetcher.may_end = [&](const PicturePiece& piece) {
    // The first piece never ends; when the reader waits behind it, the run is stopped.
    if (test.intake.num_waiting() == 1) {
      test.stop.request_stop();
    }
    return piece.body.item != 1 || piece.body.position != 0;
  };
  EXPECT_EQ(test.run().code(), StatusCode::kCancelled);
  test.expect_nothing_left();
}

TEST(ItemRun, a_stop_before_the_start_commits_nothing) {
  AlbumRun test({3});
  test.stop.request_stop();
  EXPECT_EQ(test.run().code(), StatusCode::kCancelled);
  EXPECT_TRUE(test.albums.committed.empty());
}

TEST(ItemRun, without_threads_it_ends_as_exhausted) {
  AlbumRun test({3});
  const NoNewThreads none;
  EXPECT_EQ(test.run().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(test.albums.committed.empty());
}

}  // namespace
}  // namespace darkroom
