#include "latents_writer.h"

#include <arrow/builder.h>

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "darkroom/feed/latents_reader.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/tensor_column.h"

namespace darkroom {
namespace {

constexpr int kLatentsFormatVersion = 1;

std::shared_ptr<arrow::DataType> ids_type() {
  return arrow::fixed_size_list(arrow::field("item", arrow::uint16(), false), ClipTokenizer::kContextLength);
}

Status build_failure(const arrow::Status& status) {
  return from_arrow(status, "building a latents column", StatusCode::kResourceExhausted);
}

std::span<const std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

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
  return arrow::schema(std::move(fields));
}

nlohmann::json describe_transform(const TransformOptions& options) {
  return {{"resolution", options.resolution},
          {"resize", filter_name(options.filter)},
          {"crop", crop_name(options.crop)},
          {"orientation", orientation_name(options.orientation)}};
}

LatentsLayout make_layout(const RowEncoder& encoder, TextKind text, const std::string& empty_states_sha256) {
  const RowEncoderOptions& options = encoder.options();
  const FrozenModels& models = encoder.models();
  LatentsLayout layout;
  layout.text = text;
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

Result<std::unique_ptr<LatentsWriter>> LatentsWriter::open(JobRun& run, std::shared_ptr<ProcessItem> item, const LatentsLayout& layout) {
  std::unique_ptr<LatentsWriter> writer(new LatentsWriter(run, std::move(item), layout));
  DARKROOM_ASSIGN_OR_RETURN(writer->writer_, ShardWriter::open(run.output(), writer->item_->work.part_name(), layout.schema()));
  return writer;
}

Status LatentsWriter::add(ProcessBatch batch) {
  const int64_t index = batch.index;
  reorder_.insert(index, std::move(batch));
  while (std::optional<ProcessBatch> next = reorder_.take_next()) {
    tally_.add(next->tally);
    DARKROOM_RETURN_IF_ERROR(write_batch(*next));
  }
  if (reorder_.next_position() == item_->num_batches) {
    DARKROOM_RETURN_IF_ERROR(run_.commit(item_->work, tally_, *writer_, {{kLatentsFooterKey, layout_.footer}}));
    item_->open_slot.release();
    is_committed_ = true;
  }
  return {};
}

Status LatentsWriter::write_batch(const ProcessBatch& batch) {
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < batch.encoded.is_finite.size(); ++i) {
    if (batch.encoded.is_finite[i] != 0) {
      chosen.push_back(static_cast<int64_t>(i));
    }
  }
  if (chosen.empty()) {
    return {};
  }
  const torch::Tensor rows = torch::tensor(chosen, torch::kInt64);
  DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector columns, build_text_columns(batch.prepared, chosen));
  const torch::Tensor latents_nchw = batch.encoded.latents_nchw.index_select(0, rows).contiguous();
  DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), make_tensor_column(layout_.element, layout_.latents_shape, bytes_of(latents_nchw)));
  if (layout_.has_states()) {
    const torch::Tensor states_btc = batch.encoded.states_btc.index_select(0, rows).contiguous();
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), make_tensor_column(layout_.element, layout_.states_shape, bytes_of(states_btc)));
  }
  if (layout_.has_ids()) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), build_ids(batch.encoded.ids_bt.index_select(0, rows).contiguous()));
  }
  return writer_->write(*arrow::RecordBatch::Make(layout_.schema(), static_cast<int64_t>(chosen.size()), std::move(columns)));
}

}  // namespace darkroom
