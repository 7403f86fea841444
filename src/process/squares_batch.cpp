#include "darkroom/process/squares_batch.h"

#include <numeric>
#include <utility>
#include <vector>

#include "darkroom/process/latents_batch.h"

namespace darkroom {
namespace {

std::vector<int64_t> numbers_up_to(size_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

}  // namespace

Result<std::shared_ptr<arrow::RecordBatch>> make_squares_batch(int resolution, const arrow::FieldVector& kept, const ProcessBatch& batch) {
  arrow::FieldVector fields = {arrow::field("key", arrow::utf8(), false), arrow::field("caption", arrow::utf8(), false),
                               arrow::field("width", arrow::int32(), false), arrow::field("height", arrow::int32(), false),
                               squares_field(resolution)};
  DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector columns, build_text_columns(batch.prepared, numbers_up_to(batch.prepared.size())));
  DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), build_squares(resolution, batch.prepared));
  std::vector<KeptRow> kept_rows;
  for (const int64_t position : batch.kept.empty() ? std::vector<int64_t>() : batch.positions) {
    kept_rows.push_back(batch.kept[static_cast<size_t>(position)]);
  }
  DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector copied, copy_kept(kept, kept_rows));
  fields.insert(fields.end(), kept.begin(), kept.end());
  columns.insert(columns.end(), copied.begin(), copied.end());
  return arrow::RecordBatch::Make(arrow::schema(std::move(fields)), static_cast<int64_t>(batch.prepared.size()), std::move(columns));
}

}  // namespace darkroom
