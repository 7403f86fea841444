#include "repeated_contents.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base_rows.h"
#include "darkroom/core/log.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/tables/bytes_column.h"
#include "repeat_finder.h"
#include "repeated_urls.h"

namespace darkroom {
namespace {

constexpr const char* kUniqueFile = "_unique.json";
constexpr int kUniqueVersion = 1;
constexpr const char* kPictureColumn = "image";

/// What the file says of the parts that are there: their names and contents.
std::string unique_text(const JobPlan& plan) {
  Sha256 hash;
  for (const auto& [item, part] : plan.parts()) {
    hash.update(canonical_text({{"name", part.name.text()}, {"content_hash", part.content_hash}}));
  }
  return canonical_text({{"version", kUniqueVersion}, {"job", plan.job_hash()}, {"parts", hash.finish_hex()}}) + "\n";
}

Status look_at_part(const JobPlan& plan, const PartName& name, RepeatFinder& finder, const std::stop_token& stop, RowSet& repeated) {
  const WorkItem item = plan.item(name.item);
  const BasePart part{.place = plan.output() / name.text()};
  DARKROOM_ASSIGN_OR_RETURN(const auto rows, BaseRows::open(part, {"key", kPictureColumn}, item));
  while (!stop.stop_requested()) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next(item.whole_rows));
    if (batch == nullptr) {
      return Status::ok();
    }
    DARKROOM_ASSIGN_OR_RETURN(const BytesColumn pictures, BytesColumn::open(part.place.uri(), kPictureColumn, batch->column(1)));
    for (int64_t i = 0; i < batch->num_rows(); ++i) {
      const std::optional<std::string_view> picture = pictures.at(i);
      if (picture && finder.is_repeated(*picture)) {
        repeated.add(item.list_row + rows->positions()[static_cast<size_t>(i)]);
      }
    }
  }
  return Status::cancelled("stopped while looking for repeated pictures");
}

RowsToRedo rows_by_item(const JobPlan& plan, const std::map<int64_t, CommittedPart>& parts, const RowSet& repeated) {
  RowsToRedo found;
  for (const auto& [number, part] : parts) {
    const WorkItem item = plan.item(number);
    const std::vector<int64_t> rows = repeated.rows_within(item.list_row, item.whole_rows);
    if (!rows.empty()) {
      found[number] = {.generation = part.name.generation, .num_rows = static_cast<int64_t>(rows.size()), .rows = pack_rows(rows)};
    }
  }
  return found;
}

}  // namespace

bool has_all_parts(const JobPlan& plan) {
  const std::map<int64_t, CommittedPart> parts = plan.parts();
  return static_cast<int64_t>(parts.size()) == plan.num_items() &&
         std::ranges::none_of(parts, [](const auto& known) { return known.second.name.considered.has_value(); });
}

Result<bool> is_known_unique(const JobPlan& plan) {
  const Location file = plan.output() / kUniqueFile;
  const Result<std::string> text = file.store->read_small(file.path);
  const bool is_missing = text.status().code() == StatusCode::kNotFound || text.status().code() == StatusCode::kCorruptData;
  DARKROOM_RETURN_IF_ERROR(is_missing ? Status::ok() : text.status());
  return !is_missing && *text == unique_text(plan);
}

Status note_unique(const JobPlan& plan) {
  const Location file = plan.output() / kUniqueFile;
  return file.store->replace_small(file.path, unique_text(plan));
}

Result<RowsToRedo> find_repeated_contents(const JobPlan& plan, int64_t memory_bytes, const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(check_row_count(plan, "pictures", memory_bytes));
  const std::map<int64_t, CommittedPart> parts = plan.parts();
  int64_t num_pictures = 0;
  for (const auto& [item, part] : parts) {
    num_pictures += part.tally.rows_out;
  }
  RowSet repeated(plan.inputs().empty() ? 0 : plan.inputs().back().first_row + plan.inputs().back().num_rows);
  RepeatFinder finder(num_pictures, memory_bytes);
  log_info("download: looking for repeated pictures among {} rows ({} times through them)", num_pictures, finder.num_passes());
  for (int64_t pass = 0; pass < finder.num_passes(); ++pass) {
    finder.begin_pass(pass);
    for (const auto& [item, part] : parts) {
      DARKROOM_RETURN_IF_ERROR(look_at_part(plan, part.name, finder, stop, repeated));
    }
  }
  log_info("download: {} rows repeat a picture", repeated.size());
  return rows_by_item(plan, parts, repeated);
}

}  // namespace darkroom
