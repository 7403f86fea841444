#include "repeated_urls.h"

#include <arrow/api.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/filtered_rows.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "row_text.h"

namespace darkroom {
namespace {

constexpr const char* kRepeatsKey = "darkroom.repeated";
constexpr int kRepeatsVersion = 1;
constexpr int64_t kRepeatsABatch = 4096;
constexpr int64_t kUrlBatchBytes = 4 << 20;

std::shared_ptr<arrow::Schema> repeats_schema() {
  return arrow::schema({arrow::field("item", arrow::int64(), false), arrow::field("rows", arrow::utf8(), false)});
}

/// What decides which rows are repeated: the job and its list of inputs.
std::string repeats_hash(const JobPlan& plan) {
  Sha256 hash;
  hash.update(plan.job_hash());
  for (const JobInput& input : plan.inputs()) {
    nlohmann::json file = {{"size_bytes", input.size_bytes}, {"tail_sha256", input.tail_sha256}, {"num_rows", input.num_rows}};
    set_file_name(file, input.name);
    hash.update(canonical_text(file));
  }
  return hash.finish_hex();
}

Status corrupt_repeats(const Location& file, std::string_view why) {
  return Status::corrupt_data("the list of rows with repeated URLs is damaged; delete it and run again, it is made anew (why, list):", why,
                              file.uri());
}

Status add_repeats(const arrow::RecordBatch& batch, const Location& file, const JobPlan& plan, RowSet& repeated) {
  const auto& items = static_cast<const arrow::Int64Array&>(*batch.column(0));
  const auto& rows = static_cast<const arrow::StringArray&>(*batch.column(1));
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    if (items.Value(i) < 0 || items.Value(i) >= plan.num_items()) {
      return corrupt_repeats(file, "it names an item that the job does not have");
    }
    const WorkItem item = plan.item(items.Value(i));
    const Result<std::vector<int64_t>> numbers = unpack_rows(rows.GetView(i));
    if (!numbers.is_ok() || (!numbers->empty() && numbers->back() >= item.whole_rows)) {
      return corrupt_repeats(file, "it names rows that an item does not have");
    }
    for (const int64_t number : *numbers) {
      repeated.add(item.list_row + number);
    }
  }
  return Status::ok();
}

Result<RowSet> read_repeats(const Location& file, const std::string& hash, const JobPlan& plan, int64_t num_rows) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(file));
  const std::string* text = footer.find(kRepeatsKey);
  const nlohmann::json fields = text == nullptr ? nlohmann::json() : parse_json(*text);
  const nlohmann::json wanted = {{"version", kRepeatsVersion}, {"hash", hash}};
  if (fields != wanted || !footer.schema->Equals(*repeats_schema(), /*check_metadata=*/false)) {
    return corrupt_repeats(file, "it is no such list, or another one's");
  }
  RowSet repeated(num_rows);
  DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(file));
  DARKROOM_ASSIGN_OR_RETURN(const auto rows, table->read_rows(0, footer.num_rows, {}));
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next());
    if (batch == nullptr) {
      return repeated;
    }
    DARKROOM_RETURN_IF_ERROR(add_repeats(*batch, file, plan, repeated));
  }
}

Status write_repeats(const Location& file, const std::string& hash, const JobPlan& plan, const RowSet& repeated) {
  DARKROOM_ASSIGN_OR_RETURN(auto object, file.store->begin_object(file.parent().path, file.name()));
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, PagedShardWriter::open(std::move(object), repeats_schema()));
  arrow::Int64Builder items;
  arrow::StringBuilder packed;
  for (int64_t number = 0; number < plan.num_items(); ++number) {
    const WorkItem item = plan.item(number);
    const std::vector<int64_t> rows = repeated.rows_within(item.list_row, item.whole_rows);
    if (!rows.empty()) {
      DARKROOM_RETURN_IF_ARROW_ERROR(items.Append(number) & packed.Append(pack_rows(rows)), "listing repeated URLs");
    }
    if (items.length() == kRepeatsABatch || (number + 1 == plan.num_items() && items.length() > 0)) {
      const int64_t num_items = items.length();
      arrow::ArrayVector columns(2);
      DARKROOM_RETURN_IF_ARROW_ERROR(items.Finish(&columns[0]) & packed.Finish(&columns[1]), "listing repeated URLs");
      DARKROOM_RETURN_IF_ERROR(writer->write(*arrow::RecordBatch::Make(repeats_schema(), num_items, std::move(columns))));
    }
  }
  const nlohmann::json fields = {{"version", kRepeatsVersion}, {"hash", hash}};
  DARKROOM_ASSIGN_OR_RETURN(const FinishedShard written, writer->finish({{kRepeatsKey, canonical_text(fields)}}));
  return written.object->publish().status();
}

/// Goes through the URLs of a job's list, in its order.
class UrlScan {
 public:
  UrlScan(const JobPlan& plan, const DownloadOptions& options, const DownloadRules& rules, const std::stop_token& stop)
      : plan_(plan), options_(options), rules_(rules), stop_(stop) {}

  /// One pass over the first rows.
  Status run(int64_t num_rows, RepeatFinder& finder, RowSet& repeated) const {
    for (const JobInput& input : plan_.inputs()) {
      const int64_t wanted = std::min(input.num_rows, num_rows - input.first_row);
      if (wanted > 0) {
        DARKROOM_RETURN_IF_ERROR(scan(input, wanted, finder, repeated));
      }
    }
    return Status::ok();
  }

 private:
  Status scan(const JobInput& input, int64_t num_rows, RepeatFinder& finder, RowSet& repeated) const {
    DARKROOM_ASSIGN_OR_RETURN(const auto table, plan_.open_input(plan_.item(input.first_item)));
    DARKROOM_ASSIGN_OR_RETURN(const UrlColumns columns,
                              find_url_columns(*table->schema(), table->path(), options_.url_column, options_.caption_column));
    std::optional<RowFilter> filter;
    if (rules_.where) {
      DARKROOM_ASSIGN_OR_RETURN(filter, rules_.where->bind(*table->schema(), table->format(), table->path()));
    }
    const ReadOptions read{.batch_bytes = kUrlBatchBytes};
    std::vector<std::string> wanted = {columns.url};
    if (columns.caption != columns.url) {
      wanted.push_back(columns.caption);
    }
    DARKROOM_ASSIGN_OR_RETURN(const auto rows, FilteredRows::open(*table, filter ? &*filter : nullptr, 0, num_rows, wanted, read));
    while (!stop_.stop_requested()) {
      DARKROOM_ASSIGN_OR_RETURN(const FilteredBatch batch, rows->next());
      if (batch.batch == nullptr) {
        return Status::ok();
      }
      DARKROOM_RETURN_IF_ERROR(look_at(batch, table->path(), columns, input.first_row, finder, repeated));
    }
    return Status::cancelled("stopped while looking for repeated URLs");
  }

  Status look_at(const FilteredBatch& batch, const std::string& path, const UrlColumns& columns, int64_t list_row, RepeatFinder& finder,
                 RowSet& repeated) const {
    DARKROOM_ASSIGN_OR_RETURN(const BytesColumn urls, BytesColumn::open(path, columns.url, batch.batch->GetColumnByName(columns.url)));
    DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions,
                              BytesColumn::open(path, columns.caption, batch.batch->GetColumnByName(columns.caption)));
    for (const int64_t row : batch.kept) {
      const RowText text = read_row_text(rules_, urls.at(row), captions.at(row));
      if (!text.error && finder.is_repeated(text.url)) {
        repeated.add(list_row + batch.first_row + row);
      }
    }
    return Status::ok();
  }

  const JobPlan& plan_;
  const DownloadOptions& options_;
  const DownloadRules& rules_;
  const std::stop_token& stop_;
};

/// Rows up to the end of the item that --limit cuts: --retry-failed redoes its rows behind the limit, too.
int64_t rows_to_go_through(const JobPlan& plan, int64_t limit, int64_t list_rows) {
  if (limit < 0 || limit >= list_rows) {
    return list_rows;
  }
  const auto holds_limit = [&](const JobInput& input) { return limit <= input.first_row + input.num_rows; };
  const JobInput& input = *std::ranges::find_if(plan.inputs(), holds_limit);
  const int64_t rows_per_file = plan.identity().rows_per_file;
  return input.first_row + std::min(input.num_rows, num_items_of(limit - input.first_row, rows_per_file) * rows_per_file);
}

}  // namespace

Status check_row_count(const JobPlan& plan, std::string_view what, int64_t most_bytes) {
  const int64_t num_rows = plan.inputs().empty() ? 0 : plan.inputs().back().first_row + plan.inputs().back().num_rows;
  if (num_rows / 8 <= most_bytes) {
    return Status::ok();
  }
  const JobInput& largest = *std::ranges::max_element(plan.inputs(), {}, &JobInput::num_rows);
  return Status::resource_exhausted(
      fmt::format("the rows of the tables are too many to look for repeated {} within half of --memory (rows, file with most, rows that it "
                  "says it has):",
                  what),
      num_rows, largest.path, largest.num_rows);
}

Result<RowSet> find_repeated_urls(const JobPlan& plan, const DownloadOptions& options, const DownloadRules& rules,
                                  const std::stop_token& stop) {
  const int64_t list_rows = plan.inputs().empty() ? 0 : plan.inputs().back().first_row + plan.inputs().back().num_rows;
  const auto half = static_cast<int64_t>(plan_memory(options.memory_bytes, 1).total_bytes / 2);
  DARKROOM_RETURN_IF_ERROR(check_row_count(plan, "URLs", half));
  const std::string hash = repeats_hash(plan);
  const Location file = plan.output() / fmt::format("_repeated-{}.parquet", hash.substr(0, 16));
  Result<RowSet> known = read_repeats(file, hash, plan, list_rows);
  if (known.status().code() == StatusCode::kCorruptData) {
    const bool is_named = known.status().message().find("delete it") != std::string::npos;
    return is_named ? known.status() : corrupt_repeats(file, known.status().message());
  }
  if (known.status().code() != StatusCode::kNotFound) {
    return known;
  }
  const int64_t num_rows = rows_to_go_through(plan, options.selection.limit, list_rows);
  RowSet repeated(num_rows);
  {
    RepeatFinder finder(num_rows, static_cast<int64_t>(plan_memory(options.memory_bytes, 1).body_bytes));
    log_info("download: looking for repeated URLs among {} rows ({} times through them)", num_rows, finder.num_passes());
    for (int64_t pass = 0; pass < finder.num_passes(); ++pass) {
      finder.begin_pass(pass);
      DARKROOM_RETURN_IF_ERROR(UrlScan(plan, options, rules, stop).run(num_rows, finder, repeated));
    }
  }
  log_info("download: {} rows repeat a URL and are not fetched", repeated.size());
  if (num_rows == list_rows) {
    DARKROOM_RETURN_IF_ERROR(write_repeats(file, hash, plan, repeated));
  }
  return repeated;
}

}  // namespace darkroom
