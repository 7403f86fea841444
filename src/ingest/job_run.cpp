#include "darkroom/ingest/job_run.h"

#include <arrow/memory_pool.h>
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/stores/s3_store.h"

namespace darkroom {
namespace {

// How long to wait for others before each look, doubled up to the longest.
constexpr std::chrono::milliseconds kFirstLook{100};
constexpr std::chrono::milliseconds kLongestWait{10'000};
constexpr size_t kMaxLiveClaimsALook = 16;
constexpr size_t kMaxStartedItems = 8;

/// Gives what a finished item held back to the system: otherwise the allocators keep the peaks of several items at once.
void release_freed_memory() {
  arrow::default_memory_pool()->ReleaseUnused();
  malloc_trim(0);
}

}  // namespace

ItemMemory plan_memory(int64_t memory_bytes, size_t writer_bytes) {
  const size_t total = memory_bytes > 0 ? static_cast<size_t>(memory_bytes) : default_memory_budget_bytes();
  return {.total_bytes = total,
          .intake_bytes = total / 8,
          .body_bytes = total / 2,
          .work_bytes = total / 8,
          .max_started_items = std::clamp<size_t>(total / 4 / std::max<size_t>(writer_bytes, 1), 1, kMaxStartedItems)};
}

ReadAheadShare plan_read_ahead(const JobPlan& plan, size_t row_bytes, int num_readers) {
  bool is_remote = false;
  for (auto item = plan.next_pending(0); item && !is_remote; item = plan.next_pending(item->number + 1)) {
    const Location place = plan.input_place(*item);
    is_remote = !place.store->local_path(place.path).has_value();
  }
  const int64_t share = static_cast<int64_t>(row_bytes) / (8 * num_readers);
  if (!is_remote || share < 2 * kReadAheadPieceBytes) {  // Fewer at once are none, of which small ones only cost requests.
    return {};
  }
  const int64_t reader_bytes = std::min(share, kReadAheadBytes);
  return {.reader_bytes = reader_bytes, .total_bytes = static_cast<size_t>(2 * num_readers * reader_bytes)};
}

size_t upload_bytes(const Location& output) {
  const bool is_local = output.store->local_path(output.path).has_value();
  return is_local ? 0 : 3 * static_cast<size_t>(S3Options().part_bytes);
}

SpanAttributes JobItem::describe() const { return {{"darkroom.item", work.number}, {"darkroom.rows", work.num_rows}}; }

SpanAttributes FinishedPart::describe() const {
  SpanAttributes attributes = {{"darkroom.rows_in", tally.rows_in}, {"darkroom.rows_out", tally.rows_out}};
  for (const auto& [code, count] : tally.rows_by_error) {
    attributes.emplace_back("darkroom.rows_by_error." + code, count);
  }
  return attributes;
}

JobRun::JobRun(std::unique_ptr<JobPlan> plan, RunTools tools)
    : plan_(std::move(plan)), tools_(std::move(tools)), claims_(plan_->output(), tools_.owner, *tools_.clock) {}

/// The item when it is ours to do; nothing when it is done. REQUIRES: taking_ is held.
Result<std::optional<WorkItem>> JobRun::try_item(const WorkItem& item) {
  // Only a look after the claim sees the part of an owner who gave his back.
  DARKROOM_ASSIGN_OR_RETURN(const bool is_done, plan_->is_committed_now(item));
  if (!is_done) {
    return std::optional(item);
  }
  claims_.release(item.number);
  const std::optional<WorkItem> left = work_left(item);
  const std::lock_guard hold(mutex_);
  rows_of_others_ += std::max<int64_t>(0, item.num_rows - (left ? left->num_rows : 0));
  return std::optional<WorkItem>();
}

/// What remains of an item that others have committed: rows that they were not asked to redo.
std::optional<WorkItem> JobRun::work_left(const WorkItem& item) const {
  const std::optional<WorkItem> next = plan_->next_pending(item.number);
  return next && next->number == item.number ? next : std::nullopt;
}

ClaimHolder JobRun::try_claim(int64_t item) {
  const Result<ClaimHolder> holder = claims_.take(item);
  if (holder.is_ok()) {
    return *holder;
  }
  // Claims save work only: without them the same parts come out. A stop cuts them, too, and says so itself.
  if (holder.status().code() != StatusCode::kCancelled && !std::exchange(has_warned_of_claims_, true)) {
    log_warning("an item cannot be claimed; processes that share the job may do the same work twice: {}", holder.status().message());
  }
  return ClaimHolder::kOurs;
}

Result<std::optional<WorkItem>> JobRun::take_unclaimed() {
  while (const std::optional<WorkItem> item = plan_->next_pending(next_item_)) {
    next_item_ = item->number + 1;
    if (try_claim(item->number) == ClaimHolder::kOthers) {
      with_others_.push_back(*item);
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<WorkItem> ours, try_item(*item));
    if (ours) {
      return ours;
    }
    next_item_ = item->number;  // Once more: work may be left. The part that was found is known now, so that this ends.
  }
  return std::optional<WorkItem>();
}

/// Looks once at what others were at, until so many are found that they are at still; the next look begins behind these.
Result<std::optional<WorkItem>> JobRun::take_from_others() {
  size_t num_live = 0;
  for (size_t left = with_others_.size(); left > 0 && num_live < kMaxLiveClaimsALook; --left) {
    const WorkItem item = with_others_.front();
    with_others_.pop_front();
    DARKROOM_ASSIGN_OR_RETURN(const bool is_done, plan_->is_committed_now(item));
    if (!is_done && try_claim(item.number) == ClaimHolder::kOthers) {
      with_others_.push_back(item);
      ++num_live;
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<WorkItem> ours, try_item(item));
    if (ours) {
      return ours;
    }
    if (const std::optional<WorkItem> more = work_left(item)) {
      with_others_.push_front(*more);
      ++left;
    }
  }
  return std::optional<WorkItem>();
}

/// What is said of an item that is not to do: its part's counts, or that there is no such item.
Status JobRun::answer_settled(int64_t number) {
  const std::optional<CommittedPart> part = plan_->find_part(number);
  ItemAnswer answer{.item = number, .outcome = part ? ItemOutcome::kThere : ItemOutcome::kUnknown};
  if (part) {
    answer.tally = part->tally;
  }
  return tools_.orders->answer(answer);
}

/// The item when it is ours to do; else it is answered.
Result<std::optional<WorkItem>> JobRun::try_ordered(int64_t number) {
  const std::optional<WorkItem> item = plan_->pending_item(number);
  if (!item) {
    DARKROOM_RETURN_IF_ERROR(answer_settled(number));
    return std::optional<WorkItem>();
  }
  {
    const std::lock_guard hold(mutex_);
    if (!ordered_.insert(number).second) {
      DARKROOM_RETURN_IF_ERROR(tools_.orders->answer({.item = number, .outcome = ItemOutcome::kBusy}));
      return std::optional<WorkItem>();
    }
  }
  const bool is_busy = try_claim(number) == ClaimHolder::kOthers;
  std::optional<WorkItem> ours;
  if (!is_busy) {
    DARKROOM_ASSIGN_OR_RETURN(ours, try_item(*item));
  }
  if (!ours) {
    const std::lock_guard hold(mutex_);
    ordered_.erase(number);
  }
  if (!ours) {
    DARKROOM_RETURN_IF_ERROR(is_busy ? tools_.orders->answer({.item = number, .outcome = ItemOutcome::kBusy}) : answer_settled(number));
  }
  return ours;
}

Result<std::optional<WorkItem>> JobRun::take_ordered(const std::stop_token& stop) {
  if (!std::exchange(is_taking_orders_, true)) {
    DARKROOM_RETURN_IF_ERROR(tools_.orders->ready(
        {.num_items = plan_->num_items(), .num_rows = plan_->num_rows(), .open_items = print_items(plan_->pending_items())}));
  }
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> number, tools_.orders->next(stop));
    if (!number) {
      return std::optional<WorkItem>();
    }
    DARKROOM_ASSIGN_OR_RETURN(std::optional<WorkItem> item, try_ordered(*number));
    if (item) {
      return item;
    }
  }
}

Result<std::optional<WorkItem>> JobRun::take_item(const std::stop_token& stop) {
  const std::lock_guard hold(taking_);
  if (tools_.orders != nullptr) {
    return take_ordered(stop);
  }
  auto wait = kFirstLook;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(std::optional<WorkItem> item, take_unclaimed());
    if (!item) {
      DARKROOM_ASSIGN_OR_RETURN(item, take_from_others());
    }
    if (item || with_others_.empty()) {
      return item;
    }
    log_detail("waiting for {} items that other processes are at", with_others_.size());
    if (!tools_.clock->sleep_until(tools_.clock->now() + wait, stop)) {
      return Status::cancelled("stopped while others worked on item", with_others_.front().number);
    }
    wait = std::min<std::chrono::milliseconds>(2 * wait, kLongestWait);
  }
}

Result<std::shared_ptr<ItemInWork>> JobRun::next(std::stop_token stop) {
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<WorkItem> work, take_item(stop));
  if (!work) {
    return std::shared_ptr<ItemInWork>();
  }
  return std::shared_ptr<ItemInWork>(tools_.make_item ? tools_.make_item(*work) : std::make_shared<JobItem>(*work));
}

Status JobRun::commit(ItemInWork& item, std::unique_ptr<FinishedItem> finished) {
  const WorkItem& work = static_cast<JobItem&>(item).work;
  auto& part = static_cast<FinishedPart&>(*finished);
  const ItemAnswer answer{.item = work.number, .outcome = ItemOutcome::kCommitted, .tally = part.tally, .num_bytes = part.shard.num_bytes};
  DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, plan_->publish(work, part.tally, std::move(part.shard)));
  finished.reset();
  claims_.release(work.number);
  release_freed_memory();
  if (tools_.orders == nullptr) {
    return {};
  }
  {
    const std::lock_guard hold(mutex_);
    ordered_.erase(work.number);
  }
  return outcome == PublishOutcome::kAlreadyThere ? answer_settled(work.number) : tools_.orders->answer(answer);
}

void JobRun::give_up() {
  if (tools_.stores != nullptr) {
    tools_.stores->give_up();
  }
}

Status JobRun::ended(Status status) {
  if (!status.is_ok() && status.code() != StatusCode::kCancelled) {
    give_up();
  }
  return status;
}

void JobRun::count_row(const RowError* error) {
  std::lock_guard lock(mutex_);
  ++rows_done_;
  if (error != nullptr) {
    ++errors_[error->name()];
  }
}

void JobRun::count_rows(int64_t num_rows, const RowsByError& failed) {
  std::lock_guard lock(mutex_);
  rows_done_ += num_rows;
  for (const auto& [code, count] : failed) {
    errors_[code] += count;
  }
}

void JobRun::count_filtered(int64_t num_rows) {
  std::lock_guard lock(mutex_);
  rows_done_ += num_rows;
  rows_filtered_ += num_rows;
}

void JobRun::count_bytes(int64_t num_bytes) {
  std::lock_guard lock(mutex_);
  bytes_done_ += num_bytes;
}

ProgressState JobRun::progress() const {
  std::lock_guard lock(mutex_);
  const int64_t rows_before = plan_->num_rows_before() + rows_of_others_;
  return {.rows_done = rows_before + rows_done_,
          .rows_total = plan_->num_rows(),
          .rows_before = rows_before,
          .rows_filtered = rows_filtered_,
          .num_bytes = bytes_done_,
          .queue_depth = 0,
          .rows_by_error = errors_};
}

void JobRun::fill(StageSummary& summary) const {
  const ItemTally total = plan_->total();
  summary.rows_in = total.rows_in;
  summary.rows_out = total.rows_out;
  summary.rows_by_error = total.rows_by_error;
  summary.rows_filtered = total.rows_filtered;
  summary.num_invalid_captions = total.num_invalid_captions;
  summary.num_unported_captions = total.num_unported_captions;
  summary.num_parts = plan_->num_parts();
  summary.num_items = plan_->num_items();
  summary.num_pending = plan_->num_pending();
  std::lock_guard lock(mutex_);
  summary.rows_this_run = rows_done_;
  summary.bytes = bytes_done_;
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

MetricsRegistry::Collection collect_job_metrics(MetricsRegistry& metrics, const JobRun& run) {
  auto read = [&run, counted = RowsByError()](MetricsRegistry& registry) mutable {
    const ProgressState state = run.progress();
    registry.gauge("darkroom_job_rows", "Rows of the whole job, as far as they are known.").set(static_cast<double>(state.rows_total));
    registry.gauge("darkroom_job_rows_done", "Rows of the whole job that are done, by whom and when ever.")
        .set(static_cast<double>(state.rows_done));
    for (const auto& [code, count] : state.rows_by_error) {
      Counter& errors =
          registry.counter("darkroom_row_errors_total", "Rows without a result, by the code of their failure.", {{"code", code}});
      errors.add(count - std::exchange(counted[code], count));
    }
  };
  return metrics.collect(std::move(read));
}

void log_stages(const std::string& name, const StageSummary& summary) {
  for (const StageSnapshot& stage : summary.stages) {
    log_detail("{}: stage {}: {} workers, {} rows, {:.1f} MB, {:.1f} s busy", name, stage.name, stage.num_workers, stage.num_rows,
               static_cast<double>(stage.num_bytes) * 1e-6, stage.busy_seconds);
  }
  for (const HostCounts& host : summary.hosts) {
    log_detail("{}: host {}: {} rows, {} failed, {:.1f} s on the wire", name, host.host, host.num_rows, host.num_failed, host.seconds);
  }
}

Status with_resume_advice(const Status& status, const std::string& output) {
  if (status.is_ok()) {
    return status;
  }
  return Status::make(status.code(),
                      fmt::format("{}; what was committed is safe: {}run the same command again to go on (output folder):",
                                  status.message(), status.code() == StatusCode::kCancelled ? "" : "put it right and "),
                      output);
}

}  // namespace darkroom
