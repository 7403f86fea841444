#include "latents_writer.h"

#include <utility>

#include "darkroom/process/latents_batch.h"

namespace darkroom {
namespace {

// Columns that are carried along may be large: then a row group ends sooner.
constexpr int64_t kLatentsGroupBytes = 256 << 20;

}  // namespace

Result<std::unique_ptr<LatentsWriter>> LatentsWriter::open(JobRun& run, const WorkItem& work, const LatentsLayout& layout) {
  std::unique_ptr<LatentsWriter> writer(new LatentsWriter(run, work, layout));
  const Location& output = run.output();
  DARKROOM_ASSIGN_OR_RETURN(auto object, output.store->begin_object(output.path, work.part_name()));
  const PagedShardOptions options{.row_group_bytes = kLatentsGroupBytes, .row_group_rows = kLatentsGroupRows};
  DARKROOM_ASSIGN_OR_RETURN(writer->shard_, PagedShardWriter::open(std::move(object), writer->schema_, options));
  return writer;
}

Status LatentsWriter::add(int64_t /*position*/, ProcessBatch batch) {
  tally_.add(batch.tally);
  run_.count_rows(batch.tally.rows_in, batch.tally.rows_by_error);
  return write_rows(batch);
}

Status LatentsWriter::write_rows(const ProcessBatch& batch) {
  DARKROOM_ASSIGN_OR_RETURN(const auto rows, make_latents_batch(layout_, schema_, batch));
  return rows->num_rows() > 0 ? shard_->write(*rows) : Status::ok();
}

Result<std::unique_ptr<FinishedItem>> LatentsWriter::finish() {
  DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, shard_->finish(run_.plan().footer_of(work_, tally_, layout_.footer_pairs())));
  return std::unique_ptr<FinishedItem>(std::make_unique<FinishedPart>(std::move(shard), std::move(tally_)));
}

}  // namespace darkroom
