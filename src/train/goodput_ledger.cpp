#include "goodput_ledger.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/nested_text.h"
#include "spool_records.h"

namespace darkroom {
namespace {

constexpr const char* kSpendingNames[kNumSpendings] = {"training", "data_wait", "saving", "looking", "lost", "starting", "away"};
constexpr const char* kBeginEvent = "begin";
constexpr const char* kStepEvent = "step";
constexpr const char* kSnapshotEvent = "snapshot";
constexpr const char* kSavedEvent = "saved";
constexpr const char* kEndEvent = "end";

double& part(SpentSeconds& spent, Spending what) { return spent[static_cast<size_t>(what)]; }

double seconds_between(Clock::Instant from, Clock::Instant to) { return std::chrono::duration<double>(to - from).count(); }

double unix_seconds(std::chrono::system_clock::time_point date) { return std::chrono::duration<double>(date.time_since_epoch()).count(); }

// A line of the ledger.
struct LedgerLine {
  int64_t step = 0;
  double time = 0;   // Unix seconds, as `began`.
  double began = 0;  // The run.
  bool is_end = false;
  SpentSeconds spent{};
};

std::optional<LedgerLine> parse_ledger_line(std::string_view text) {
  const auto json = parse_json(text);
  const auto is_number = [&](const char* key) { return json.contains(key) && json[key].is_number(); };
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer() || !is_number("time") || !is_number("began")) {
    return std::nullopt;
  }
  LedgerLine line{.step = json["step"].get<int64_t>(), .time = json["time"].get<double>(), .began = json["began"].get<double>()};
  line.is_end = json.value("event", nlohmann::json()) == kEndEvent;
  for (size_t i = 0; i < kNumSpendings; ++i) {
    if (!is_number(kSpendingNames[i])) {
      return std::nullopt;
    }
    line.spent[i] = json[kSpendingNames[i]].get<double>();
  }
  return line;
}

// The lines that are whole; `text` loses a torn one at its end.
std::vector<LedgerLine> take_ledger_lines(std::string& text, const std::string& path) {
  text.resize(text.rfind('\n') + 1);  // 0 where there is no line end.
  std::vector<LedgerLine> lines;
  int64_t num_unreadable = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (const auto line = parse_ledger_line(std::string_view(text).substr(begin, end - begin))) {
      lines.push_back(*line);
    } else {
      ++num_unreadable;
    }
    begin = end + 1;
  }
  if (num_unreadable > 0) {
    log_warning("{} lines of {} cannot be read; the time that they tell of counts as starting", num_unreadable, path);
  }
  return lines;
}

// What earlier starts spent, seen from the one that goes on at `steps_done`: work behind that step is lost.
SpentSeconds spent_before(const std::vector<LedgerLine>& lines, int64_t steps_done) {
  const auto kept = std::find_if(lines.rbegin(), lines.rend(), [=](const LedgerLine& line) { return line.step <= steps_done; });
  const SpentSeconds base = kept == lines.rend() ? SpentSeconds{} : kept->spent;
  SpentSeconds spent = lines.back().spent;
  for (const Spending work : {Spending::kTraining, Spending::kDataWait, Spending::kSaving, Spending::kLooking}) {
    const double behind = part(spent, work) - base[static_cast<size_t>(work)];
    part(spent, work) -= behind;
    part(spent, Spending::kLost) += behind;
  }
  return spent;
}

}  // namespace

const char* spending_name(Spending what) { return kSpendingNames[static_cast<size_t>(what)]; }

Result<std::unique_ptr<GoodputLedger>> GoodputLedger::open(FileSystem& files, const std::string& path, Clock& clock, Clock::Instant began,
                                                           int64_t steps_done, LostRecords* lost) {
  std::unique_ptr<GoodputLedger> ledger(new GoodputLedger(clock, began));
  const double began_at = unix_seconds(clock.wall()) - seconds_between(began, clock.now());
  ledger->run_began_ = began_at;
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(path));
  if (exists) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
    std::string whole = text;
    const std::vector<LedgerLine> lines = take_ledger_lines(whole, path);
    if (whole != text) {
      DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, path, whole));
    }
    if (!lines.empty()) {
      const LedgerLine& last = lines.back();
      ledger->run_began_ = last.began;
      ledger->spent_ = spent_before(lines, steps_done);
      part(ledger->spent_, last.is_end ? Spending::kAway : Spending::kStarting) += std::max(0.0, began_at - last.time);
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(auto file, files.open_append(path));
  DARKROOM_ASSIGN_OR_RETURN(ledger->file_, allow_lost_records(files, std::move(file), lost));
  ledger->spend(Spending::kStarting);
  DARKROOM_RETURN_IF_ERROR(ledger->append(steps_done, kBeginEvent));
  return ledger;
}

Status GoodputLedger::move_to(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(file_, files.open_append(path));
  return {};
}

void GoodputLedger::spend(Spending what) {
  const Clock::Instant now = clock_.now();
  part(spent_, what) += seconds_between(counted_, now);
  counted_ = now;
}

Status GoodputLedger::record(int64_t steps_done) {
  constexpr int64_t kLinesOfAStart = 1000;  // In the first second this many seconds; later ones have fewer.
  const auto pause = std::max<Clock::Instant::duration>(std::chrono::seconds(1), (counted_ - began_) / kLinesOfAStart);
  return counted_ - last_line_ < pause ? Status::ok() : append(steps_done, kStepEvent);
}

Status GoodputLedger::record_snapshot(int64_t steps_done) {
  DARKROOM_RETURN_IF_ERROR(append(steps_done, kSnapshotEvent));
  return file_->sync();
}

Status GoodputLedger::record_saved(int64_t steps_done) {
  DARKROOM_RETURN_IF_ERROR(append(steps_done, kSavedEvent));
  return file_->sync();
}

Status GoodputLedger::record_end(int64_t steps_done) {
  DARKROOM_RETURN_IF_ERROR(append(steps_done, kEndEvent));
  return file_->sync();
}

double GoodputLedger::goodput() const {
  const double wall = std::accumulate(spent_.begin(), spent_.end(), 0.0) - spent_[static_cast<size_t>(Spending::kAway)];
  return wall > 0 ? spent_[static_cast<size_t>(Spending::kTraining)] / wall : 0;
}

// One write: whole in the file or, after a power loss, torn at its end.
Status GoodputLedger::append(int64_t steps_done, const char* event) {
  nlohmann::ordered_json line = {{"step", steps_done},
                                 {"event", event},
                                 {"time", unix_seconds(clock_.wall()) - seconds_between(counted_, clock_.now())},
                                 {"began", run_began_}};
  for (size_t i = 0; i < kNumSpendings; ++i) {
    line[kSpendingNames[i]] = spent_[i];
  }
  line["goodput"] = goodput();
  last_line_ = counted_;
  return file_->write_text(line.dump() + "\n");
}

}  // namespace darkroom
