#include "darkroom/batches/latents_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "darkroom/feed/row_group_reader.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/tensor_column.h"

namespace darkroom {
namespace {

// A row group in memory, tensors in their stored type.
struct LatentsGroup {
  std::vector<std::string> keys;  // Empty without a key column.
  torch::Tensor latents;          // [rows, C, h, w]
  torch::Tensor states;           // [rows, T, W]

  int64_t num_bytes() const { return static_cast<int64_t>(latents.nbytes() + states.nbytes() + keys.size() * 48); }
};

struct LatentsColumns {
  std::string latents;
  std::string states;
  std::string key;  // Empty: there is none.
};

bool holds_texts(const arrow::DataType& type) {
  const bool is_dictionary = type.id() == arrow::Type::DICTIONARY;
  return is_bytes_type(is_dictionary ? *static_cast<const arrow::DictionaryType&>(type).value_type() : type);
}

Result<LatentsColumns> find_columns(const arrow::Schema& schema, int64_t resolution, const std::string& path) {
  const auto first_of = [&](const std::vector<std::string>& names) {
    for (const auto& name : names) {
      if (schema.GetFieldIndex(name) >= 0) {
        return name;
      }
    }
    return std::string();
  };
  LatentsColumns columns;
  columns.latents = first_of(
      {fmt::format("image_latents_{}", resolution), fmt::format("latents_{}_bytes", resolution), fmt::format("latents_{}", resolution)});
  columns.states = first_of({"caption_embeddings", "caption_latents"});
  const auto key = schema.GetFieldByName("key");
  columns.key = key != nullptr && holds_texts(*key->type()) ? "key" : "";
  if (columns.latents.empty() && !first_of({fmt::format("image_moments_{}", resolution)}).empty()) {
    return Status::failed_precondition("training from moments is not built yet: process again with --latents sample:", path);
  }
  if (columns.states.empty() && !first_of({"caption_ids"}).empty()) {
    return Status::failed_precondition("training from token ids alone is not built yet: process again with --text embeddings:", path);
  }
  if (columns.latents.empty() || columns.states.empty()) {
    const std::string missing = columns.latents.empty() ? fmt::format("image_latents_{}", resolution) : "caption_embeddings";
    return Status::not_found(fmt::format("the dataset has no column '{}' for data.resolution = {} (path, columns):", missing, resolution),
                             path, fmt::format("{}", fmt::join(schema.field_names(), ", ")));
  }
  return columns;
}

torch::Dtype stored_dtype(const TensorColumn& column) {
  return column.element() == TensorElement::kFloat16 ? torch::kFloat16 : torch::kFloat32;
}

// Copies a column's rows into rows [first, ...) of `target`. Errors: kCorruptData naming the first null row.
Status copy_column(const TensorColumn& column, int64_t first, torch::Tensor& target, std::string_view where, int64_t first_in_file) {
  const auto row_bytes = static_cast<size_t>(column.num_elements()) * target.element_size();
  const bool as_stored = column.element().has_value() && stored_dtype(column) == target.scalar_type();
  for (int64_t row = 0; row < column.num_rows(); ++row) {
    if (column.is_null(row)) {
      return Status::corrupt_data("a latents row is null (path, row):", where, first_in_file + first + row);
    }
    auto* out = static_cast<std::byte*>(target.data_ptr()) + static_cast<size_t>(first + row) * row_bytes;
    if (as_stored) {
      std::memcpy(out, column.bytes(row).data(), row_bytes);
    } else {
      DARKROOM_CHECK(target.scalar_type() == torch::kFloat32, "a column changed its type within a file (path):", where);
      column.read_floats(row, {reinterpret_cast<float*>(out), static_cast<size_t>(column.num_elements())});
    }
  }
  return {};
}

// [rows, shape...] of one column over all batches of a row group.
Result<torch::Tensor> read_column(const std::vector<std::shared_ptr<arrow::RecordBatch>>& batches, int column_number,
                                  const std::vector<int64_t>& shape, const RowGroupPlace& place, const std::string& path) {
  std::vector<int64_t> sizes = {place.num_rows};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  torch::Tensor values;
  int64_t first = 0;
  for (const auto& batch : batches) {
    auto column = TensorColumn::open(*batch->schema()->field(column_number), batch->column(column_number), shape);
    if (!column.is_ok()) {
      return column.status().with_context(path);
    }
    if (!values.defined()) {
      values = torch::empty(sizes, stored_dtype(*column));
    }
    DARKROOM_RETURN_IF_ERROR(copy_column(*column, first, values, path, place.first_row));
    first += column->num_rows();
  }
  return values;
}

// Errors: kCorruptData naming the first row with a NaN or an infinity.
Status check_finite(const torch::Tensor& values, std::string_view column, const RowGroupPlace& place, const std::string& path) {
  const auto finite = torch::isfinite(values);
  if (finite.all().item<bool>()) {
    return {};
  }
  const auto bad_rows = finite.reshape({values.size(0), -1}).all(1).logical_not().nonzero();
  return Status::corrupt_data("a latents dataset holds a NaN or an infinity; process this shard again (shard, row, column):", path,
                              place.first_row + bad_rows[0][0].item<int64_t>(), column);
}

}  // namespace

struct LatentsReader::State {
  LatentsReaderOptions options;
  std::unique_ptr<RowGroupReader> reader;
  LruCache<LatentsGroup> groups{0};

  Result<std::shared_ptr<const LatentsGroup>> load(const RowGroupPlace& place);
};

Result<std::shared_ptr<const LatentsGroup>> LatentsReader::State::load(const RowGroupPlace& place) {
  const std::string& path = reader->path(place.file);
  DARKROOM_ASSIGN_OR_RETURN(const auto schema, reader->schema(place));
  DARKROOM_ASSIGN_OR_RETURN(const LatentsColumns columns, find_columns(*schema, options.resolution, path));
  std::vector<std::string> names = {columns.latents, columns.states};
  if (!columns.key.empty()) {
    names.push_back(columns.key);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto batches, reader->read(place, names));
  LatentsGroup group;
  DARKROOM_ASSIGN_OR_RETURN(group.latents, read_column(batches, 0, options.latents_shape, place, path));
  DARKROOM_ASSIGN_OR_RETURN(group.states, read_column(batches, 1, options.states_shape, place, path));
  DARKROOM_RETURN_IF_ERROR(check_finite(group.latents, columns.latents, place, path));
  DARKROOM_RETURN_IF_ERROR(check_finite(group.states, columns.states, place, path));
  for (const auto& batch : batches) {
    if (columns.key.empty()) {
      break;
    }
    DARKROOM_ASSIGN_OR_RETURN(const auto keys, BytesColumn::open(path, columns.key, batch->column(2)));
    for (int64_t row = 0; row < batch->num_rows(); ++row) {
      group.keys.emplace_back(keys.at(row).value_or(""));  // Empty: the row's number stands for it.
    }
  }
  const int64_t num_bytes = group.num_bytes();
  return groups.insert(place.id, std::move(group), num_bytes);
}

LatentsReader::LatentsReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
LatentsReader::~LatentsReader() = default;

Result<std::unique_ptr<LatentsReader>> LatentsReader::open(const DatasetFiles& dataset, const DatasetIndex& index,
                                                           const LatentsReaderOptions& options) {
  DARKROOM_CHECK(options.latents_shape.size() == 3 && options.states_shape.size() == 2, "latents need a shape (C, h, w) and states (T, W)");
  auto state = std::make_unique<State>();
  state->options = options;
  state->groups = LruCache<LatentsGroup>(options.memory_bytes);
  state->reader = RowGroupReader::create(dataset, index);
  // A dataset of the wrong kind is told at once, not at the first batch.
  DARKROOM_ASSIGN_OR_RETURN(const auto place, state->reader->locate(0));
  DARKROOM_ASSIGN_OR_RETURN(const auto schema, state->reader->schema(place));
  DARKROOM_RETURN_IF_ERROR(find_columns(*schema, options.resolution, state->reader->path(place.file)).status());
  return std::unique_ptr<LatentsReader>(new LatentsReader(std::move(state)));
}

namespace {

// Rows of one batch, as narrow as they are stored (where that is asked for) until a wider one comes.
class BatchTensor {
 public:
  BatchTensor(size_t num_rows, const std::vector<int64_t>& row_shape, bool is_narrow) {
    std::vector<int64_t> sizes = {static_cast<int64_t>(num_rows)};
    sizes.insert(sizes.end(), row_shape.begin(), row_shape.end());
    values_ = torch::empty(sizes, is_narrow ? torch::kFloat16 : torch::kFloat32);
  }
  void put(size_t row, const torch::Tensor& value) {
    if (values_.scalar_type() == torch::kFloat16 && value.scalar_type() != torch::kFloat16) {
      values_ = values_.to(torch::kFloat32);
    }
    values_[static_cast<int64_t>(row)].copy_(value);
  }
  const torch::Tensor& values() const { return values_; }

 private:
  torch::Tensor values_;
};

}  // namespace

Result<Batch> LatentsReader::read(std::span<const SampleRef> samples) {
  const LatentsReaderOptions& options = state_->options;
  BatchTensor latents_nchw(samples.size(), options.latents_shape, options.keeps_float16);
  BatchTensor states_btc(samples.size(), options.states_shape, options.keeps_float16);
  Batch batch;
  for (size_t i = 0; i < samples.size(); ++i) {
    DARKROOM_ASSIGN_OR_RETURN(const RowGroupPlace place, state_->reader->locate(samples[i].row));
    auto group = state_->groups.find(place.id);
    if (group == nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(group, state_->load(place));
    }
    const int64_t row = place.row_in_group();
    latents_nchw.put(i, group->latents[row]);
    states_btc.put(i, group->states[row]);
    const std::string key = group->keys.empty() ? "" : group->keys[static_cast<size_t>(row)];
    batch.keys.push_back(key.empty() ? fmt::format("{:012}", samples[i].row) : key);
  }
  batch.latents_nchw = latents_nchw.values();
  batch.states_btc = states_btc.values();
  return batch;
}

std::string LatentsReader::describe(int64_t row) const { return state_->reader->describe(row); }

}  // namespace darkroom
