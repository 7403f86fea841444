#include "darkroom/process/kept_columns.h"

#include <arrow/extension_type.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/ingest/value_copier.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {
namespace {

/// Whether some latents dataset of the dialect has a column of ours of that name.
bool is_latents_column(const std::string& lower, LatentsDialect dialect) {
  constexpr std::array<std::string_view, 6> kNames = {"key", "caption", "width", "height", "caption_embeddings", "caption_ids"};
  const bool is_foreign = dialect != LatentsDialect::kDarkroom && (lower == "caption_latents" || lower.starts_with("latents_"));
  return is_foreign || std::ranges::find(kNames, lower) != kNames.end() || lower.starts_with("image_latents_") ||
         lower.starts_with("image_moments_");
}

bool has_dictionary(const arrow::DataType& type) {
  if (type.id() == arrow::Type::EXTENSION) {
    return has_dictionary(*static_cast<const arrow::ExtensionType&>(type).storage_type());
  }
  return type.id() == arrow::Type::DICTIONARY ||
         std::ranges::any_of(type.fields(), [](const auto& field) { return has_dictionary(*field->type()); });
}

bool are_equal(const arrow::FieldVector& a, const arrow::FieldVector& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x->Equals(*y); });
}

Status types_differ(const std::string& first_path, const arrow::FieldVector& first, const std::string& path,
                    const arrow::FieldVector& fields) {
  const auto differs = std::ranges::mismatch(first, fields, [](const auto& x, const auto& y) { return x->Equals(*y); });
  return Status::failed_precondition(
      fmt::format("a column of --keep-columns has another type in another file; process files of one type at a time (column, file, type, "
                  "other file): {} {} {} {}",
                  (*differs.in1)->name(), first_path, (*differs.in1)->type()->ToString(), path),
      (*differs.in2)->type()->ToString());
}

}  // namespace

Status check_kept_names(const std::vector<std::string>& names, LatentsDialect dialect) {
  std::vector<std::string> known;  // In lower case: readers such as DuckDB do not tell names apart by it.
  for (const std::string& name : names) {
    const std::string& lower = known.emplace_back(ascii_lower(name));
    if (name.empty() || is_latents_column(lower, dialect)) {
      return Status::invalid_argument("--keep-columns names a column that a latents dataset has of its own:", name);
    }
    if (std::ranges::count(known, lower) > 1) {
      return Status::invalid_argument("--keep-columns names a column twice (in whatever letter case):", name);
    }
  }
  return Status::ok();
}

Result<arrow::FieldVector> kept_fields(const arrow::Schema& schema, const std::string& path, const std::vector<std::string>& names) {
  arrow::FieldVector fields;
  for (const std::string& name : names) {
    const auto field = schema.GetFieldByName(name);  // Null also where the name stands twice.
    if (field == nullptr) {
      return Status::not_found(
          fmt::format("the image dataset has no such column for --keep-columns, or has it twice (table, columns, asked for): {} [{}]", path,
                      fmt::join(schema.field_names(), ", ")),
          name);
    }
    DARKROOM_ASSIGN_OR_RETURN(const ValueCopier copier, ValueCopier::create(name, field->type()));
    fields.push_back(arrow::field(name, copier.type()));
  }
  return fields;
}

Status check_sendable(const arrow::FieldVector& fields, const std::string& path) {
  for (const auto& field : fields) {
    if (has_dictionary(*field->type())) {
      return Status::failed_precondition(
          fmt::format("--transformers send no column with a dictionary within its lists or structs; go on without them, or leave it out of "
                      "--keep-columns (table, column, type): {} {}",
                      path, field->name()),
          field->type()->ToString());
    }
  }
  return Status::ok();
}

Status KeptColumns::look_at(const arrow::Schema& schema, const std::string& path) {
  if (names_.empty()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(arrow::FieldVector fields, kept_fields(schema, path, names_));
  const std::lock_guard hold(mutex_);
  if (std::ranges::none_of(seen_, [&](const auto& known) { return are_equal(known, fields); })) {
    seen_.push_back(std::move(fields));
  }
  return Status::ok();
}

Result<arrow::FieldVector> KeptColumns::fields(const JobPlan& plan) const {
  const std::lock_guard hold(mutex_);
  if (seen_.size() == 1) {
    return seen_.front();
  }
  // Tables differ, perhaps only those that the job leaves out: its own decide.
  arrow::FieldVector first;
  std::string first_path;
  const std::vector<JobInput>& inputs = plan.inputs();
  for (size_t i = 0; i < inputs.size() && !names_.empty(); ++i) {
    if (inputs[i].num_rows == 0) {
      continue;  // A tar without samples has no columns of theirs.
    }
    DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(plan.input_place({.input = i})));
    DARKROOM_ASSIGN_OR_RETURN(arrow::FieldVector fields, kept_fields(*table->schema(), inputs[i].path, names_));
    if (first.empty()) {
      first = std::move(fields);
      first_path = inputs[i].path;
    } else if (!are_equal(first, fields)) {
      return types_differ(first_path, first, inputs[i].path, fields);
    }
  }
  return first;
}

std::shared_ptr<arrow::RecordBatch> select_columns(const arrow::RecordBatch& batch, const std::vector<std::string>& names) {
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const std::string& name : names) {
    fields.push_back(batch.schema()->GetFieldByName(name));
    arrays.push_back(batch.GetColumnByName(name));
  }
  return arrow::RecordBatch::Make(arrow::schema(std::move(fields)), batch.num_rows(), std::move(arrays));
}

Result<arrow::ArrayVector> copy_kept(const arrow::FieldVector& fields, std::span<const KeptRow> rows) {
  arrow::ArrayVector columns;
  for (size_t column = 0; column < fields.size(); ++column) {
    DARKROOM_ASSIGN_OR_RETURN(ValueCopier copier, ValueCopier::create(fields[column]->name(), fields[column]->type()));
    for (const KeptRow& row : rows) {
      DARKROOM_RETURN_IF_ERROR(copier.append(*row.columns->column(static_cast<int>(column)), row.row));
    }
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), copier.finish());
  }
  return columns;
}

}  // namespace darkroom
