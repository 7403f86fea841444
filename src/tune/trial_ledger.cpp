#include "darkroom/tune/trial_ledger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLedgerVersion = 1;
constexpr const char* kOutcomeNames[] = {"scored", "diverged", "failed"};

/// Takes the fields of one line one by one; the first that is missing or of another type makes the line unreadable.
class LineFields {
 public:
  explicit LineFields(const Json& line) : line_(line) {}

  int64_t whole(const char* key) {
    const Json* value = find(key, [](const Json& found) {
      return found.is_number_integer() && found >= 0 && (!found.is_number_unsigned() || found.get<uint64_t>() <= INT64_MAX);
    });
    return value == nullptr ? 0 : value->get<int64_t>();
  }
  double number(const char* key) {
    const Json* value = find(key, [](const Json& found) { return found.is_number(); });
    return value == nullptr ? 0 : value->get<double>();
  }
  std::string text(const char* key) {
    const Json* value = find(key, [](const Json& found) { return found.is_string(); });
    return value == nullptr ? "" : value->get<std::string>();
  }
  const Json& list(const char* key) {
    static const Json kNone = Json::array();
    const Json* value = find(key, [](const Json& found) { return found.is_array(); });
    return value == nullptr ? kNone : *value;
  }
  bool has(const char* key) const { return line_.is_object() && line_.contains(key); }
  bool is_readable() const { return is_readable_; }
  void refuse() { is_readable_ = false; }

 private:
  template <typename Test>
  const Json* find(const char* key, const Test& test) {
    if (!has(key) || !test(line_[key])) {
      is_readable_ = false;
      return nullptr;
    }
    return &line_[key];
  }

  const Json& line_;
  bool is_readable_ = true;
};

Json to_json(const TrialSettings& settings) {
  Json json = Json::object();
  for (const auto& [key, value] : settings) {
    json[key] = value;
  }
  return json;
}

Json to_json(const TunePlan& plan) {
  Json json = {{"event", "plan"}, {"unit", plan.unit}, {"length", plan.length}, {"rungs", Json::array()}, {"trials", Json::array()}};
  for (const Rung& rung : plan.rungs) {
    json["rungs"].push_back({{"share", rung.share}, {"trials", rung.num_trials}});
  }
  for (const PlannedTrial& trial : plan.trials) {
    Json entry = {{"settings", to_json(trial.settings)}, {"batch", trial.batch}, {"full_steps", trial.full_steps}};
    if (!trial.refusal.empty()) {
      entry["refusal"] = trial.refusal;
    }
    json["trials"].push_back(std::move(entry));
  }
  return json;
}

bool take_plan(LineFields& fields, TunePlan& plan) {
  plan.unit = fields.text("unit");
  plan.length = fields.number("length");
  for (const Json& entry : fields.list("rungs")) {
    LineFields rung(entry);
    plan.rungs.push_back({.share = rung.number("share"), .num_trials = rung.whole("trials")});
    if (!rung.is_readable()) {
      return false;
    }
  }
  for (const Json& entry : fields.list("trials")) {
    LineFields trial(entry);
    PlannedTrial& planned = plan.trials.emplace_back();
    planned.batch = trial.whole("batch");
    planned.full_steps = trial.whole("full_steps");
    planned.refusal = trial.has("refusal") ? trial.text("refusal") : "";
    if (!trial.is_readable() || !trial.has("settings") || !entry["settings"].is_object()) {
      return false;
    }
    for (const auto& [key, value] : entry["settings"].items()) {
      if (!value.is_string()) {
        return false;
      }
      planned.settings.emplace_back(key, value.get<std::string>());
    }
  }
  return fields.is_readable() && !plan.rungs.empty() && !plan.trials.empty();
}

Json to_json(const StageEnd& end) {
  const auto& result = end.result;
  Json json = {{"event", "end"}, {"trial", result.stage.trial}, {"rung", result.stage.rung}};
  json["outcome"] = kOutcomeNames[static_cast<size_t>(result.outcome)];
  if (result.outcome == StageOutcome::kScored) {
    json["loss"] = result.loss;
  }
  json.update(Json{{"step", end.step}, {"seconds", end.seconds}, {"peak_bytes", end.peak_bytes}});
  if (end.num_sharing > 0) {
    json["sharing"] = end.num_sharing;
  }
  if (!end.reason.empty()) {
    json["reason"] = end.reason;
  }
  return json;
}

// Lines of earlier programs have none.
int64_t take_sharing(LineFields& fields) { return fields.has("sharing") ? fields.whole("sharing") : 0; }

bool take_end(LineFields& fields, const Stage& stage, StageEnd& end) {
  const std::string outcome = fields.text("outcome");
  const auto* found = std::find(std::begin(kOutcomeNames), std::end(kOutcomeNames), outcome);
  if (found == std::end(kOutcomeNames)) {
    return false;
  }
  end.result = {.stage = stage, .outcome = static_cast<StageOutcome>(found - std::begin(kOutcomeNames))};
  end.result.loss = end.result.outcome == StageOutcome::kScored ? fields.number("loss") : 0;
  end.step = fields.whole("step");
  end.seconds = fields.number("seconds");
  end.peak_bytes = fields.whole("peak_bytes");
  end.num_sharing = take_sharing(fields);
  end.reason = fields.has("reason") ? fields.text("reason") : "";
  return fields.is_readable();
}

// A begin or an end.
bool take_stage(LineFields& fields, bool is_end, TuneRecord& record) {
  const Stage stage{fields.whole("trial"), fields.whole("rung")};
  if (!fields.is_readable() || !record.plan || stage.trial >= static_cast<int64_t>(record.plan->trials.size()) ||
      stage.rung >= static_cast<int64_t>(record.plan->rungs.size())) {
    return false;
  }
  std::erase_if(record.unfinished, [&](const BegunStage& begun) { return begun.stage == stage; });
  if (!is_end) {
    record.unfinished.push_back({.stage = stage, .num_sharing = take_sharing(fields)});
    return fields.is_readable();
  }
  const bool is_new = std::none_of(record.ends.begin(), record.ends.end(), [&](const StageEnd& end) { return end.result.stage == stage; });
  return is_new && take_end(fields, stage, record.ends.emplace_back());
}

bool take_line(const Json& line, TuneRecord& record) {
  LineFields fields(line);
  const std::string event = fields.text("event");
  record.spent_seconds = fields.number("spent_seconds");
  record.is_out_of_budget = false;
  if (!fields.is_readable()) {
    return false;
  }
  if (event == "speed") {
    record.speeds.push_back({.batch = fields.whole("batch"),
                             .micro = fields.whole("micro"),
                             .steps_per_second = fields.number("steps_per_second"),
                             .start_seconds = fields.number("start_seconds")});
    return fields.is_readable() && record.speeds.back().batch > 0 && record.speeds.back().steps_per_second > 0;
  }
  if (event == "plan") {
    return !record.plan.has_value() && take_plan(fields, record.plan.emplace());
  }
  if (event == "begin" || event == "end") {
    return take_stage(fields, event == "end", record);
  }
  record.is_out_of_budget = event == "close" && fields.text("why") == "budget";
  return event == "close";
}

void flatten(const Json& json, const std::string& prefix, std::vector<std::pair<std::string, std::string>>& fields) {
  if (!json.is_object()) {
    fields.emplace_back(prefix, json.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  for (const auto& [key, value] : json.items()) {
    flatten(value, prefix.empty() ? key : prefix + "." + key, fields);
  }
}

std::string value_of(const std::vector<std::pair<std::string, std::string>>& fields, const std::string& name) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == name; });
  return found == fields.end() ? "absent" : found->second;
}

Status another_search(const std::string& path, const std::vector<std::string>& differences) {
  return Status::failed_precondition(fmt::format(
      "{} is of another search; run its command again, or take another --output. What differs: {}", path, fmt::join(differences, "; ")));
}

}  // namespace

std::vector<StageResult> TuneRecord::results() const {
  std::vector<StageResult> results;
  for (const StageEnd& end : ends) {
    results.push_back(end.result);
  }
  return results;
}

std::vector<std::string> differing_fields(const Json& now, const Json& before) {
  std::vector<std::pair<std::string, std::string>> is, was;
  flatten(now, "", is);
  flatten(before, "", was);
  std::vector<std::string> differences;
  for (const auto& [name, value] : is) {
    if (value_of(was, name) != value) {
      differences.push_back(fmt::format("{} (was {}, is {})", name, value_of(was, name), value));
    }
  }
  for (const auto& [name, value] : was) {
    if (value_of(is, name) == "absent") {
      differences.push_back(fmt::format("{} (was {}, is absent)", name, value));
    }
  }
  return differences;
}

Result<TuneRecord> read_ledger(std::string_view text, const std::string& name) {
  TuneRecord record;
  int64_t number = 0;
  for (size_t begin = 0, end = text.find('\n'); end != std::string_view::npos; begin = end + 1, end = text.find('\n', begin)) {
    ++number;
    const Json line = parse_json<Json>(text.substr(begin, end - begin));
    if (number == 1 && line.is_object() && line.contains("format_version") && line["format_version"].is_number_integer() &&
        line["format_version"] > kLedgerVersion) {
      return Status::failed_precondition("a newer program wrote this ledger (file, its version, ours):", name,
                                         line["format_version"].dump(), kLedgerVersion);
    }
    const bool is_head = line.is_object() && line.value("format_version", Json()) == kLedgerVersion && line.contains("search");
    if (number == 1 ? !is_head : !take_line(line, record)) {
      return Status::corrupt_data("a line of the ledger cannot be read; move the folder away and tune anew (file, line):", name, number);
    }
    if (number == 1) {
      record.head = line;
    }
  }
  if (number == 0) {
    return Status::not_found("the ledger has no whole line:", name);
  }
  return record;
}

Result<std::unique_ptr<TrialLedger>> TrialLedger::open(FileSystem& files, const std::string& path, const Json& head) {
  std::unique_ptr<TrialLedger> ledger(new TrialLedger());
  Json first = {{"format_version", kLedgerVersion}, {"event", "tune"}};
  first.update(head);
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(path));
  std::string text;
  if (exists) {
    DARKROOM_ASSIGN_OR_RETURN(text, read_file(files, path));
  }
  const std::string whole = text.substr(0, text.rfind('\n') + 1);  // 0 where there is no line end.
  if (whole.empty()) {
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, path, first.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"));
    ledger->record_.head = first;
  } else {
    DARKROOM_ASSIGN_OR_RETURN(ledger->record_, read_ledger(whole, path));
    const auto differences = differing_fields(first, ledger->record_.head);
    if (!differences.empty()) {
      return another_search(path, differences);
    }
    if (whole != text) {
      DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, path, whole));
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(ledger->file_, files.open_append(path));
  return ledger;
}

Status TrialLedger::append(Json line, double spent_seconds) {
  line["spent_seconds"] = spent_seconds;
  DARKROOM_RETURN_IF_ERROR(file_->write_text(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"));
  DARKROOM_RETURN_IF_ERROR(file_->sync());
  DARKROOM_CHECK(take_line(line, record_), "the ledger does not read what it wrote:", line.dump());
  return {};
}

Status TrialLedger::add_speed(const SpeedRecord& speed, double spent_seconds) {
  return append({{"event", "speed"},
                 {"batch", speed.batch},
                 {"micro", speed.micro},
                 {"steps_per_second", speed.steps_per_second},
                 {"start_seconds", speed.start_seconds}},
                spent_seconds);
}

Status TrialLedger::add_plan(const TunePlan& plan, double spent_seconds) { return append(to_json(plan), spent_seconds); }

Status TrialLedger::add_begin(const BegunStage& begun, double spent_seconds) {
  Json line = {{"event", "begin"}, {"trial", begun.stage.trial}, {"rung", begun.stage.rung}};
  if (begun.num_sharing > 0) {
    line["sharing"] = begun.num_sharing;
  }
  return append(std::move(line), spent_seconds);
}

Status TrialLedger::add_end(const StageEnd& end, double spent_seconds) { return append(to_json(end), spent_seconds); }

Status TrialLedger::add_close(bool is_out_of_budget, double spent_seconds) {
  return append({{"event", "close"}, {"why", is_out_of_budget ? "budget" : "end"}}, spent_seconds);
}

}  // namespace darkroom
