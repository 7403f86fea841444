#include "inspect_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cell_text.h"
#include "column_study.h"
#include "darkroom/core/log.h"
#include "darkroom/stream/progress.h"
#include "darkroom/tables/verify_shard.h"
#include "first_rows.h"
#include "part_list.h"
#include "table_kind.h"
#include "table_parts.h"

namespace darkroom {
namespace {

struct Studies {
  std::vector<std::unique_ptr<ColumnStudy>> all;
  std::vector<std::string> columns;  // That they look at.
  KeyStudy* keys = nullptr;          // One of them, or null.
  int64_t num_rows = 0;
  int64_t num_malformed = 0;

  void add(const std::string& column, std::unique_ptr<ColumnStudy> study) {
    columns.push_back(column);
    all.push_back(std::move(study));
  }
};

Studies make_studies(const TableKind& kind, bool verify) {
  Studies studies;
  if (!kind.image.empty()) {
    studies.add(kind.image, std::make_unique<ImageStudy>(kind.image));
  }
  for (const TensorColumnName& tensor : kind.tensors) {
    if (tensor.is_latents || verify) {
      studies.add(tensor.name, std::make_unique<TensorStudy>(tensor.name, tensor.shapes, tensor.is_latents));
    }
  }
  if (!kind.caption.empty()) {
    studies.add(kind.caption, std::make_unique<CaptionStudy>(kind.caption));
  }
  if (!kind.key.empty()) {
    auto keys = std::make_unique<KeyStudy>(kind.key);
    studies.keys = keys.get();
    studies.add(kind.key, std::move(keys));
  }
  return studies;
}

/// How many rows are studied, on a terminal, while it lives.
class StudyLine {
 public:
  /// `num_rows`: to be studied; 0 or less: not known.
  StudyLine(size_t num_parts, int64_t num_rows) : num_parts_(num_parts), num_rows_(num_rows) {}
  ~StudyLine() { show_progress(""); }
  StudyLine(const StudyLine&) = delete;
  StudyLine& operator=(const StudyLine&) = delete;

  void begin_part(int64_t rows_done) {
    ++part_;
    show(rows_done);
  }
  void show(int64_t rows_done) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_shown_ < kInterval && part_ == part_shown_) {
      return;
    }
    last_shown_ = now;
    part_shown_ = part_;
    const std::string bar = num_rows_ > 0 ? terminal_bar(static_cast<double>(rows_done) / static_cast<double>(num_rows_)) : "";
    const std::string total = num_rows_ > 0 ? fmt::format("/{}", num_rows_) : "";
    show_progress(fmt::format("inspect{} {}{}{} rows, file {} of {}", bar.empty() ? ":" : "", bar, rows_done, total, part_, num_parts_));
  }

 private:
  static constexpr std::chrono::milliseconds kInterval{200};
  const size_t num_parts_;
  const int64_t num_rows_;
  size_t part_ = 0;
  size_t part_shown_ = 0;
  std::chrono::steady_clock::time_point last_shown_{};
};

Status study_part(FileSystem& files, const TablePart& part, int64_t num_rows, const std::stop_token& stop, Studies& studies,
                  StudyLine& line, DamageLog& damage) {
  if (damage.is_on() && part.is_ours) {
    DARKROOM_RETURN_IF_ERROR(damage.take(verify_shard(files, part.path)));
  }
  const auto visit = [&](const arrow::RecordBatch& batch, const BatchPlace& place) {
    for (const std::string& column : studies.columns) {
      if (batch.schema()->GetFieldIndex(column) < 0) {
        return Status::corrupt_data("a part lacks a column of the first one, or has it twice (path, column):", part.path, column);
      }
    }
    for (const auto& study : studies.all) {
      DARKROOM_RETURN_IF_ERROR(study->add(batch, place, damage));
    }
    studies.num_rows += batch.num_rows();
    line.show(studies.num_rows);
    return Status::ok();
  };
  // --verify reads every column, so that every page's checksum is compared.
  const auto columns = damage.is_on() ? std::vector<std::string>() : studies.columns;
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_malformed, visit_rows(files, part, {.first = 0, .count = num_rows}, columns, stop, visit));
  studies.num_malformed += num_malformed;
  return Status::ok();
}

Status study_parts(FileSystem& files, const TableParts& parts, const std::stop_token& stop, Studies& studies, DamageLog& damage) {
  const int64_t num_rows = parts.num_rows();
  StudyLine line(parts.parts.size(), damage.is_on() ? num_rows : std::min<int64_t>(num_rows, kRowsStudied));
  for (const TablePart& part : parts.parts) {
    const int64_t num_left = damage.is_on() ? INT64_MAX : kRowsStudied - studies.num_rows;
    if (num_left <= 0 || (studies.all.empty() && !damage.is_on())) {
      break;
    }
    line.begin_part(studies.num_rows);
    const int64_t num_damages = damage.count();
    const Status status = study_part(files, part, num_left, stop, studies, line, damage);
    // A file that is known to be damaged does not count twice for the read that stumbles over the same place.
    if (damage.count() == num_damages || !DamageLog::is_about_data(status)) {
      DARKROOM_RETURN_IF_ERROR(damage.take(status));
    }
  }
  return Status::ok();
}

Status study_rows(FileSystem& files, const TableParts& parts, const std::stop_token& stop, Studies& studies, DamageLog& damage) {
  DARKROOM_RETURN_IF_ERROR(study_parts(files, parts, stop, studies, damage));
  if (damage.is_on() && studies.keys != nullptr) {
    DARKROOM_RETURN_IF_ERROR(studies.keys->name_duplicates(files, parts, stop, damage));
  }
  return Status::ok();
}

std::string value_text(const nlohmann::json& value) {
  const std::string text =
      value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return clipped_text(text, 96);
}

// The record's fields as rows; an object's under "name.field".
void add_fields(const nlohmann::json& record, const std::string& prefix, ReportTable& table) {
  for (const auto& [name, value] : record.items()) {
    if (value.is_object()) {
      add_fields(value, prefix + name + ".", table);
    } else {
      table.rows.push_back({prefix + name, value_text(value)});
    }
  }
}

void describe_parts(const TableParts& parts, InspectReport& report) {
  const int64_t num_rows = parts.num_rows();
  ReportTable facts{.title = "",
                    .head = {},
                    .rows = {{"format", std::string(format_name(parts.format))},
                             {"parts", grouped_digits(static_cast<int64_t>(parts.parts.size()))},
                             {"rows", num_rows < 0 ? "not counted (large file; --verify counts)" : grouped_digits(num_rows)},
                             {"bytes", fmt::format("{} ({})", grouped_digits(parts.num_bytes()), bytes_text(parts.num_bytes()))}}};
  report.summary["format"] = format_name(parts.format);
  report.summary["parts"] = parts.parts.size();
  report.summary["rows"] = num_rows < 0 ? nlohmann::json() : nlohmann::json(num_rows);
  report.summary["bytes"] = parts.num_bytes();
  report.summary["fingerprint"] = nullptr;
  if (parts.num_ours > 0) {
    std::string errors;
    for (const auto& [code, count] : parts.tally.rows_by_error) {
      errors += fmt::format("{}{} {}", errors.empty() ? "" : ", ", code, grouped_digits(count));
    }
    const auto job = parts.first_record.value("job", std::string());
    facts.rows.push_back({"rows in", grouped_digits(parts.tally.rows_in)});
    facts.rows.push_back({"rows out", grouped_digits(parts.tally.rows_out)});
    facts.rows.push_back({"rows by error", errors.empty() ? "none" : errors});
    facts.rows.push_back({"fingerprint", job});
    report.summary["rows_in"] = parts.tally.rows_in;
    report.summary["rows_out"] = parts.tally.rows_out;
    report.summary["rows_by_error"] = parts.tally.rows_by_error;
    report.summary["fingerprint"] = job;
  } else {
    facts.rows.push_back({"written by", "another program (no shard record)"});
  }
  for (const auto& [what, count] :
       {std::pair("parts of another job", parts.num_other_jobs), std::pair("parts with other columns", parts.num_other_schemas)}) {
    if (count > 0) {
      facts.rows.push_back({what, grouped_digits(count)});
    }
  }
  report.tables.push_back(std::move(facts));
}

void describe_job(const TableParts& parts, InspectReport& report) {
  if (parts.first_record.is_null()) {
    return;
  }
  const nlohmann::json identity = parts.first_record.value("identity", nlohmann::json::object());
  ReportTable job{.title = "job", .head = {}, .rows = {}};
  add_fields(identity, "", job);
  report.tables.push_back(std::move(job));
  report.summary["job"] = identity;
  if (!parts.latents_record.is_null()) {
    ReportTable latents{.title = "latents", .head = {}, .rows = {}};
    add_fields(parts.latents_record, "", latents);
    report.tables.push_back(std::move(latents));
    report.summary["latents"] = parts.latents_record;
  }
}

void describe_schema(const arrow::Schema& schema, InspectReport& report) {
  ReportTable columns{.title = "columns", .head = {"column", "type"}, .rows = {}};
  for (const auto& field : schema.fields()) {
    columns.rows.push_back({clipped_text(field->name(), 64), clipped_text(field->type()->ToString(), 96)});
    report.summary["schema"].push_back({{"column", columns.rows.back()[0]}, {"type", field->type()->ToString()}});
  }
  report.tables.push_back(std::move(columns));
}

void describe_studies(const Studies& studies, const TableParts& parts, bool verified, InspectReport& report) {
  if (studies.all.empty() && !verified) {
    return;
  }
  const bool is_whole = verified || (parts.num_rows() >= 0 && studies.num_rows >= parts.num_rows());
  ReportTable scope{.title = "statistics",
                    .head = {},
                    .rows = {{"rows studied", grouped_digits(studies.num_rows) + (is_whole ? " (all)" : " (the first; --verify: all)")}}};
  if (studies.num_malformed > 0) {
    scope.rows.push_back({"malformed rows", grouped_digits(studies.num_malformed)});
  }
  report.summary["rows_studied"] = studies.num_rows;
  report.summary["malformed_rows"] = studies.num_malformed;
  report.tables.push_back(std::move(scope));
  for (const auto& study : studies.all) {
    study->report(report);
  }
}

// Raw bytes do not say their shape, and a text model may be of any width; a shard of ours says it.
void add_recorded_shape(const nlohmann::json& latents_record, TableKind& kind) {
  const auto length = latents_record.is_object() ? latents_record.find("text_length") : latents_record.end();
  const auto width = latents_record.is_object() ? latents_record.find("text_width") : latents_record.end();
  if (length == latents_record.end() || width == latents_record.end() || !length->is_number_integer() || !width->is_number_integer()) {
    return;
  }
  for (TensorColumnName& tensor : kind.tensors) {
    if (!tensor.is_latents) {
      tensor.shapes.insert(tensor.shapes.begin(), {length->get<int64_t>(), width->get<int64_t>()});
    }
  }
}

// What a damaged dataset cannot show is no second finding.
template <typename T>
Status show_unless_damaged(Result<T> result, bool has_damage, T& target) {
  if (result.is_ok()) {
    target = std::move(result).value();
    return Status::ok();
  }
  return has_damage && DamageLog::is_about_data(result.status()) ? Status::ok() : result.status();
}

}  // namespace

TableKind kind_of_parts(const TableParts& parts) {
  TableKind kind = table_kind(*parts.schema, parts.parts.front().path);
  add_recorded_shape(parts.latents_record, kind);
  return kind;
}

void describe_tables(const TableParts& parts, InspectReport& report) {
  describe_parts(parts, report);
  describe_schema(*parts.schema, report);
}

Status inspect_tables(FileSystem& files, const TableInputs& tables, const InspectOptions& options, const std::stop_token& stop,
                      InspectReport& report, DamageLog& damage) {
  DARKROOM_ASSIGN_OR_RETURN(TableParts parts, find_table_parts(files, tables.inputs, options.uri, kMaxBytesCounted, damage, stop));
  if (damage.is_on() && tables.are_a_folders) {
    DARKROOM_RETURN_IF_ERROR(check_part_list(files, parts, damage));
  }
  report.kind = "table";
  describe_parts(parts, report);
  if (parts.schema == nullptr) {
    return Status::ok();  // Every file is damaged: the damage says so.
  }
  const TableKind kind = kind_of_parts(parts);
  report.kind = kind.name;
  const bool wants_sheet = !options.sheet_path.empty();
  const bool wants_cards = !options.html_path.empty() && kind.has_pictures();
  if (wants_sheet && !kind.has_pictures()) {
    return Status::failed_precondition("a contact sheet needs a dataset of images or latents; this is a " + kind.name + ":", options.uri);
  }
  describe_job(parts, report);
  describe_schema(*parts.schema, report);
  Studies studies = make_studies(kind, options.verify);
  const Status studied = study_rows(files, parts, stop, studies, damage);
  describe_studies(studies, parts, options.verify, report);  // Also of the rows before a stop.
  DARKROOM_RETURN_IF_ERROR(studied);
  const RowSpan first_rows{.first = 0, .count = options.num_rows};
  if (options.num_rows > 0) {
    ReportTable table;
    DARKROOM_RETURN_IF_ERROR(show_unless_damaged(rows_table(files, parts, kind, first_rows, stop), damage.count() > 0, table));
    if (wants_cards) {
      auto cards = first_row_cards(files, parts, kind, table, options, stop);
      DARKROOM_RETURN_IF_ERROR(show_unless_damaged(std::move(cards), damage.count() > 0, report.cards));
    }
    table.title = "first rows";
    report.tables.push_back(std::move(table));
  }
  if (wants_sheet) {
    DARKROOM_RETURN_IF_ERROR(show_unless_damaged(first_rows_sheet(files, parts, kind, options, stop), damage.count() > 0, report.sheet));
  }
  return Status::ok();
}

}  // namespace darkroom
