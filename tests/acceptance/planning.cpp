// Planning jobs over folders of many inputs that take no room (tests/support/synthetic_files.h), for tests/acceptance/planning.py. Prints
// one line of JSON.
// usage: planning start FILES             plans and pins a job: seconds, largest resident size
//        planning commits SMALL LARGE N   N commits each of a job of SMALL inputs and of one of LARGE, in turn: processor time
//        planning stop FILES AFTER        is told to stop when it opens its AFTER-th input: seconds from then to its end

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/forwarding_files.h"
#include "support/planned_jobs.h"
#include "support/synthetic_files.h"

namespace darkroom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRowsPerInput = 10'000;
constexpr int64_t kCommitsABatch = 50;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Of all threads of this process.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// The largest resident size of this program, not of the one that started it.
double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) {
      return static_cast<double>(std::stoll(line.substr(line.find_first_of("0123456789")))) * 1024 / 1e6;
    }
  }
  return 0;
}

void require(const Status& status) {
  if (!status.is_ok()) {
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    std::exit(1);
  }
}

/// Asks for a stop when the `stop_at`-th file is opened to be read.
class StoppedFiles final : public ForwardingFiles {
 public:
  StoppedFiles(FileSystem& files, int64_t stop_at) : ForwardingFiles(files), stop_at_(stop_at) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    if (++num_opened_ == stop_at_) {
      stopped_at = Clock::now();
      stop.request_stop();
    }
    return ForwardingFiles::open_input(path);
  }
  Clock::time_point stopped_at;  // Written before the stop, read after it has been seen.
  std::stop_source stop;

 private:
  const int64_t stop_at_;
  std::atomic<int64_t> num_opened_ = 0;
};

/// A folder of inputs and an output in memory.
struct World {
  explicit World(int64_t num_inputs, int64_t stop_at = -1) {
    add_input(memory, "one.parquet", kRowsPerInput);
    inputs = std::make_unique<SyntheticFiles>(memory, "in", num_inputs, read_file(memory, "in/one.parquet").value());
    require(memory.remove_tree("in"));
    files = std::make_unique<StoppedFiles>(*inputs, stop_at);
    store = make_posix_store(*files, "memory");
  }
  Result<std::unique_ptr<JobPlan>> plan() { return plan_job(*store, {}, small_job(kRowsPerInput), files->stop.get_token()); }

  MemoryFileSystem memory;
  std::unique_ptr<SyntheticFiles> inputs;
  std::unique_ptr<StoppedFiles> files;
  std::unique_ptr<Store> store;
};

/// As a run of the job begins.
std::unique_ptr<JobPlan> begin_job(World& world) {
  auto planned = world.plan();
  require(planned.status());
  require((*planned)->prepare());
  return *std::move(planned);
}

nlohmann::json run_start(int64_t num_inputs) {
  World world(num_inputs);
  const auto start = Clock::now();
  const auto plan = begin_job(world);
  return {{"seconds", seconds_since(start)}, {"peak_mb", peak_mb()}, {"items", plan->num_items()}, {"rows", plan->num_rows()}};
}

/// Commits the next items, whose shards are written before the time begins: processor seconds a commit.
double time_commits(JobPlan& plan, int64_t& next) {
  std::vector<WorkItem> items;
  std::vector<FinishedShard> shards;
  for (int64_t i = 0; i < kCommitsABatch; ++i) {
    const auto item = plan.next_pending(next);
    if (!item) {
      require(Status::invalid_argument("fewer items than commits are asked for (item):", next));
    }
    auto shard = write_item(plan, *item);
    require(shard.status());
    items.push_back(*item);
    shards.push_back(*std::move(shard));
    next = item->number + 1;
  }
  const double start = cpu_seconds();
  for (size_t i = 0; i < items.size(); ++i) {
    require(plan.publish(items[i], tally_of(items[i]), std::move(shards[i])).status());
    (void)plan.next_pending(items[i].number);  // As a run asks for what comes then.
  }
  return (cpu_seconds() - start) / static_cast<double>(kCommitsABatch);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

nlohmann::json run_commits(int64_t num_small, int64_t num_large, int64_t num_commits) {
  World small(num_small);
  World large(num_large);
  const auto of_small = begin_job(small);
  const auto of_large = begin_job(large);
  int64_t next_of_small = 0;
  int64_t next_of_large = 0;
  std::vector<double> small_seconds;
  std::vector<double> large_seconds;
  for (int64_t done = 0; done < num_commits; done += kCommitsABatch) {  // In turn: what else the machine does is the same for both.
    small_seconds.push_back(time_commits(*of_small, next_of_small));
    large_seconds.push_back(time_commits(*of_large, next_of_large));
  }
  return {{"commits", num_commits}, {"small_us", 1e6 * median(small_seconds)}, {"large_us", 1e6 * median(large_seconds)}};
}

nlohmann::json run_stop(int64_t num_inputs, int64_t after) {
  World world(num_inputs, after);
  const auto start = Clock::now();
  const Status status = world.plan().status();
  const double seconds = seconds_since(start);
  if (status.code() != StatusCode::kCancelled) {
    require(status.is_ok() ? Status::internal("planning does not end as stopped (inputs, stop at):", num_inputs, after) : status);
  }
  const double before = std::chrono::duration<double>(world.files->stopped_at - start).count();
  return {{"seconds_before", before}, {"seconds", seconds - before}};
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  nlohmann::json said;
  if (words.size() == 2 && words[0] == "start") {
    said = darkroom::run_start(std::stoll(words[1]));
  } else if (words.size() == 4 && words[0] == "commits") {
    said = darkroom::run_commits(std::stoll(words[1]), std::stoll(words[2]), std::stoll(words[3]));
  } else if (words.size() == 3 && words[0] == "stop") {
    said = darkroom::run_stop(std::stoll(words[1]), std::stoll(words[2]));
  } else {
    std::fprintf(stderr, "usage: planning start FILES | commits SMALL LARGE N | stop FILES AFTER\n");
    return 2;
  }
  std::printf("%s\n", said.dump().c_str());
  return 0;
}
