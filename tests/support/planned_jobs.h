#pragma once

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/ingest/job_plan.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "support/other_stores.h"
#include "support/put_shard.h"

namespace darkroom {

inline std::shared_ptr<arrow::Schema> value_schema() { return arrow::schema({arrow::field("value", arrow::utf8())}); }

inline std::shared_ptr<arrow::RecordBatch> value_rows(int64_t num_rows, const std::string& value) {
  arrow::StringBuilder values;
  for (int64_t row = 0; row < num_rows; ++row) {
    EXPECT_TRUE(values.Append(value).ok());
  }
  return arrow::RecordBatch::Make(value_schema(), num_rows, {*values.Finish()});
}

/// Makes the input in/NAME of so many rows.
inline void add_input(FileSystem& files, const std::string& name, int64_t num_rows, const std::string& value = "x") {
  const auto written = put_shard(files, "in", name, *value_rows(num_rows, value));
  ASSERT_TRUE(written.is_ok()) << written.status().to_string();
}

inline JobIdentity small_job(int64_t rows_per_file = 5) {
  return {.verb = "download", .fields = {{"a", 1}}, .rows_per_file = rows_per_file};
}

/// The tables in a folder, as a job lists them.
inline Result<std::vector<JobInput>> list_folder(Store& store, const std::string& folder) {
  MetricsRegistry metrics;
  StoreSet stores(with_other_stores({&store}), system_clock(), metrics);
  return list_job_inputs(stores, {fmt::format("{}://{}", store.scheme(), folder)});
}

/// A plan of small_job() or another over in/ and out/.
inline Result<std::unique_ptr<JobPlan>> plan_job(Store& store, Selection selection = {}, JobIdentity identity = small_job(),
                                                 const std::stop_token& stop = {}) {
  JobRequest request{.output = {.store = &store, .path = "out"}, .identity = std::move(identity), .input_store = &store};
  request.selection = std::move(selection);
  DARKROOM_ASSIGN_OR_RETURN(request.listed, list_folder(store, "in"));
  return JobPlan::make(std::move(request), stop);
}

inline ItemTally tally_of(const WorkItem& item) { return {.rows_in = item.num_rows, .rows_out = item.num_rows}; }

/// An item's shard, not yet published.
inline Result<FinishedShard> write_item(JobPlan& plan, const WorkItem& item, const std::string& value = "x") {
  DARKROOM_ASSIGN_OR_RETURN(auto object, plan.output().store->begin_object(plan.output().path, item.part_name()));
  DARKROOM_ASSIGN_OR_RETURN(auto shard, PagedShardWriter::open(std::move(object), value_schema()));
  DARKROOM_RETURN_IF_ERROR(shard->write(*value_rows(item.num_rows, value)));
  return shard->finish(plan.footer_of(item, tally_of(item)));
}

inline Status commit_item(JobPlan& plan, const WorkItem& item, const std::string& value = "x") {
  DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, write_item(plan, item, value));
  return plan.publish(item, tally_of(item), std::move(shard)).status();
}

/// Does what is pending, or so many items of it.
inline Status do_pending(JobPlan& plan, int64_t max_items = INT64_MAX) {
  int64_t next = 0;
  for (int64_t i = 0; i < max_items; ++i) {
    const std::optional<WorkItem> item = plan.next_pending(next);
    if (!item) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(commit_item(plan, *item));
    next = item->number + 1;
  }
  return Status::ok();
}

/// One whole run of a job.
inline Status run_small_job(Store& store, Selection selection = {}, JobIdentity identity = small_job()) {
  DARKROOM_ASSIGN_OR_RETURN(const auto plan, plan_job(store, std::move(selection), std::move(identity)));
  DARKROOM_RETURN_IF_ERROR(plan->prepare());
  DARKROOM_RETURN_IF_ERROR(do_pending(*plan));
  return plan->write_summary({});
}

}  // namespace darkroom
