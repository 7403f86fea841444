#include "darkroom/ingest/job_plan.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/files/paths.h"
#include "darkroom/ingest/claims.h"
#include "darkroom/stores/input_listing.h"
#include "read_many.h"
#include "summary_file.h"

namespace darkroom {
namespace {

constexpr const char* kJobFile = "_job.json";
// What other machines left without locks counts as dead after so long.
constexpr std::chrono::hours kLeftoverAge{24};
// Whoever changes the parts all the time writes the summary itself in the end.
constexpr int kMaxSummaryRounds = 8;

std::string print_job_file(const JobIdentity& identity, const std::string& job_hash) {
  const nlohmann::json job = {{"version", kJobFormatVersion}, {"job", job_hash}, {"identity", identity.to_json()}};
  return job.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// The files in a job's folder that are parts; none where there is no folder.
Result<std::vector<FileInfo>> list_parts_once(const Location& output) {
  Result<std::vector<FileInfo>> entries = output.store->list(output.path);
  if (!entries.is_ok()) {
    return entries.status().code() == StatusCode::kNotFound ? Result<std::vector<FileInfo>>(std::vector<FileInfo>()) : entries.status();
  }
  std::erase_if(*entries, [](const FileInfo& entry) { return entry.is_folder || !PartName::parse(file_name(entry.path)); });
  return entries;
}

/// The same, once more where a part moved aside while its next generation came behind the listing's back.
Result<std::vector<FileInfo>> list_parts(const Location& output) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> parts, list_parts_once(output));
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<PartName> missed, moved_parts_without_next(output, parts));
  return missed.empty() ? Result<std::vector<FileInfo>>(std::move(parts)) : list_parts_once(output);
}

Status another_item(const Location& part, int64_t names) {
  return Status::corrupt_data(
      "a part of the output folder cannot be used: move it away and run again to make it anew; where _superseded/ has an older generation "
      "of it, put that back first (why, item in its footer, part):",
      "its footer names another item, generation or number of rows", names, part.uri());
}

}  // namespace

Result<nlohmann::json> read_job_file(const Location& output) {
  const Location file = output / kJobFile;
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, file.store->read_small(file.path));
  const nlohmann::json job = parse_json(text);
  // Version 1 had the identity's fields at its top.
  const bool is_version_1 = job.is_object() && job.contains("verb") && job.contains("fingerprint");
  const nlohmann::json identity = is_version_1 ? job : job.is_object() ? job.value("identity", nlohmann::json()) : nlohmann::json();
  if (!identity.is_object() || !identity.contains("verb")) {
    return Status::corrupt_data("the job file is damaged; delete it and run again, it is rebuilt from the parts:", file.uri());
  }
  return identity;
}

Result<std::unique_ptr<JobPlan>> JobPlan::make(JobRequest request, const std::stop_token& stop) {
  DARKROOM_CHECK(request.identity.rows_per_file > 0, "a work item needs a row:", request.identity.rows_per_file);
  DARKROOM_RETURN_IF_ERROR(request.selection.validate());
  std::unique_ptr<JobPlan> plan(new JobPlan());
  plan->output_ = std::move(request.output);
  plan->identity_ = std::move(request.identity);
  plan->job_hash_ = plan->identity_.hash();
  plan->input_store_ = request.input_store;
  plan->selection_ = std::move(request.selection);
  plan->retry_ = std::move(request.retry);
  plan->redo_ = std::move(request.redo);
  plan->owner_ = request.owner.empty() ? owner_of_this_process() : std::move(request.owner);
  DARKROOM_RETURN_IF_ERROR(plan->check_job_file());
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> parts, list_parts(plan->output_));
  DARKROOM_RETURN_IF_ERROR(plan->find_inputs(request, parts, stop));
  plan->has_begun_ = !plan->are_pins_new_ || !parts.empty();
  DARKROOM_RETURN_IF_ERROR(plan->find_parts(std::move(parts), plan->inputs_, stop));
  plan->find_round();
  DARKROOM_RETURN_IF_ERROR(plan->count_rows());
  return plan;
}

Status JobPlan::check_job_file() const {
  const Result<nlohmann::json> job = read_job_file(output_);
  if (!job.is_ok()) {
    return job.status().code() == StatusCode::kNotFound ? Status::ok() : job.status();
  }
  return canonical_text(*job) == canonical_text(identity_.to_json()) ? Status::ok() : refuse_other_job(output_.uri(), *job, identity_);
}

Result<CommittedPart> JobPlan::check_record(const std::vector<JobInput>& inputs, const PartName& name, int64_t size_bytes,
                                            const PartRecord& record) const {
  const Location part = output_ / name.text();
  if (record.job != job_hash_) {
    return refuse_other_job(output_.uri(), record.identity, identity_);
  }
  // A cut part under the whole name would count as the whole item.
  if (record.item != name.item || record.generation != name.generation || record.considered != name.considered.value_or(record.num_rows)) {
    return another_item(part, record.item);
  }
  const bool is_known = name.item < num_items_of(inputs, identity_.rows_per_file);
  const WorkItem work = is_known ? find_item(inputs, identity_.rows_per_file, name.item) : WorkItem();
  if (!is_known || item_fingerprint(job_hash_, inputs[work.input], work) != record.fingerprint) {
    return refuse_other_job(output_.uri(), record.identity, identity_,
                            {fmt::format("input {} (the part {} was made of another list of inputs)", record.input.name, name.text())});
  }
  CommittedPart committed{.name = name, .size_bytes = size_bytes, .fingerprint = record.fingerprint, .tally = record.tally};
  committed.tally.failed_rows.clear();
  committed.retried = record.retried;
  committed.content_hash = record.content_hash;
  return committed;
}

Result<CommittedPart> JobPlan::read_part(const std::vector<JobInput>& inputs, const PartName& name, int64_t size_bytes) const {
  DARKROOM_ASSIGN_OR_RETURN(const PartRecord record, read_part_record(output_ / name.text()));
  return check_record(inputs, name, size_bytes, record);
}

/// Takes in those of the files that are not known yet, as parts of the items of `inputs`.
Status JobPlan::find_parts(std::vector<FileInfo> files, const std::vector<JobInput>& inputs, const std::stop_token& stop) {
  std::vector<FileInfo> superseded = take_out_superseded_parts(files);
  {
    // What is known already needs no look: parts are immutable.
    const std::lock_guard hold(mutex_);
    std::erase_if(files, [&](const FileInfo& file) {
      const auto known = parts_.find(PartName::parse(file_name(file.path))->item);
      return known != parts_.end() && known->second.name.text() == file_name(file.path);
    });
  }
  std::map<std::string, CommittedPart> summary;
  if (!files.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(summary, read_summary_file(output_));
  }
  std::vector<std::optional<CommittedPart>> found(files.size());
  DARKROOM_RETURN_IF_ERROR(read_many(files.size(), stop, [&](size_t i) -> Status {
    const PartName name = *PartName::parse(file_name(files[i].path));
    const auto entry = summary.find(name.text());  // No other file has the name, so that its entry is ours to take.
    if (entry != summary.end() && entry->second.size_bytes == files[i].size_bytes &&
        name.item < num_items_of(inputs, identity_.rows_per_file)) {
      const WorkItem work = find_item(inputs, identity_.rows_per_file, name.item);
      if (item_fingerprint(job_hash_, inputs[work.input], work) == entry->second.fingerprint &&
          entry->second.tally.adds_up_to(name.considered.value_or(work.whole_rows))) {
        found[i] = std::move(entry->second);
        return Status::ok();
      }
    }
    Result<CommittedPart> part = read_part(inputs, name, files[i].size_bytes);
    if (part.status().code() == StatusCode::kNotFound) {
      // A cut part goes at any time, when a longer one is there, and a generation, when the next one is.
      DARKROOM_ASSIGN_OR_RETURN(found[i], find_later(inputs, name));
      return found[i] || name.considered ? Status::ok() : part.status();
    }
    DARKROOM_ASSIGN_OR_RETURN(found[i], std::move(part));
    return Status::ok();
  }));
  for (std::optional<CommittedPart>& part : found) {
    if (part) {
      take_in(*std::exchange(part, std::nullopt));
    }
  }
  const std::lock_guard hold(mutex_);
  superseded_ = std::move(superseded);
  return Status::ok();
}

void JobPlan::take_in(CommittedPart part) {
  const std::lock_guard hold(mutex_);
  const int64_t item = part.name.item;
  const auto [known, is_new] = parts_.try_emplace(item, std::move(part));  // It leaves `part` alone where the item has one.
  if (!is_new && part.name.goes_before(known->second.name)) {
    known->second = std::move(part);
  }
}

int64_t JobPlan::num_items() const { return num_items_of(inputs_, identity_.rows_per_file); }

bool JobPlan::is_selected(int64_t number) const {
  return number % selection_.num_shards == selection_.shard &&
         (selection_.items.empty() || std::binary_search(selection_.items.begin(), selection_.items.end(), number));
}

std::optional<WorkItem> JobPlan::select(int64_t number) const {
  WorkItem work = item(number);
  const int64_t end = selection_.limit < 0 ? list_rows_ : std::min(selection_.limit, list_rows_);
  work.num_rows = std::min(work.whole_rows, end - work.list_row);
  return work.num_rows > 0 && is_selected(number) ? std::optional(work) : std::nullopt;
}

std::optional<WorkItem> JobPlan::next_pending(int64_t number) const {
  for (; number < num_items(); ++number) {
    if (std::optional<WorkItem> work = find_work(number)) {
      return work;
    }
  }
  return std::nullopt;
}

std::optional<WorkItem> JobPlan::pending_item(int64_t number) const {
  return number >= 0 && number < num_items() ? find_work(number) : std::nullopt;
}

std::vector<int64_t> JobPlan::pending_items() const {
  std::vector<int64_t> numbers;
  for (auto item = next_pending(0); item; item = next_pending(item->number + 1)) {
    numbers.push_back(item->number);
  }
  return numbers;
}

Status JobPlan::count_rows() {
  if (!selection_.items.empty() && selection_.items.back() >= num_items()) {
    return Status::failed_precondition("--items names an item that the job does not have (items of the job, asked for):", num_items(),
                                       selection_.items.back());
  }
  int64_t num_unmade = 0;
  for (int64_t number = 0; number < num_items(); ++number) {
    const std::optional<WorkItem> selected = select(number);
    if (!selected) {
      continue;
    }
    const std::optional<WorkItem> work = find_work(number);
    num_pending_ += work ? 1 : 0;
    if (makes_parts()) {
      num_rows_ += selected->num_rows;
      num_rows_before_ += work ? 0 : selected->num_rows;
    } else {
      const auto part = parts_.find(number);
      num_rows_ += work ? work->num_rows : 0;
      num_unmade += retry_.is_empty() ? 0 : part == parts_.end() || part->second.name.considered ? 1 : 0;
    }
  }
  if (num_unmade > 0) {
    log_warning("{} items have no whole part yet and are left as they are; run the command without --retry-failed to make them",
                num_unmade);
  }
  return Status::ok();
}

PendingWork JobPlan::pending_work() const {
  const auto is_object = [](const Location& place) { return !place.store->local_path(place.path).has_value(); };
  PendingWork work{.num_inputs = static_cast<int64_t>(inputs_.size()), .writes_objects = is_object(output_)};
  double input_bytes = 0;
  for (auto item = next_pending(0); item; item = next_pending(item->number + 1)) {
    const JobInput& input = inputs_[item->input];
    work.num_rows += item->num_rows;
    if (item->generation > 0) {
      const std::lock_guard hold(mutex_);
      work.rewritten_bytes += parts_.at(item->number).size_bytes;
    }
    input_bytes += static_cast<double>(input.size_bytes) * static_cast<double>(item->num_rows) / static_cast<double>(input.num_rows);
    work.reads_objects = work.reads_objects || is_object(input_place(*item));
  }
  work.input_bytes = static_cast<int64_t>(input_bytes);
  const std::lock_guard hold(mutex_);
  for (const auto& [number, part] : parts_) {
    work.part_rows_in += part.tally.rows_in;
    work.part_rows_out += part.tally.rows_out;
    work.part_bytes += part.size_bytes;
  }
  return work;
}

Status JobPlan::prepare(const std::stop_token& stop) {
  const auto now = std::chrono::system_clock::now();
  const ClaimsSeen seen = look_at_claims(output_, now);
  const std::chrono::seconds age = seen.may_live ? kLeftoverAgeBesideOthers : kLeftoverAge;
  DARKROOM_RETURN_IF_ERROR(output_.store->sweep(output_.path, age, now).status());
  if (const Location claims = claims_folder(output_); seen.have_leftovers) {
    if (const Status swept = claims.store->sweep(claims.path, age, now).status(); !swept.is_ok()) {
      log_detail("{}: leftovers of claims stay: {}", identity_.verb, swept.message());  // Claims only save work.
    }
  }
  const Location job_file = output_ / kJobFile;
  DARKROOM_ASSIGN_OR_RETURN(const bool has_job, job_file.exists());
  if (!has_job) {
    DARKROOM_RETURN_IF_ERROR(job_file.store->create_small(job_file.path, print_job_file(identity_, job_hash_)).status());
  }
  DARKROOM_RETURN_IF_ERROR(check_job_file());  // Another job may have been faster.
  if (are_pins_new_ || !new_pins_.empty()) {
    if (are_pins_new_) {
      DARKROOM_RETURN_IF_ERROR(remove_pin_extensions(output_));
    }
    DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, write_pins(output_, identity_, are_pins_new_ ? 0 : num_pin_lists_, new_pins_));
    if (outcome == PublishOutcome::kAlreadyThere || !are_pins_new_) {
      DARKROOM_ASSIGN_OR_RETURN(const auto winner, read_pins(output_, identity_));
      const auto is_same = [](const JobInput& a, const JobInput& b) {
        return a.name == b.name && a.size_bytes == b.size_bytes && a.tail_sha256 == b.tail_sha256 && a.num_rows == b.num_rows;
      };
      // What others appended behind ours came late.
      if (!winner || winner->inputs.size() < inputs_.size() ||
          !std::equal(inputs_.begin(), inputs_.end(), winner->inputs.begin(), is_same)) {
        return Status::unavailable("another process pinned another list of inputs at the same moment; run the same command again (folder):",
                                   output_.uri());
      }
    }
    new_pins_.clear();
    are_pins_new_ = false;
  }
  return retire_leftovers(stop);
}

PartRecord JobPlan::record_of(const WorkItem& item, const ItemTally& tally) const {
  const JobInput& input = inputs_[item.input];
  PartRecord record{.job = job_hash_,
                    .identity = identity_.to_json(),
                    .fingerprint = item_fingerprint(job_hash_, input, item),
                    .item = item.number,
                    .generation = item.generation,
                    .considered = item.generation == 0 ? item.num_rows : item.whole_rows,
                    .input = input,
                    .first_row = item.first_row,
                    .num_rows = item.whole_rows,
                    .tally = tally};
  if (item.generation > 0) {
    const std::lock_guard hold(mutex_);
    const auto base = parts_.find(item.number);
    record.retried = base == parts_.end() ? RetryRounds() : base->second.retried;
    if (!retry_.is_empty()) {
      record.retried[retry_.text()] = retry_round_;
    }
  }
  return record;
}

KeyValues JobPlan::footer_of(const WorkItem& item, const ItemTally& tally, KeyValues more_footer) const {
  KeyValues footer = {{kShardKey, print_part_record(record_of(item, tally))}};
  footer.insert(footer.end(), std::make_move_iterator(more_footer.begin()), std::make_move_iterator(more_footer.end()));
  return footer;
}

Result<PublishOutcome> JobPlan::publish(const WorkItem& item, const ItemTally& tally, FinishedShard shard) {
  DARKROOM_ASSIGN_OR_RETURN(const PublishOutcome outcome, shard.object->publish());
  shard.object.reset();
  DARKROOM_RETURN_IF_ERROR(settle(item, record_of(item, tally), outcome, shard.num_bytes, std::move(shard.content_hash)));
  return outcome;
}

/// Takes in what a publication left under the item's name.
Status JobPlan::settle(const WorkItem& item, const PartRecord& record, PublishOutcome outcome, int64_t num_bytes,
                       std::string content_hash) {
  const PartName name = *PartName::parse(item.part_name());
  if (outcome == PublishOutcome::kAlreadyThere) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, is_committed_now(item));
    if (!is_there) {
      return Status::unavailable("a part that another process had published is gone; run the same command again (part):",
                                 (output_ / name.text()).uri());
    }
    const std::lock_guard hold(mutex_);
    ++num_lost_races_;
  } else {
    DARKROOM_ASSIGN_OR_RETURN(CommittedPart part, check_record(inputs_, name, num_bytes, record));
    part.content_hash = std::move(content_hash);
    take_in(std::move(part));
    const std::lock_guard hold(mutex_);
    replaced_.insert(item.number);
  }
  if (!name.considered) {
    return Status::ok();
  }
  // A run without the limit may have been faster: its part counts, and this one goes.
  DARKROOM_ASSIGN_OR_RETURN(const bool has_whole, (output_ / PartName{.item = item.number, .container = item.container}.text()).exists());
  if (has_whole) {
    DARKROOM_RETURN_IF_ERROR(is_committed_now(item).status());
    return output_.store->remove((output_ / name.text()).path);
  }
  return Status::ok();
}

int64_t JobPlan::num_lost_races() const {
  const std::lock_guard hold(mutex_);
  return num_lost_races_;
}

std::map<int64_t, CommittedPart> JobPlan::parts() const {
  const std::lock_guard hold(mutex_);
  return parts_;
}

int64_t JobPlan::num_parts() const {
  const std::lock_guard hold(mutex_);
  return static_cast<int64_t>(parts_.size());
}

std::optional<CommittedPart> JobPlan::find_part(int64_t item) const {
  const std::lock_guard hold(mutex_);
  const auto part = parts_.find(item);
  return part == parts_.end() ? std::nullopt : std::optional(part->second);
}

ItemTally JobPlan::total() const {
  const std::lock_guard hold(mutex_);
  ItemTally total;
  for (const auto& [item, part] : parts_) {
    total.add(part.tally);
  }
  return total;
}

Status JobPlan::refresh(const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> files, list_parts(output_));
  std::set<std::string> names;
  for (const FileInfo& file : files) {
    names.insert(file_name(file.path));
  }
  {
    // A cut part that we know may have gone for a longer one, and any part by hand.
    const std::lock_guard hold(mutex_);
    std::erase_if(parts_, [&](const auto& known) { return !names.contains(known.second.name.text()); });
  }
  const bool is_extended =
      std::ranges::any_of(files, [&](const FileInfo& file) { return PartName::parse(file_name(file.path))->item >= num_items(); });
  std::vector<JobInput> longer;
  if (is_extended) {
    DARKROOM_ASSIGN_OR_RETURN(longer, read_longer_list());
  }
  DARKROOM_RETURN_IF_ERROR(find_parts(std::move(files), is_extended ? longer : inputs_, stop));
  return retire_replaced(stop);
}

Status JobPlan::write_summary(const std::stop_token& stop) {
  const auto print = [&] {
    const std::lock_guard hold(mutex_);
    return print_summary_file(job_hash_, parts_);
  };
  std::string written;  // Its hash: texts and parts are large, so that one of each is held.
  for (int round = 0; round < kMaxSummaryRounds; ++round) {
    DARKROOM_RETURN_IF_ERROR(refresh(stop));
    const std::string text = print();
    std::string hash = sha256_hex(text);
    if (hash == written) {
      break;
    }
    const Location file = output_ / kSummaryFile;
    DARKROOM_RETURN_IF_ERROR(file.store->replace_small(file.path, text));
    written = std::move(hash);
  }
  return Status::ok();
}

}  // namespace darkroom
