#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/files/store.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/tables/table_rows.h"
#include "darkroom/tables/where.h"

namespace darkroom {

/// The rows of a job's inputs item by item, as both jobs read them (TableRows over whichever input an item is of). Thread safety: one
/// thread.
class InputRows {
 public:
  /// The columns to read of an input; empty for all.
  using ChooseColumns = std::function<Result<std::vector<std::string>>(const TableReader& table)>;

  /// `where` may be null and outlives this.
  InputRows(const WhereExpression* where, ChooseColumns choose, const ReadOptions& options)
      : where_(where), choose_(std::move(choose)), options_(options) {}

  /// Goes to the first row of an item. Errors: JobPlan::open_input's; WhereExpression::bind's; choose's; TableRows::seek's.
  Status seek(const JobPlan& plan, const WorkItem& item);
  /// REQUIRES of all the next: seek().
  TableReader& table() { return rows_->table(); }
  /// As of TableRows; `end` counts in the input.
  Result<KeptRows> next(int64_t end) { return rows_->next(end); }
  int64_t finish(int64_t end) { return rows_->finish(end); }
  int64_t num_malformed_rows() const { return rows_->num_malformed_rows(); }

 private:
  const WhereExpression* const where_;
  const ChooseColumns choose_;
  const ReadOptions options_;
  Location place_;  // Of the input that is open.
  std::optional<TableRows> rows_;
};

}  // namespace darkroom
