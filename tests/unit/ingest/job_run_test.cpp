#include "darkroom/ingest/job_run.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "darkroom/files/claim.h"
#include "darkroom/files/paths.h"
#include "support/forwarding_files.h"
#include "support/hook.h"
#include "support/planned_jobs.h"

namespace darkroom {
namespace {

/// Runs of one job, each as another process would start it.
class JobRuns : public ::testing::Test {
 protected:
  void SetUp() override { add_input(files_, "a.parquet", 23); }

  std::unique_ptr<JobRun> start(const std::string& owner) {
    auto plan = plan_job(*store_);
    EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
    EXPECT_TRUE((*plan)->prepare().is_ok());
    return std::make_unique<JobRun>(*std::move(plan), RunTools{.clock = &clock_, .owner = owner});
  }
  std::optional<WorkItem> take(JobRun& run) {
    auto item = run.take_item({});
    EXPECT_TRUE(item.is_ok()) << item.status().to_string();
    return item.is_ok() ? *item : std::nullopt;
  }
  Status commit(JobRun& run, const WorkItem& item) {
    DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, write_item(run.plan(), item));
    JobItem done(item);
    return run.commit(done, std::make_unique<FinishedPart>(std::move(shard), tally_of(item)));
  }
  Location claim(int64_t item) { return Location{.store = store_.get(), .path = "out"} / "_claims" / fmt::format("{:06d}", item); }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  FakeClock clock_;
};

TEST_F(JobRuns, two_processes_share_the_items_out) {
  const auto one = start("one");
  const auto two = start("two");
  std::vector<int64_t> taken;
  for (int round = 0; round < 2; ++round) {
    for (JobRun* run : {one.get(), two.get()}) {
      const auto item = take(*run);
      ASSERT_TRUE(item.has_value());
      taken.push_back(item->number);
      ASSERT_TRUE(commit(*run, *item).is_ok());
    }
  }
  const auto last = take(*one);
  ASSERT_TRUE(last.has_value());
  taken.push_back(last->number);
  ASSERT_TRUE(commit(*one, *last).is_ok());
  EXPECT_EQ(taken, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(take(*two).has_value());
  EXPECT_FALSE(take(*one).has_value());
  for (JobRun* run : {one.get(), two.get()}) {
    ASSERT_TRUE(run->plan().write_summary({}).is_ok());
    StageSummary summary;
    run->fill(summary);
    EXPECT_EQ(summary.rows_in, 23);
    EXPECT_EQ(summary.num_parts, 5);
    EXPECT_EQ(run->plan().num_lost_races(), 0);
    EXPECT_EQ(run->progress().rows_before, run == one.get() ? 10 : 13) << "rows of the others are no longer to do";
  }
  EXPECT_TRUE(files_.list("out/_claims")->empty());
}

TEST_F(JobRuns, rows_that_a_condition_drops_are_done_and_no_stages) {
  const auto run = start("one");
  run->count_row(nullptr);
  run->count_filtered(4);
  const ProgressState state = run->progress();
  EXPECT_EQ(state.rows_done, 5);
  EXPECT_EQ(state.rows_filtered, 4);
  EXPECT_EQ(state.rows_before, 0);
}

TEST_F(JobRuns, who_runs_out_of_items_waits_for_the_others) {
  const auto one = start("one");
  const auto two = start("two");
  const auto held = take(*one);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(commit(*two, *take(*two)).is_ok());
  }
  std::optional<WorkItem> got = WorkItem{};
  std::jthread waiting([&] { got = take(*two); });
  ASSERT_TRUE(clock_.await_waiting(3));  // Two renew their claims.
  ASSERT_TRUE(commit(*one, *held).is_ok());
  clock_.advance(std::chrono::seconds(1));
  waiting.join();
  EXPECT_FALSE(got.has_value());
  EXPECT_EQ(two->progress().rows_before, 5);
}

TEST_F(JobRuns, who_waits_takes_what_was_given_back) {
  auto one = start("one");
  const auto two = start("two");
  ASSERT_TRUE(take(*one).has_value());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(commit(*two, *take(*two)).is_ok());
  }
  std::optional<WorkItem> got;
  std::jthread waiting([&] { got = take(*two); });
  ASSERT_TRUE(clock_.await_waiting(3));
  one.reset();  // Stopped: its claims are given back.
  clock_.advance(std::chrono::seconds(1));
  waiting.join();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->number, 0);
}

TEST_F(JobRuns, claims_that_cannot_be_taken_do_not_end_the_job) {
  ASSERT_TRUE(files_.create_folders("out").is_ok());
  ASSERT_TRUE(write_file_atomic(files_, "out/_claims", "no folder").is_ok());
  ASSERT_FALSE(take_claim(claim(0), "one", clock_).is_ok());
  const auto run = start("one");
  for (int i = 0; i < 5; ++i) {
    const auto item = take(*run);
    ASSERT_TRUE(item.has_value());
    ASSERT_TRUE(commit(*run, *item).is_ok());
  }
  EXPECT_FALSE(take(*run).has_value());
  EXPECT_EQ(run->plan().num_parts(), 5);
}

TEST_F(JobRuns, who_waits_can_be_stopped) {
  const auto one = start("one");
  const auto two = start("two");
  ASSERT_TRUE(take(*one).has_value());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(commit(*two, *take(*two)).is_ok());
  }
  std::stop_source stop;
  Status status;
  std::jthread waiting([&] { status = two->take_item(stop.get_token()).status(); });
  ASSERT_TRUE(clock_.await_waiting(3));
  stop.request_stop();
  waiting.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
}

TEST_F(JobRuns, a_claim_of_a_lost_machine_expires) {
  ASSERT_EQ(*take_claim(claim(0), "lost", clock_), ClaimHolder::kOurs);
  const auto run = start("one");
  EXPECT_EQ(take(*run)->number, 1) << "what nobody claims comes first";
  clock_.advance(kClaimLifetime + std::chrono::seconds(1));
  for (int i = 2; i < 5; ++i) {
    EXPECT_EQ(take(*run)->number, i);
  }
  EXPECT_EQ(take(*run)->number, 0);
}

TEST_F(JobRuns, an_item_that_somebody_is_at_hides_none_that_is_free) {
  ASSERT_EQ(*take_claim(claim(0), "living", clock_), ClaimHolder::kOurs);
  ASSERT_EQ(*take_claim(claim(1), "lost", clock_), ClaimHolder::kOurs);
  const auto run = start("one");
  for (int i = 2; i < 5; ++i) {
    EXPECT_EQ(take(*run)->number, i);
  }
  clock_.advance(kClaimLifetime - std::chrono::seconds(1));
  ASSERT_EQ(*renew_claim(claim(0), "living", clock_), ClaimHolder::kOurs);
  clock_.advance(std::chrono::seconds(2));
  EXPECT_EQ(take(*run)->number, 1);
}

/// A process' pipeline over its run of the job: it wants rows while fewer than ten are in hand, and passes none on before it may.
class HeldPipeline {
 public:
  static constexpr int64_t kRowsInHand = 10;

  explicit HeldPipeline(JobRun& run) : run_(run) {}

  Status execute() {
    using Piece = ItemPiece<int64_t>;
    ItemJob<int64_t> job{
        .make_reader = [this](int) -> Result<std::unique_ptr<ItemReader<int64_t>>> {
          return std::unique_ptr<ItemReader<int64_t>>(std::make_unique<Reader>(*this));
        },
        .add_middle =
            [this](Pipeline& pipeline, BoundedQueue<Piece>& read, BoundedQueue<Piece>& done) {
              pipeline.add_source<Piece>(
                  "hold", 1, [this, &read](int, Emitter<Piece>& out) { return pass_on(read, out); }, done);
            },
        .open_writer = [this](const std::shared_ptr<ItemInWork>& item) -> Result<std::unique_ptr<ItemWriter<int64_t>>> {
          return std::unique_ptr<ItemWriter<int64_t>>(std::make_unique<Writer>(run_.plan(), static_cast<JobItem&>(*item).work));
        },
        .wait_for_demand =
            [this] {
              std::unique_lock lock(mutex_);
              changed_.wait(lock, [&] { return num_in_hand_ < kRowsInHand; });
              return Status();
            }};
    BodyMemory intake(1 << 20);
    ItemRun<int64_t> items(run_, std::move(job), intake, nullptr, {.max_open_items = 64}, nullptr, {});
    const Status status = items.execute();
    num_committed = items.num_committed();
    return status;
  }
  void let_go() {
    const std::lock_guard hold(mutex_);
    may_pass_ = true;
    changed_.notify_all();
  }
  /// Until it wants no more.
  void wait_until_full() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_in_hand_ >= kRowsInHand; });
  }

  std::atomic<int64_t> num_committed = -1;

 private:
  struct Reader : ItemReader<int64_t> {
    explicit Reader(HeldPipeline& of) : of(of) {}
    Status read(ItemIntake<int64_t>& intake) override {
      const WorkItem& work = static_cast<JobItem&>(*intake.item()).work;
      of.count(work.num_rows);
      for (int64_t row = 0; row < work.num_rows; ++row) {
        DARKROOM_RETURN_IF_ERROR(intake.admit(1));
        DARKROOM_RETURN_IF_ERROR(intake.emit(row));
      }
      return {};
    }
    HeldPipeline& of;
  };
  struct Writer : ItemWriter<int64_t> {
    Writer(JobPlan& plan, const WorkItem& work) : plan(plan), work(work) {}
    Status add(int64_t, int64_t) override { return {}; }
    Result<std::unique_ptr<FinishedItem>> finish() override {
      DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, write_item(plan, work));
      return std::unique_ptr<FinishedItem>(std::make_unique<FinishedPart>(std::move(shard), tally_of(work)));
    }
    JobPlan& plan;
    const WorkItem work;
  };

  void count(int64_t num_rows) {
    const std::lock_guard hold(mutex_);
    num_in_hand_ += num_rows;
    changed_.notify_all();
  }
  Status pass_on(BoundedQueue<ItemPiece<int64_t>>& read, Emitter<ItemPiece<int64_t>>& out) {
    while (auto piece = read.pop(out.stop())) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return may_pass_; });
      }
      DARKROOM_RETURN_IF_ERROR(out.emit(*std::move(piece)));
      count(-1);
    }
    return {};
  }

  JobRun& run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t num_in_hand_ = 0;
  bool may_pass_ = false;
};

TEST_F(JobRuns, a_second_process_finds_work_in_a_job_of_small_items) {
  add_input(files_, "b.parquet", 60 * 5);
  const auto one = start("one");
  const auto two = start("two");
  HeldPipeline slow(*one), quick(*two);
  std::jthread first([&] { EXPECT_TRUE(slow.execute().is_ok()); });
  slow.wait_until_full();
  quick.let_go();
  std::jthread second([&] { EXPECT_TRUE(quick.execute().is_ok()); });
  EXPECT_TRUE(clock_.await_waiting(3)) << "the second one has done all but what the first one has, and waits for that";
  slow.let_go();
  for (int64_t item = 0; item < 65; ++item) {  // Before the time goes on, in which the claims of both would expire.
    while (!*files_.exists(join_path("out", PartName{.item = item}.text()))) {
      std::this_thread::yield();
    }
  }
  while (slow.num_committed < 0 || quick.num_committed < 0) {
    clock_.advance(std::chrono::seconds(1));
    std::this_thread::yield();
  }
  first.join();
  second.join();
  EXPECT_EQ(slow.num_committed, 2) << "items of five rows, ten rows in hand";
  EXPECT_EQ(quick.num_committed, 65 - 2);
  EXPECT_EQ(two->plan().num_lost_races(), 0);
}

/// Claims on files that fail, or that wait within a change, when they are told to.
class TroubledClaims : public ::testing::Test {
 protected:
  class Files : public ForwardingFiles {
   public:
    explicit Files(FileSystem& files) : ForwardingFiles(files) {}
    Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
      if (is_down && path.find("_claims/") != std::string::npos) {
        ++num_asked;
        return Status::unavailable("the store is down:", path);
      }
      return ForwardingFiles::open_input(path);
    }
    Status rename_replace(const std::string& from, const std::string& to) override {
      on_replace(to);
      return ForwardingFiles::rename_replace(from, to);
    }

    std::atomic<bool> is_down = false;
    std::atomic<int> num_asked = 0;
    Hook<void(const std::string&)> on_replace = [](const std::string&) {};
  };

  Location output() { return {.store = store_.get(), .path = "out"}; }

  MemoryFileSystem memory_;
  Files files_{memory_};
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  FakeClock clock_;
};

TEST_F(TroubledClaims, a_store_that_is_down_is_asked_once_when_they_are_given_back) {
  {
    ItemClaims claims(output(), "one", clock_);
    for (int64_t item = 0; item < 5; ++item) {
      ASSERT_EQ(claims.take(item).value(), ClaimHolder::kOurs);
    }
    files_.is_down = true;
  }
  EXPECT_EQ(files_.num_asked, 1);
}

TEST_F(TroubledClaims, a_slow_renewal_holds_up_no_other_claim_and_brings_none_back) {
  ItemClaims claims(output(), "one", clock_);
  for (int64_t item = 0; item < 3; ++item) {
    ASSERT_EQ(claims.take(item).value(), ClaimHolder::kOurs);
  }
  std::promise<void> is_renewing, may_go_on;
  std::atomic<bool> is_first = true;
  files_.on_replace = [&](const std::string& path) {
    if (path.ends_with("_claims/000000") && is_first.exchange(false)) {
      is_renewing.set_value();
      may_go_on.get_future().wait();
    }
  };
  ASSERT_TRUE(clock_.await_waiting(1));
  clock_.advance(std::chrono::minutes(4));
  is_renewing.get_future().wait();
  claims.release(0);
  claims.release(1);
  EXPECT_EQ(claims.take(3).value(), ClaimHolder::kOurs);
  may_go_on.set_value();
  ASSERT_TRUE(clock_.await_waiting(1)) << "until the next renewal";
  EXPECT_FALSE(*memory_.exists("out/_claims/000000"));
  EXPECT_FALSE(*memory_.exists("out/_claims/000001"));
  EXPECT_TRUE(*memory_.exists("out/_claims/000002"));
  EXPECT_TRUE(look_at_claims(output(), clock_.wall()).may_live);
  EXPECT_FALSE(look_at_claims(output(), clock_.wall() + std::chrono::hours(1)).may_live);
  EXPECT_FALSE(look_at_claims({.store = store_.get(), .path = "elsewhere"}, clock_.wall()).may_live);
  files_.is_down = true;
  EXPECT_TRUE(look_at_claims(output(), clock_.wall()).may_live);
  files_.is_down = false;
}

TEST_F(TroubledClaims, one_that_is_anothers_by_now_is_renewed_no_more_unless_it_is_taken_again) {
  std::atomic<int> num_renewed = 0;
  ItemClaims claims(output(), "one", clock_);
  ASSERT_EQ(claims.take(0).value(), ClaimHolder::kOurs);
  files_.on_replace = [&](const std::string& path) { num_renewed += path.ends_with("_claims/000000") ? 1 : 0; };
  const auto after_a_renewal = [&] {
    ASSERT_TRUE(clock_.await_waiting(1));
    clock_.advance(std::chrono::minutes(4));
    ASSERT_TRUE(clock_.await_waiting(1));
  };
  after_a_renewal();
  EXPECT_EQ(num_renewed, 1);
  const Location claim = output() / "_claims" / "000000";
  ASSERT_TRUE(release_claim(claim, "one").is_ok());
  ASSERT_EQ(take_claim(claim, "another", clock_).value(), ClaimHolder::kOurs);
  after_a_renewal();
  EXPECT_EQ(read_claim(claim).value()->owner, "another");
  files_.is_down = true;  // So that it shows who is asked.
  after_a_renewal();
  EXPECT_EQ(files_.num_asked, 0);
  files_.is_down = false;
  ASSERT_TRUE(release_claim(claim, "another").is_ok());
  ASSERT_EQ(claims.take(0).value(), ClaimHolder::kOurs);
  after_a_renewal();
  EXPECT_EQ(num_renewed, 2);
}

TEST_F(JobRuns, claims_that_are_held_are_renewed) {
  const auto one = start("one");
  ASSERT_TRUE(take(*one).has_value());
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(clock_.await_waiting(1));
    clock_.advance(std::chrono::minutes(2));
  }
  ASSERT_TRUE(clock_.await_waiting(1));
  EXPECT_TRUE((*read_claim(claim(0)))->is_live(clock_.wall()));
}

TEST_F(JobRuns, a_claim_of_a_dead_process_of_this_machine_is_none) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string owner = make_claim_owner();
    _exit(write(ends[1], owner.data(), owner.size()) == static_cast<ssize_t>(owner.size()) ? 0 : 1);
  }
  char text[256] = {};
  const ssize_t num_bytes = read(ends[0], text, sizeof(text));
  ASSERT_GT(num_bytes, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(ends[0]);
  close(ends[1]);
  ASSERT_EQ(*take_claim(claim(0), std::string(text, static_cast<size_t>(num_bytes)), clock_), ClaimHolder::kOurs);
  const auto run = start(make_claim_owner());
  EXPECT_EQ(take(*run)->number, 0);
  const auto other = start(make_claim_owner());
  EXPECT_EQ(take(*other)->number, 1) << "that of a living one counts";
}

TEST_F(JobRuns, claims_of_garbage_stop_nobody) {
  for (const std::string& bytes : {std::string(), std::string("{"), std::string(10'000, 'x'), std::string("{\"owner\":1,\"expires\":2}"),
                                   std::string("{\"owner\":\"x\",\"expires\":9223372036854775807}")}) {
    ASSERT_TRUE(files_.remove_tree("out").is_ok());
    ASSERT_TRUE(write_file_atomic(files_, claim(0).path, bytes).is_ok());
    const auto run = start("one");
    EXPECT_EQ(take(*run)->number, 0) << bytes;
  }
}

/// What a job shares among an item's parts.
class TitledItem : public JobItem {
 public:
  using JobItem::JobItem;
  std::string title = {};
};

TEST_F(JobRuns, hand_out_the_items_of_a_jobs_own_kind) {
  auto planned = plan_job(*store_, {.limit = 8});
  ASSERT_TRUE(planned.is_ok() && (*planned)->prepare().is_ok());
  const auto make_item = [](const WorkItem& work) {
    auto item = std::make_shared<TitledItem>(work);
    item->title = "item " + std::to_string(work.number);
    return item;
  };
  JobRun run(*std::move(planned), RunTools{.clock = &clock_, .owner = "one", .make_item = make_item});
  std::vector<std::string> titles;
  while (auto item = run.next({}).value()) {
    auto& titled = dynamic_cast<TitledItem&>(*item);
    titles.push_back(titled.title);
    auto shard = write_item(run.plan(), titled.work);
    ASSERT_TRUE(shard.is_ok()) << shard.status().to_string();
    ASSERT_TRUE(run.commit(*item, std::make_unique<FinishedPart>(*std::move(shard), tally_of(titled.work))).is_ok());
  }
  EXPECT_EQ(titles, (std::vector<std::string>{"item 0", "item 1"}));
  EXPECT_TRUE(*files_.exists("out/part-000001-r00003.parquet"));
  EXPECT_TRUE(files_.list("out/_claims")->empty());
}

TEST(plan_memory, shares_the_budget_out_and_starts_fewer_items_where_writers_are_large) {
  const ItemMemory plan = plan_memory(int64_t{1} << 30, size_t{16} << 20);
  EXPECT_EQ(plan.total_bytes, size_t{1} << 30);
  EXPECT_EQ(plan.max_started_items, 8u);
  EXPECT_LE(plan.intake_bytes + plan.body_bytes + plan.work_bytes + plan.max_started_items * (size_t{16} << 20), plan.total_bytes);
  EXPECT_EQ(plan_memory(int64_t{1} << 30, size_t{100} << 20).max_started_items, 2u);
  EXPECT_EQ(plan_memory(1, size_t{1} << 30).max_started_items, 1u);
  EXPECT_GT(plan_memory(0, 1).total_bytes, 0u);
}

}  // namespace
}  // namespace darkroom
