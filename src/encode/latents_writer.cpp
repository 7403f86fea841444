#include "latents_writer.h"

#include <arrow/buffer.h>
#include <arrow/builder.h>

#include <utility>

#include "darkroom/feed/latents_reader.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {
namespace {

constexpr int kLatentsFormatVersion = 1;
// Columns that are carried along may be large: then a row group ends sooner.
constexpr int64_t kLatentsGroupBytes = 256 << 20;

std::shared_ptr<arrow::DataType> ids_type() {
  return arrow::fixed_size_list(arrow::field("item", arrow::uint16(), false), ClipTokenizer::kContextLength);
}

Status build_failure(const arrow::Status& status) {
  return from_arrow(status, "building a latents column", StatusCode::kResourceExhausted);
}

/// A tensor's memory as Arrow sees it; keeps the tensor alive.
class TensorBuffer : public arrow::Buffer {
 public:
  /// REQUIRES: contiguous, on the CPU.
  explicit TensorBuffer(torch::Tensor tensor)
      : Buffer(static_cast<const uint8_t*>(tensor.const_data_ptr()), static_cast<int64_t>(tensor.nbytes())), tensor_(std::move(tensor)) {}

 private:
  const torch::Tensor tensor_;
};

/// The good rows of an encoded batch.
class GoodRowsOfBatch {
 public:
  explicit GoodRowsOfBatch(const EncodedRows& encoded) : num_encoded_(static_cast<int64_t>(encoded.is_finite.size())) {
    for (size_t i = 0; i < encoded.is_finite.size(); ++i) {
      if (encoded.is_finite[i] != 0) {
        numbers_.push_back(static_cast<int64_t>(i));
      }
    }
  }
  const std::vector<int64_t>& numbers() const { return numbers_; }
  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }
  /// Those of a tensor of all rows; the tensor itself where all are good.
  torch::Tensor of(const torch::Tensor& rows) const {
    return size() == num_encoded_ ? rows.contiguous() : rows.index_select(0, torch::tensor(numbers_, torch::kInt64));
  }

 private:
  const int64_t num_encoded_;
  std::vector<int64_t> numbers_;
};

Result<std::shared_ptr<arrow::Array>> build_ids(const torch::Tensor& ids_bt) {
  auto values = std::make_shared<arrow::UInt16Builder>();
  arrow::FixedSizeListBuilder lists(arrow::default_memory_pool(), values, ids_type());
  const int64_t* id = ids_bt.const_data_ptr<int64_t>();
  arrow::Status status;
  for (int64_t row = 0; row < ids_bt.size(0); ++row) {
    status &= lists.Append();
    for (int token = 0; token < ClipTokenizer::kContextLength; ++token) {
      status &= values->Append(static_cast<uint16_t>(*id++));
    }
  }
  auto array = lists.Finish();
  status &= array.status();
  if (!status.ok()) {
    return build_failure(status);
  }
  return *array;
}

/// key, caption, width and height of the rows chosen.
Result<arrow::ArrayVector> build_text_columns(const std::vector<PreparedRow>& rows, const std::vector<int64_t>& chosen) {
  arrow::StringBuilder keys, captions;
  arrow::Int32Builder widths, heights;
  arrow::Status status;
  for (const int64_t i : chosen) {
    const PreparedRow& row = rows[static_cast<size_t>(i)];
    status &= keys.Append(row.key);
    status &= captions.Append(row.caption);
    status &= widths.Append(row.width);
    status &= heights.Append(row.height);
  }
  arrow::ArrayVector columns(4);
  status &= keys.Finish(&columns[0]);
  status &= captions.Finish(&columns[1]);
  status &= widths.Finish(&columns[2]);
  status &= heights.Finish(&columns[3]);
  if (!status.ok()) {
    return build_failure(status);
  }
  return columns;
}

}  // namespace

std::shared_ptr<arrow::Schema> LatentsLayout::schema() const {
  arrow::FieldVector fields = {arrow::field("key", arrow::utf8(), false), arrow::field("caption", arrow::utf8(), false),
                               arrow::field("width", arrow::int32(), false), arrow::field("height", arrow::int32(), false),
                               arrow::field(latents_name, tensor_type(element, latents_shape), false)};
  if (has_states()) {
    fields.push_back(arrow::field("caption_embeddings", tensor_type(element, states_shape), false));
  }
  if (has_ids()) {
    fields.push_back(arrow::field("caption_ids", ids_type(), false));
  }
  fields.insert(fields.end(), kept.begin(), kept.end());
  return arrow::schema(std::move(fields));
}

nlohmann::json describe_transform(const TransformOptions& options) {
  return {{"resolution", options.resolution},
          {"resize", filter_name(options.filter)},
          {"crop", crop_name(options.crop)},
          {"orientation", orientation_name(options.orientation)}};
}

LatentsLayout make_layout(const RowEncoder& encoder, TextKind text, const std::string& empty_states_sha256, arrow::FieldVector kept) {
  const RowEncoderOptions& options = encoder.options();
  const FrozenModels& models = encoder.models();
  LatentsLayout layout;
  layout.text = text;
  layout.kept = std::move(kept);
  layout.latents_name =
      fmt::format("image_{}_{}", options.latents == LatentsKind::kSample ? "latents" : "moments", options.transform.resolution);
  layout.latents_shape = encoder.latents_shape();
  layout.states_shape = encoder.states_shape();
  layout.element = options.dtype == torch::kFloat16 ? TensorElement::kFloat16 : TensorElement::kFloat32;
  const nlohmann::json footer = {{"version", kLatentsFormatVersion},
                                 {"vae_fingerprint", models.vae_fingerprint},
                                 {"text_encoder_fingerprint", models.text_encoder_fingerprint},
                                 {"tokenizer_fingerprint", models.tokenizer->fingerprint()},
                                 {"tokenizer_dialect", tokenizer_dialect_name(models.tokenizer->dialect())},
                                 {"scaling_factor", models.vae->config().scaling_factor},
                                 {"resolution", options.transform.resolution},
                                 {"transform", describe_transform(options.transform)},
                                 {"seed", options.seed},
                                 {"text_length", layout.states_shape[0]},
                                 {"text_width", layout.states_shape[1]},
                                 {"empty_caption_sha256", empty_states_sha256}};
  layout.footer = footer.dump();
  return layout;
}

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
  const GoodRowsOfBatch good(batch.encoded);
  if (good.size() == 0) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector columns, build_text_columns(batch.prepared, good.numbers()));
  const auto add_tensors = [&](const std::vector<int64_t>& shape, const torch::Tensor& rows) {
    columns.push_back(wrap_tensor_column(layout_.element, shape, std::make_shared<TensorBuffer>(good.of(rows))));
  };
  add_tensors(layout_.latents_shape, batch.encoded.latents_nchw);
  if (layout_.has_states()) {
    add_tensors(layout_.states_shape, batch.encoded.states_btc);
  }
  if (layout_.has_ids()) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), build_ids(good.of(batch.encoded.ids_bt)));
  }
  if (!layout_.kept.empty()) {
    std::vector<KeptRow> kept;
    for (const int64_t i : good.numbers()) {
      kept.push_back(batch.kept[static_cast<size_t>(batch.positions[static_cast<size_t>(i)] - batch.first_position)]);
    }
    DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector copied, copy_kept(layout_.kept, kept));
    columns.insert(columns.end(), copied.begin(), copied.end());
  }
  return shard_->write(*arrow::RecordBatch::Make(schema_, good.size(), std::move(columns)));
}

Result<std::unique_ptr<FinishedItem>> LatentsWriter::finish() {
  DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard,
                            shard_->finish(run_.plan().footer_of(work_, tally_, {{kLatentsFooterKey, layout_.footer}})));
  return std::unique_ptr<FinishedItem>(std::make_unique<FinishedPart>(std::move(shard), std::move(tally_)));
}

}  // namespace darkroom
