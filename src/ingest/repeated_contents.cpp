#include "repeated_contents.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base_rows.h"
#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/tables/bytes_column.h"
#include "read_many.h"
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

// What reading one part takes, but for the pictures' own size: its batches and what is read ahead of each column.
constexpr int64_t kBytesAReader = 32 << 20;
// Parts whose hashes wait for their turn, for each thread that reads some: enough to hide that one part is longer than another.
constexpr size_t kPartsAThread = 8;

struct SeenPicture {
  int64_t row;  // In the pinned list.
  RepeatFinder::Hash hash;
};

/// A part's pictures of the finder's pass, in the order of the list.
Result<std::vector<SeenPicture>> pictures_of_part(const JobPlan& plan, const PartName& name, const RepeatFinder& finder,
                                                  const std::stop_token& stop) {
  const WorkItem item = plan.item(name.item);
  const BasePart part{.place = plan.output() / name.text()};
  DARKROOM_ASSIGN_OR_RETURN(const auto rows, BaseRows::open(part, {"key", kPictureColumn}, item));
  std::vector<SeenPicture> seen;
  while (!stop.stop_requested()) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next(item.whole_rows));
    if (batch == nullptr) {
      return seen;
    }
    DARKROOM_ASSIGN_OR_RETURN(const BytesColumn pictures, BytesColumn::open(part.place.uri(), kPictureColumn, batch->column(1)));
    for (int64_t i = 0; i < batch->num_rows(); ++i) {
      if (const std::optional<std::string_view> picture = pictures.at(i)) {
        const RepeatFinder::Hash hash = RepeatFinder::hash_of(*picture);
        if (finder.is_of_pass(hash)) {
          seen.push_back({.row = item.list_row + rows->positions()[static_cast<size_t>(i)], .hash = hash});
        }
      }
    }
  }
  return Status::cancelled("stopped while looking for repeated pictures");
}

/// Hashes parts side by side, some at a time, and looks at what was found in the order of the list.
Status look_at_parts(const JobPlan& plan, const std::vector<PartName>& names, size_t num_threads, RepeatFinder& finder,
                     const std::stop_token& stop, RowSet& repeated) {
  for (size_t first = 0; first < names.size(); first += num_threads * kPartsAThread) {
    std::vector<std::vector<SeenPicture>> seen(std::min(num_threads * kPartsAThread, names.size() - first));
    const auto read = [&](size_t i) -> Status {
      DARKROOM_ASSIGN_OR_RETURN(seen[i], pictures_of_part(plan, names[first + i], finder, stop));
      return {};
    };
    DARKROOM_RETURN_IF_ERROR(read_many(seen.size(), stop, read, num_threads, /*min_reads=*/1));
    for (const std::vector<SeenPicture>& of_part : seen) {
      for (const SeenPicture& picture : of_part) {
        if (finder.is_repeated(picture.hash)) {
          repeated.add(picture.row);
        }
      }
    }
  }
  return {};
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
  std::vector<PartName> names;
  for (const auto& [item, part] : parts) {
    num_pictures += part.tally.rows_out;
    names.push_back(part.name);
  }
  RowSet repeated(plan.inputs().empty() ? 0 : plan.inputs().back().first_row + plan.inputs().back().num_rows);
  // Half of the memory is the table's, half of those who read.
  RepeatFinder finder(num_pictures, memory_bytes / 2);
  const auto num_threads = static_cast<size_t>(std::clamp<int64_t>(memory_bytes / 2 / kBytesAReader, 1, num_processors()));
  log_info("download: looking for repeated pictures among {} rows ({} times through them)", num_pictures, finder.num_passes());
  for (int64_t pass = 0; pass < finder.num_passes(); ++pass) {
    finder.begin_pass(pass);
    DARKROOM_RETURN_IF_ERROR(look_at_parts(plan, names, num_threads, finder, stop, repeated));
  }
  log_info("download: {} rows repeat a picture", repeated.size());
  return rows_by_item(plan, parts, repeated);
}

}  // namespace darkroom
