#include <optional>
#include <string>

#include "darkroom/core/check.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/ingest/part_record.h"
#include "darkroom/tables/quick_footer.h"
#include "darkroom/tables/table_footer.h"
#include "fuzz/fuzz_targets.h"

namespace darkroom {

void fuzz_footer(std::string_view bytes) {
  const std::string path = "t.parquet";
  const ObjectTail tail{.size_bytes = static_cast<int64_t>(bytes.size()), .bytes = std::string(bytes), .version = {}};
  const std::optional<QuickFooter> quick = read_quick_footer(tail);
  MemoryFileSystem files;
  DARKROOM_CHECK(write_file_atomic(files, path, bytes).is_ok(), "a file in memory was not written");
  const Result<TableFooter> whole = read_footer(files, path);
  if (!whole.is_ok()) {
    DARKROOM_CHECK(whole.status().message().find(path) != std::string::npos, "no path in:", whole.status().message());
    return;
  }
  DARKROOM_CHECK(!quick || quick->num_rows == whole->num_rows, "two readers count other rows:", quick->num_rows, whole->num_rows);
  if (const std::string* record = whole->find(kShardKey)) {
    fuzz_record(*record);
  }
}

void fuzz_record(std::string_view bytes) {
  const Result<PartRecord> record = parse_part_record(bytes);
  if (!record.is_ok() || record->version != kJobFormatVersion) {
    return;
  }
  const std::string printed = print_part_record(*record);
  const Result<PartRecord> again = parse_part_record(printed);
  DARKROOM_CHECK(again.is_ok(), "a record is not read as it was written:", again.status().message());
  DARKROOM_CHECK(print_part_record(*again) == printed, "a record changes when it is read");
  DARKROOM_CHECK(record->tally.adds_up_to(record->considered), "the counts of a record do not add up");
}

}  // namespace darkroom
