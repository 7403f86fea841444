#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/process/latents_dialect.h"

namespace darkroom {

/// Whether columns of these names can stand beside ours in a latents dataset. Errors: kInvalidArgument naming the first that cannot.
Status check_kept_names(const std::vector<std::string>& names, LatentsDialect dialect);

/// What columns of a table become. Errors: KeptColumns::look_at's.
Result<arrow::FieldVector> kept_fields(const arrow::Schema& schema, const std::string& path, const std::vector<std::string>& names);

/// Whether --transformers can send such columns, whose slices hold no dictionaries. Errors: kFailedPrecondition naming the first that has
/// one below its top.
Status check_sendable(const arrow::FieldVector& fields, const std::string& path);

/// Columns of the image dataset that process carries along (--keep-columns): looked for in every input while the job is planned.
/// Thread safety: any thread.
class KeptColumns {
 public:
  explicit KeptColumns(std::vector<std::string> names) : names_(std::move(names)) {}

  const std::vector<std::string>& names() const { return names_; }
  /// Takes note of an input's columns. Errors: kNotFound naming the table, the missing column and those that exist; kFailedPrecondition (a
  /// type that cannot be copied).
  Status look_at(const arrow::Schema& schema, const std::string& path);
  /// The columns as they are stored, in the order of their names: types are those of every input of the plan. Errors: kFailedPrecondition
  /// naming two inputs whose types differ; open_table's. REQUIRES: look_at() has seen the inputs.
  Result<arrow::FieldVector> fields(const JobPlan& plan) const;

 private:
  const std::vector<std::string> names_;
  mutable std::mutex mutex_;
  std::vector<arrow::FieldVector> seen_;  // Of tables with different columns. Guarded by mutex_.
};

/// A row's values of the columns that are carried along.
struct KeptRow {
  std::shared_ptr<const arrow::RecordBatch> columns;  ///< Shared by the rows that were read together.
  int64_t row = 0;
};

/// The columns alone; their memory is the batch's. REQUIRES: the batch has them.
std::shared_ptr<arrow::RecordBatch> select_columns(const arrow::RecordBatch& batch, const std::vector<std::string>& names);

/// The values of `rows` as columns of these types. Errors: kResourceExhausted.
Result<arrow::ArrayVector> copy_kept(const arrow::FieldVector& fields, std::span<const KeptRow> rows);

}  // namespace darkroom
