#include "darkroom/ingest/job_plan.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"
#include "darkroom/ingest/claims.h"
#include "read_many.h"

// Generations of a plan's parts: which rows are redone, what they are redone from, and where what was replaced goes.

namespace darkroom {
namespace {

/// The last round in which rows with these codes were redone.
int64_t round_of(const CommittedPart& part, const RetryCodes& codes) {
  const auto round = part.retried.find(codes.text());
  return round == part.retried.end() ? 0 : round->second;
}

/// Whether what lies aside under a part's name can be no generation of its job: left by a job that was here before, or unreadable.
Result<bool> is_of_no_use(const Location& aside, const Location& part) {
  const Result<PartRecord> there = read_part_record(aside);
  if (!there.is_ok()) {
    return there.status().code() == StatusCode::kCorruptData ? Result<bool>(true) : there.status();
  }
  DARKROOM_ASSIGN_OR_RETURN(const PartRecord record, read_part_record(part));
  return there->job != record.job;
}

}  // namespace

Status retire_part(const Location& output, const PartName& name) {
  const Location part = output / name.text();
  if (name.considered) {
    return output.store->remove(part.path);
  }
  const Location aside = output / kSupersededFolder / name.text();
  Status moved = output.store->move_object(part.path, aside.path);
  if (moved.code() == StatusCode::kAlreadyExists) {
    const Result<bool> is_stale = is_of_no_use(aside, part);
    // Another process may have moved the part between our looks, so nothing is removed aside by its name. What is no stale one is ours:
    // then a process that had lost its claim made the part once more, beside the next generation, and nobody takes it.
    moved = !is_stale.is_ok() ? is_stale.status()
            : *is_stale       ? output.store->move_over(part.path, aside.path)
                              : output.store->remove(part.path);
  }
  return moved.code() == StatusCode::kNotFound ? Status::ok() : moved;
}

/// What is to be done about an item, as far as is known; nothing where it is done, or not selected.
std::optional<WorkItem> JobPlan::find_work(int64_t number) const {
  std::optional<WorkItem> work = select(number);
  if (!work) {
    return std::nullopt;
  }
  const std::lock_guard hold(mutex_);
  const auto part = parts_.find(number);
  if (makes_parts()) {
    return part == parts_.end() || !part->second.covers(*work) ? work : std::nullopt;
  }
  if (part == parts_.end() || rows_to_redo(part->second) == 0) {
    return std::nullopt;
  }
  if (!retry_.is_empty() && round_of(part->second, retry_) >= retry_round_) {
    return std::nullopt;
  }
  work->num_rows = rows_to_redo(part->second);
  work->generation = part->second.name.generation + 1;
  return work;
}

/// A part that --limit cut is none to redo: it goes when the whole one is made.
int64_t JobPlan::rows_to_redo(const CommittedPart& part) const {
  if (const auto item = redo_.find(part.name.item); item != redo_.end()) {
    return item->second.generation == part.name.generation && !part.name.considered ? item->second.num_rows : 0;
  }
  int64_t num_rows = 0;
  for (const auto& [code, count] : part.tally.rows_by_error) {
    num_rows += !part.name.considered && retry_.contain(code) ? count : 0;
  }
  return num_rows;
}

/// The round is known from the parts alone: the last one that any part was redone in, unless nothing selected is left to do in it.
void JobPlan::find_round() {
  if (retry_.is_empty()) {
    return;
  }
  for (const auto& [number, part] : parts_) {
    retry_round_ = std::max(retry_round_, round_of(part, retry_));
  }
  const bool is_open = std::ranges::any_of(parts_, [&](const auto& known) { return find_work(known.first).has_value(); });
  retry_round_ += is_open ? 0 : 1;
}

/// This tidies up: a part that cannot be moved stays, and readers leave it.
Status JobPlan::try_to_retire(const PartName& name) {
  const Status retired = retire_part(output_, name);
  if (retired.is_ok() || retired.code() == StatusCode::kCancelled) {
    return retired;
  }
  if (!has_warned_of_moves_.exchange(true)) {
    log_warning("older parts stay beside the newer ones, and readers leave them: {}", retired.message());
  }
  return Status::ok();
}

/// Of those parts that readers leave, the ones that `takes` is true of.
template <typename Takes>
std::vector<PartName> JobPlan::take_superseded(const Takes& takes) {
  const std::lock_guard hold(mutex_);
  std::vector<PartName> names;
  for (const FileInfo& file : std::exchange(superseded_, {})) {
    if (const PartName name = *PartName::parse(file_name(file.path)); name.considered || takes(name)) {
      names.push_back(name);
    }
  }
  return names;
}

/// What dead runs left of the selected items. Of many processes that begin together one has an item's claim, and moves its parts; who works
/// on the item moves them at its own end.
Status JobPlan::retire_leftovers(const std::stop_token& stop) {
  const std::vector<PartName> names = take_superseded([&](const PartName& name) { return is_selected(name.item); });
  if (names.empty()) {
    return Status::ok();
  }
  ItemClaims claims(output_, owner_, system_clock());
  return read_many(names.size(), stop, [&](size_t i) -> Status {
    if (names[i].considered) {
      return try_to_retire(names[i]);
    }
    const Result<ClaimHolder> holder = claims.take(names[i].item);  // Saves work only: without it the move ends as well.
    if (holder.is_ok() && *holder == ClaimHolder::kOthers) {
      return Status::ok();
    }
    const Status retired = try_to_retire(names[i]);
    claims.release(names[i].item);
    return retired;
  });
}

/// What this run's own parts replaced: each process moves what it made anew.
Status JobPlan::retire_replaced(const std::stop_token& stop) {
  const std::vector<PartName> names = take_superseded([&](const PartName& name) { return replaced_.contains(name.item); });
  return read_many(names.size(), stop, [&](size_t i) { return try_to_retire(names[i]); });
}

/// The part that counts of an item whose part of that name has moved aside; nothing where there is none.
Result<std::optional<CommittedPart>> JobPlan::find_later(const std::vector<JobInput>& inputs, PartName name) const {
  name.considered.reset();
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const bool was_replaced, (output_ / kSupersededFolder / name.text()).exists());
    if (!was_replaced) {
      return std::optional<CommittedPart>();
    }
    ++name.generation;
    const Result<FileInfo> info = output_.store->stat((output_ / name.text()).path);
    if (info.is_ok()) {
      Result<CommittedPart> part = read_part(inputs, name, info->size_bytes);
      if (part.status().code() != StatusCode::kNotFound) {
        return part.is_ok() ? Result<std::optional<CommittedPart>>(*std::move(part)) : part.status();
      }
    } else if (info.status().code() != StatusCode::kNotFound) {
      return info.status();
    }
  }
}

Result<BasePart> JobPlan::find_base(const WorkItem& item) const {
  const std::string name = PartName{.item = item.number, .generation = item.generation - 1, .container = item.container}.text();
  BasePart base{.place = output_ / name};
  Result<PartRecord> record = read_part_record(base.place);
  if (record.status().code() == StatusCode::kNotFound) {
    // Another process has redone the item and moved it aside; then the part that we make gives way.
    base.place = output_ / kSupersededFolder / name;
    record = read_part_record(base.place);
  }
  if (record.status().code() == StatusCode::kNotFound) {
    return Status::unavailable("a part whose failed rows are redone is gone; run the same command again (part):", (output_ / name).uri());
  }
  DARKROOM_RETURN_IF_ERROR(record.status());
  base.kept = std::move(record->tally);
  if (const auto redone = redo_.find(item.number); redone != redo_.end()) {
    DARKROOM_ASSIGN_OR_RETURN(base.redone, unpack_rows(redone->second.rows));
    base.kept.rows_in -= redone->second.num_rows;
    base.kept.rows_out -= redone->second.num_rows;
    return base;
  }
  for (const auto& [code, count] : RowsByError(base.kept.rows_by_error)) {
    if (retry_.contain(code)) {
      const std::vector<int64_t> rows = std::move(base.kept.failed_rows[code]);
      if (count != static_cast<int64_t>(rows.size())) {
        return Status::corrupt_data("a part counts other failed rows than it lists (part, code, counted, listed):", base.place.uri(), code,
                                    count, rows.size());
      }
      base.redone.insert(base.redone.end(), rows.begin(), rows.end());
      base.kept.rows_in -= count;
      base.kept.rows_by_error.erase(code);
      base.kept.failed_rows.erase(code);
    }
  }
  std::ranges::sort(base.redone);
  return base;
}

Result<bool> JobPlan::is_committed_now(const WorkItem& item) {
  const PartName whole{.item = item.number, .generation = item.generation, .container = item.container};
  std::vector<PartName> names = {whole};
  if (item.part_name() != whole.text()) {
    names.push_back(*PartName::parse(item.part_name()));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const Result<FileInfo> info = output_.store->stat((output_ / names[i].text()).path);
    if (!info.is_ok()) {
      if (info.status().code() != StatusCode::kNotFound) {
        return info.status();
      }
      continue;
    }
    Result<CommittedPart> part = read_part(inputs_, names[i], info->size_bytes);
    if (part.is_ok()) {
      take_in(*std::move(part));
      return true;
    }
    if (part.status().code() != StatusCode::kNotFound) {
      return part.status();
    }
    if (names[i].considered) {
      names.push_back(whole);  // A cut part goes when the whole one is there, also between the two looks.
    }
  }
  // Others may have made the item, redone it and moved their first part aside since we listed them.
  DARKROOM_ASSIGN_OR_RETURN(std::optional<CommittedPart> later, find_later(inputs_, whole));
  if (later) {
    take_in(*std::move(later));
    return true;
  }
  return false;
}

}  // namespace darkroom
