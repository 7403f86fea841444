#include "latents_subset.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "darkroom/batches/latents_info.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/stores/input_listing.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tables/tensor_forms.h"

namespace darkroom {
namespace {

constexpr const char* kSubsetShard = "part-000000.parquet";

using BatchVisitor = std::function<Status(const arrow::RecordBatch&, const BytesColumn& keys)>;

// Shows every batch of every shard; `columns` (empty: all) must hold "key".
Status visit_batches(FileSystem& files, const std::string& latents, const std::vector<std::string>& columns, const BatchVisitor& visit) {
  DARKROOM_ASSIGN_OR_RETURN(const auto parts, list_inputs(files, latents));
  for (const FileInfo& part : parts) {
    DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(files, part.path));
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_rows, table->num_rows());
    DARKROOM_ASSIGN_OR_RETURN(const auto rows, table->read_rows(0, num_rows, columns));
    for (;;) {
      DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next());
      if (batch == nullptr) {
        break;
      }
      DARKROOM_ASSIGN_OR_RETURN(const BytesColumn keys, BytesColumn::open(part.path, "key", batch->GetColumnByName("key")));
      DARKROOM_RETURN_IF_ERROR(visit(*batch, keys));
    }
  }
  return Status::ok();
}

Result<std::string> latents_facts(FileSystem& files, const std::string& latents) {
  DARKROOM_ASSIGN_OR_RETURN(const auto parts, list_inputs(files, latents));
  DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(files, parts.front().path));
  const std::string* facts = footer.find(kLatentsFooterKey);
  if (facts == nullptr) {
    return Status::failed_precondition("a latents shard lacks its footer facts (path, key):", parts.front().path, kLatentsFooterKey);
  }
  return *facts;
}

}  // namespace

Result<int64_t> write_latents_subset(FileSystem& files, const std::string& latents, const std::string& subset,
                                     const std::set<std::string>& wanted) {
  DARKROOM_ASSIGN_OR_RETURN(std::string facts, latents_facts(files, latents));
  DARKROOM_RETURN_IF_ERROR(files.create_folders(subset));
  DARKROOM_ASSIGN_OR_RETURN(const std::string empty_caption, read_file(files, join_path(latents, kEmptyCaptionFile)));
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, join_path(subset, kEmptyCaptionFile), empty_caption));
  const std::unique_ptr<Store> store = make_posix_store(files, "file");
  std::unique_ptr<PagedShardWriter> writer;
  DARKROOM_RETURN_IF_ERROR(visit_batches(files, latents, {}, [&](const arrow::RecordBatch& batch, const BytesColumn& keys) -> Status {
    if (writer == nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(auto object, store->begin_object(subset, kSubsetShard));
      DARKROOM_ASSIGN_OR_RETURN(writer, PagedShardWriter::open(std::move(object), batch.schema()));
    }
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      if (wanted.contains(std::string(keys.at(row).value_or("")))) {
        DARKROOM_RETURN_IF_ERROR(writer->write(*batch.Slice(row, 1)));
      }
    }
    return Status::ok();
  }));
  const int64_t num_rows = writer == nullptr ? 0 : writer->num_rows();
  if (num_rows == 0) {
    return Status::not_found("a latents dataset has none of the rows that were chosen from it:", latents);
  }
  DARKROOM_ASSIGN_OR_RETURN(const FinishedShard shard, writer->finish({{kLatentsFooterKey, std::move(facts)}}));
  DARKROOM_RETURN_IF_ERROR(shard.object->publish().status());
  return num_rows;
}

Result<torch::Tensor> read_latents_of(FileSystem& files, const std::string& latents, int64_t resolution,
                                      const std::vector<std::string>& keys) {
  const std::string column_name = fmt::format("image_latents_{}", resolution);
  std::map<std::string, int64_t> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    places.emplace(keys[i], static_cast<int64_t>(i));
  }
  torch::Tensor found;
  int64_t num_found = 0;
  const auto take_rows = [&](const arrow::RecordBatch& batch, const BytesColumn& batch_keys) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(const TensorColumn column, TensorColumn::open(*batch.schema()->field(1), batch.column(1)));
    if (!found.defined()) {
      std::vector<int64_t> shape = column.shape();
      shape.insert(shape.begin(), static_cast<int64_t>(keys.size()));
      found = torch::zeros(shape, torch::kFloat32);
    }
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      const auto place = places.find(std::string(batch_keys.at(row).value_or("")));
      if (place != places.end()) {
        auto* out = found.data_ptr<float>() + place->second * column.num_elements();
        column.read_floats(row, {out, static_cast<size_t>(column.num_elements())});
        ++num_found;
      }
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(visit_batches(files, latents, {"key", column_name}, take_rows));
  if (num_found != static_cast<int64_t>(places.size())) {
    return Status::not_found("a latents dataset lacks rows that it should have (path, asked for, found):", latents, places.size(),
                             num_found);
  }
  return found;
}

}  // namespace darkroom
