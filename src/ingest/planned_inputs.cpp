#include "darkroom/ingest/job_plan.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/quick_footer.h"
#include "read_many.h"
#include "usable_inputs.h"

// What a plan's inputs are: as they are pinned, as the parts tell, or as they are listed.

namespace darkroom {
namespace {

/// The failure of a file that has the name of a pinned one.
Status find_needed(const std::vector<JobInput>& listed, const std::map<std::string, Status>& unusable, const std::vector<JobInput>& pins) {
  if (unusable.empty()) {
    return Status::ok();
  }
  std::set<std::string> pinned;
  for (const JobInput& pin : pins) {
    pinned.insert(pin.name);
  }
  for (const JobInput& input : listed) {
    const auto failure = unusable.find(input.path);
    if (failure != unusable.end() && pinned.contains(input.name)) {
      return failure->second;
    }
  }
  return Status::ok();
}

/// Whether what lies at a place is the pinned input, as far as a look at a folder tells. Errors: of the store alone; whatever else is wrong
/// there, the whole list tells.
Result<bool> is_pinned_at(const Location& place, const JobInput& pin) {
  Status looked;
  if (pin.name.ends_with('/')) {
    const Result<FileInfo> info = place.store->stat(std::string(without_trailing_slashes(place.path)));
    if (info.is_ok()) {
      return info->is_folder;
    }
    looked = info.status();
  } else {
    const Result<ObjectTail> tail = place.store->read_tail(place.path, kPlanningTailBytes);
    if (tail.is_ok()) {
      return tail->size_bytes == pin.size_bytes && sha256_hex(tail->bytes) == pin.tail_sha256;
    }
    looked = tail.status();
  }
  const bool is_of_store = looked.code() == StatusCode::kUnavailable || looked.code() == StatusCode::kCancelled;
  return is_of_store ? Result<bool>(looked) : false;
}

/// Where a pinned input lies now: below one of the roots, or aside where its next generation came. Nothing: in none of these places.
Result<std::optional<Location>> find_pinned(const std::vector<InputRoot>& roots, const JobInput& pin) {
  for (const InputRoot& root : roots) {
    if (!root.may_hold(pin.name)) {
      continue;
    }
    const Location place = root.folder / pin.name;
    std::vector<Location> places = {place};
    if (PartName::parse(file_name(pin.name))) {
      places.push_back(place.parent() / kSupersededFolder / place.name());
    }
    for (Location& candidate : places) {
      DARKROOM_ASSIGN_OR_RETURN(const bool is_there, is_pinned_at(candidate, pin));
      if (is_there) {
        return std::optional(std::move(candidate));
      }
    }
  }
  return std::optional<Location>();
}

/// Whether another pinned input has name, size and end of one of these: which of the two lies at a place, only the whole list tells.
bool have_twins(const std::vector<JobInput>& inputs, const std::vector<size_t>& places) {
  using Look = std::tuple<std::string_view, int64_t, std::string_view>;
  const auto look_of = [](const JobInput& input) { return Look(input.name, input.size_bytes, input.tail_sha256); };
  std::set<Look> own;
  for (const size_t place : places) {
    own.insert(look_of(inputs[place]));
  }
  const auto num_alike = std::ranges::count_if(inputs, [&](const JobInput& input) { return own.contains(look_of(input)); });
  return num_alike != static_cast<std::ptrdiff_t>(own.size());
}

/// Listed files in the order in which they were listed, of those that need no look and of the others.
struct ListedInputs {
  std::vector<JobInput> known = {};
  std::vector<JobInput> unknown = {};
};

/// Where a look costs a request, a listed file that alone has name and size of one pin alone is taken for that one; open_pinned_input tells
/// whether it is. The first with rows is looked at all the same: the job may ask for columns, which a tar without samples lacks.
ListedInputs take_known_inputs(Store* store, const std::vector<JobInput>& pins, std::vector<JobInput> listed) {
  using Look = std::pair<std::string_view, int64_t>;
  const auto look_of = [](const JobInput& input) { return Look(input.name, input.size_bytes); };
  std::map<Look, std::vector<const JobInput*>> pins_of;
  std::map<Look, int64_t> num_listed;
  for (const JobInput& pin : pins) {
    pins_of[look_of(pin)].push_back(&pin);
  }
  const std::vector<JobInput> all = std::move(listed);  // Whose names the keys are.
  for (const JobInput& input : all) {
    ++num_listed[look_of(input)];
  }
  ListedInputs inputs;
  bool has_columns = false;
  for (const JobInput& input : all) {
    const auto pin = pins_of.find(look_of(input));
    const bool is_cheap = input.name.ends_with('/') || place_of(store, input).store->local_path(input.path).has_value();
    const bool is_known = !is_cheap && pin != pins_of.end() && pin->second.size() == 1 && num_listed[look_of(input)] == 1;
    const bool is_empty = is_known && pin->second.front()->num_rows == 0;
    if (!is_known || (!is_empty && !std::exchange(has_columns, true))) {
      inputs.unknown.push_back(input);
      continue;
    }
    inputs.known.push_back(input);
    inputs.known.back().tail_sha256 = pin->second.front()->tail_sha256;
    inputs.known.back().num_rows = pin->second.front()->num_rows;
  }
  return inputs;
}

/// Whether the inputs of a run's own items can be found, without the others.
bool may_look_alone(const JobRequest& request, const Selection& selection) {
  return !selection.items.empty() && !selection.extend && !request.roots.empty();
}

void warn_of_late_files(size_t num_files) {
  if (num_files > 0) {
    log_warning("{} input files came after the job was started and are left out of it", num_files);
  }
}

}  // namespace

Status JobPlan::find_inputs(JobRequest& request, const std::vector<FileInfo>& parts, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<PinnedList> pins, read_pins(output_, identity_));
  bool is_found = false;
  if (pins && may_look_alone(request, selection_)) {
    DARKROOM_ASSIGN_OR_RETURN(is_found, take_own_inputs(request, *pins, stop));
  }
  if (!is_found) {
    DARKROOM_RETURN_IF_ERROR(take_all_inputs(request, pins, parts, stop));
  }
  list_rows_ = inputs_.empty() ? 0 : inputs_.back().first_row + inputs_.back().num_rows;
  return Status::ok();
}

/// The items' own inputs are looked for and looked at, the others are taken as the list has them. False: one is not there as it was pinned,
/// or another looks the same, and all inputs have to be listed to say more.
Result<bool> JobPlan::take_own_inputs(const JobRequest& request, const PinnedList& pins, const std::stop_token& stop) {
  std::vector<JobInput> inputs = pins.inputs;
  number_inputs(inputs, identity_.rows_per_file);
  const int64_t num_items = num_items_of(inputs, identity_.rows_per_file);
  std::vector<size_t> places;  // Of the items' inputs, each once.
  for (const int64_t number : selection_.items) {
    const size_t place = number < num_items ? find_item(inputs, identity_.rows_per_file, number).input : inputs.size();
    if (place < inputs.size() && (places.empty() || places.back() != place)) {
      places.push_back(place);
    }
  }
  if (have_twins(inputs, places)) {
    return false;
  }
  for (JobInput& input : inputs) {  // Where each most likely lies.
    const auto root = std::ranges::find_if(request.roots, [&](const InputRoot& may) { return may.may_hold(input.name); });
    const Location place = (root == request.roots.end() ? request.roots.front() : *root).folder / input.name;
    input.path = place.path;
    input.store = place.store;
  }
  std::vector<JobInput> own(places.size());
  std::atomic<bool> are_there = true;
  DARKROOM_RETURN_IF_ERROR(read_many(places.size(), stop, [&](size_t i) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<Location> found, find_pinned(request.roots, inputs[places[i]]));
    own[i] = inputs[places[i]];
    if (found) {
      own[i].path = found->path;
      own[i].store = found->store;
    }
    are_there = are_there && found.has_value();
    return Status::ok();
  }));
  if (!are_there) {
    return false;
  }
  if (const Status measured = measure_inputs(nullptr, request.check_columns, stop, own); !measured.is_ok()) {
    return measured.code() == StatusCode::kNotFound ? Result<bool>(false) : measured;
  }
  for (size_t i = 0; i < places.size(); ++i) {
    JobInput& input = inputs[places[i]];
    if (own[i].size_bytes != input.size_bytes || own[i].tail_sha256 != input.tail_sha256) {
      return false;
    }
    input.path = own[i].path;
    input.store = own[i].store;
  }
  inputs_ = std::move(inputs);
  num_pin_lists_ = pins.num_lists;
  return true;
}

Status JobPlan::take_all_inputs(JobRequest& request, const std::optional<PinnedList>& pins, const std::vector<FileInfo>& parts,
                                const std::stop_token& stop) {
  if (request.list) {
    DARKROOM_ASSIGN_OR_RETURN(request.listed, request.list());
  }
  std::vector<JobInput> listed = std::move(request.listed);
  const CheckColumns& check_columns = request.check_columns;
  std::vector<JobInput> known;
  if (pins) {
    DARKROOM_RETURN_IF_ERROR(take_pinned_generations(input_store_, pins->inputs, stop, listed));
    if (!may_look_alone(request, selection_)) {  // Else they were looked at, and one is not as it was pinned: all of it is told.
      ListedInputs parted = take_known_inputs(input_store_, pins->inputs, std::move(listed));
      listed = std::move(parted.unknown);
      known = std::move(parted.known);
    }
  }
  // What came late and is left out need not be whole.
  std::map<std::string, Status> unusable;
  DARKROOM_RETURN_IF_ERROR(pins && !selection_.extend ? measure_usable_inputs(input_store_, check_columns, stop, listed, unusable)
                                                      : measure_inputs(input_store_, check_columns, stop, listed));
  if (pins) {
    num_pin_lists_ = pins->num_lists;
    DARKROOM_RETURN_IF_ERROR(find_needed(listed, unusable, pins->inputs));
    listed.insert(listed.end(), std::make_move_iterator(known.begin()), std::make_move_iterator(known.end()));
    DARKROOM_ASSIGN_OR_RETURN(PinnedInputs joined, join_pins(std::move(listed), pins->inputs, output_.uri(), identity_));
    inputs_ = std::move(joined.inputs);
    if (selection_.extend && !joined.late.empty()) {
      DARKROOM_RETURN_IF_ERROR(count_other_rows(input_store_, stop, joined.late));
      new_pins_ = std::move(joined.late);
      inputs_.insert(inputs_.end(), new_pins_.begin(), new_pins_.end());
    } else {
      warn_of_late_files(joined.late.size());
    }
  } else {
    DARKROOM_RETURN_IF_ERROR(count_other_rows(input_store_, stop, listed));
    inputs_ = std::move(listed);
    if (!parts.empty()) {
      DARKROOM_RETURN_IF_ERROR(rebuild_inputs(parts, stop));
    }
    new_pins_ = inputs_;
    num_pin_lists_ = 0;
    are_pins_new_ = true;
  }
  number_inputs(inputs_, identity_.rows_per_file);
  return Status::ok();
}

Status JobPlan::rebuild_inputs(std::vector<FileInfo> parts, const std::stop_token& stop) {
  (void)take_out_superseded_parts(parts);
  std::vector<PartRecord> records(parts.size());
  DARKROOM_RETURN_IF_ERROR(read_many(parts.size(), stop, [&](size_t i) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(PartRecord record, read_part_record({.store = output_.store, .path = parts[i].path}));
    if (record.job != job_hash_) {
      return refuse_other_job(output_.uri(), record.identity, identity_);
    }
    // What else a record says is large, and of no use here.
    records[i] = {.item = record.item, .input = std::move(record.input), .first_row = record.first_row};
    return Status::ok();
  }));
  std::map<int64_t, PartRecord> known;
  for (PartRecord& record : records) {
    known.emplace(record.item, std::move(record));
  }
  DARKROOM_RETURN_IF_ERROR(take_known_generations(known, stop));
  DARKROOM_ASSIGN_OR_RETURN(std::vector<JobInput> pins, rebuild_pins(inputs_, known, output_.uri(), identity_));
  std::set<std::string> pinned;
  for (const JobInput& pin : pins) {
    pinned.insert(pin.path);
  }
  std::vector<JobInput> late;
  for (JobInput& input : inputs_) {
    if (!pinned.contains(input.path)) {
      late.push_back(std::move(input));
    }
  }
  inputs_ = std::move(pins);
  if (selection_.extend) {
    inputs_.insert(inputs_.end(), late.begin(), late.end());
  } else {
    warn_of_late_files(late.size());
  }
  return Status::ok();
}

/// As take_pinned_generations, where the list is lost and the parts tell what was pinned.
Status JobPlan::take_known_generations(const std::map<int64_t, PartRecord>& parts, const std::stop_token& stop) {
  std::vector<JobInput> known;
  for (const auto& [item, record] : parts) {
    if (known.empty() || known.back().name != record.input.name) {  // Items of one input follow each other.
      known.push_back(record.input);
    }
  }
  std::vector<JobInput> taken = inputs_;
  DARKROOM_RETURN_IF_ERROR(take_pinned_generations(input_store_, known, stop, taken));
  std::vector<JobInput> replaced;
  for (size_t i = 0; i < taken.size(); ++i) {
    if (taken[i].name != inputs_[i].name) {
      replaced.push_back(taken[i]);
    }
  }
  DARKROOM_RETURN_IF_ERROR(measure_inputs(input_store_, {}, stop, replaced));
  DARKROOM_RETURN_IF_ERROR(count_other_rows(input_store_, stop, replaced));
  for (size_t i = 0, next = 0; i < taken.size(); ++i) {
    if (taken[i].name != inputs_[i].name) {
      inputs_[i] = std::move(replaced[next++]);
    }
  }
  return Status::ok();
}

/// The list as it is pinned by now: another run may have appended to it (--extend) and have made parts of that.
Result<std::vector<JobInput>> JobPlan::read_longer_list() const {
  DARKROOM_ASSIGN_OR_RETURN(std::optional<PinnedList> pins, read_pins(output_, identity_));
  if (!pins || pins->inputs.size() <= inputs_.size()) {
    return inputs_;
  }
  number_inputs(pins->inputs, identity_.rows_per_file);
  return std::move(pins->inputs);
}

}  // namespace darkroom
