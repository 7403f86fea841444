#include "darkroom/encode/record_batches.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "darkroom/image/sandbox.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/process/decoder_pool.h"
#include "darkroom/process/image_rows.h"
#include "darkroom/process/latents_batch.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/process/squares_batch.h"
#include "darkroom/process/transform_row.h"
#include "darkroom/tensor/intra_op_threads.h"
#include "encoder_of_options.h"
#include "network_encoder.h"

namespace darkroom {
namespace {

constexpr const char* kTheBatch = "the record batch";

Result<ImageRows> open_keyed_rows(const arrow::RecordBatch& batch, const std::string& caption_column) {
  DARKROOM_ASSIGN_OR_RETURN(const ImageColumns columns, find_image_columns(*batch.schema(), kTheBatch, caption_column));
  if (columns.key.empty()) {
    return Status::failed_precondition(
        "a record batch needs a column `key` of text or bytes: it decides a row's draws, and a batch does not know its rows' numbers "
        "(columns):",
        fmt::format("{}", fmt::join(batch.schema()->field_names(), ", ")));
  }
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn keys, BytesColumn::open(kTheBatch, columns.key, batch.GetColumnByName(columns.key)));
  DARKROOM_RETURN_IF_ERROR(check_row_keys(keys, columns.key, batch.num_rows()));
  return ImageRows::open(kTheBatch, columns, batch, 0);
}

void count_bad_row(const std::string& code, int64_t row, ItemTally& tally) {
  ++tally.rows_by_error[code];
  tally.failed_rows[code].push_back(row);
}

void put_prepared(RowResult<PreparedRow> prepared, int64_t row, ProcessBatch& out) {
  if (!prepared.is_ok()) {
    count_bad_row(prepared.error().name(), row, out.tally);
    return;
  }
  out.prepared.push_back(std::move(prepared).value());
  out.positions.push_back(row);
}

/// Rows of pictures, each made into a prepared one by `prepare`, with a decoder of `decoders`.
using PrepareRow = std::function<Result<RowResult<PreparedRow>>(const ImageRow&, PictureDecoder&)>;

Status prepare_pictures(const ImageRows& rows, DecoderPool& decoders, const PrepareRow& prepare, ProcessBatch& out) {
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<PictureDecoder> decoder, decoders.take());
  for (int64_t i = 0; i < rows.num_rows(); ++i) {
    const ReadImageRow row = rows.at(i);
    out.tally.num_invalid_captions += row.caption_was_invalid ? 1 : 0;
    DARKROOM_ASSIGN_OR_RETURN(RowResult<PreparedRow> prepared, prepare(row.row, *decoder));  // A decoder that fails goes.
    put_prepared(std::move(prepared), i, out);
  }
  decoders.give_back(std::move(decoder));
  return Status::ok();
}

/// Columns that are carried along: their types, and each row's place in them.
Result<arrow::FieldVector> keep_rows(const std::shared_ptr<arrow::RecordBatch>& batch, const std::vector<std::string>& names,
                                     ProcessBatch& out) {
  if (names.empty()) {
    return arrow::FieldVector{};
  }
  DARKROOM_ASSIGN_OR_RETURN(arrow::FieldVector fields, kept_fields(*batch->schema(), kTheBatch, names));
  const std::shared_ptr<const arrow::RecordBatch> columns = select_columns(*batch, names);
  for (int64_t row = 0; row < batch->num_rows(); ++row) {
    out.kept.push_back({.columns = columns, .row = row});
  }
  return fields;
}

}  // namespace

Status BatchTransformOptions::validate() const {
  DARKROOM_RETURN_IF_ERROR(check_kept_names(keep_columns, LatentsDialect::kDarkroom));
  DARKROOM_RETURN_IF_ERROR(check_beside_squares(keep_columns, transform.resolution));
  return transform.validate();
}

struct BatchTransformer::State {
  BatchTransformOptions options;
  DecoderPool decoders{options.decoder_program};
};

BatchTransformer::BatchTransformer(std::unique_ptr<State> state) : state_(std::move(state)) {}
BatchTransformer::~BatchTransformer() = default;

Result<std::unique_ptr<BatchTransformer>> BatchTransformer::create(const BatchTransformOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_RETURN_IF_ERROR(check_decoder(options.decoder_program, kAnySize, {}));
  return std::unique_ptr<BatchTransformer>(new BatchTransformer(std::make_unique<State>(options)));
}

Result<RecordsOut> BatchTransformer::transform(const std::shared_ptr<arrow::RecordBatch>& batch) {
  const BatchTransformOptions& options = state_->options;
  const RowTransform how{.transform = options.transform, .seed = options.seed};
  ProcessBatch work{.tally = {.rows_in = batch->num_rows()}};
  DARKROOM_ASSIGN_OR_RETURN(const ImageRows rows, open_keyed_rows(*batch, options.caption_column));
  DARKROOM_ASSIGN_OR_RETURN(const arrow::FieldVector kept, keep_rows(batch, options.keep_columns, work));
  const auto prepare = [&](const ImageRow& row, PictureDecoder& decoder) { return transform_row(row, how, decoder); };
  DARKROOM_RETURN_IF_ERROR(prepare_pictures(rows, state_->decoders, prepare, work));
  work.tally.rows_out = static_cast<int64_t>(work.prepared.size());
  DARKROOM_ASSIGN_OR_RETURN(auto squares, make_squares_batch(options.transform.resolution, kept, work));
  return RecordsOut{.rows = std::move(squares), .tally = std::move(work.tally)};
}

struct BatchEncoder::State {
  ProcessOptions options;
  std::shared_ptr<const RowEncoder> encoder;
  GpuTurn* gpu_turn = nullptr;  // Null on the CPU, too.
  NetworkEncoder networks{encoder, options};
  DecoderPool decoders{options.decoder_program};

  Status prepare(const arrow::RecordBatch& batch, ProcessBatch& work);
  void run_networks(ProcessBatch& work) const;
};

Status BatchEncoder::State::prepare(const arrow::RecordBatch& batch, ProcessBatch& work) {
  const int resolution = options.transform.resolution;
  if (batch.GetColumnByName(squares_name(resolution)) == nullptr) {
    DARKROOM_ASSIGN_OR_RETURN(const ImageRows rows, open_keyed_rows(batch, options.caption_column));
    const auto prepare = [&](const ImageRow& row, PictureDecoder& decoder) { return encoder->prepare(row, decoder); };
    DARKROOM_RETURN_IF_ERROR(prepare_pictures(rows, decoders, prepare, work));
  } else {
    DARKROOM_ASSIGN_OR_RETURN(const SquareRows rows, SquareRows::open(batch, resolution));
    for (int64_t i = 0; i < rows.num_rows(); ++i) {
      RowResult<PreparedRow> row = rows.at(i);
      if (row.is_ok()) {
        tokenise_row(*encoder->models().tokenizer, *row);
      }
      put_prepared(std::move(row), i, work);
    }
  }
  for (const PreparedRow& row : work.prepared) {
    work.tally.num_unported_captions += row.unported == Unported::kNothing ? 0 : 1;
  }
  return Status::ok();
}

void BatchEncoder::State::run_networks(ProcessBatch& work) const {
  if (work.prepared.empty()) {
    return;
  }
  const IntraOpThreads threads(options.encoder_threads);
  const auto turn = take_turn(gpu_turn);
  work.encoded = networks.encode(work.prepared, {});
  const std::vector<uint8_t>& is_finite = work.encoded.is_finite;
  work.tally.rows_out = std::count(is_finite.begin(), is_finite.end(), 1);
  for (size_t i = 0; i < is_finite.size(); ++i) {
    if (is_finite[i] == 0) {
      count_bad_row(RowError{.code = RowErrorCode::kNanLatents}.name(), work.positions[i], work.tally);
    }
  }
}

BatchEncoder::BatchEncoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
BatchEncoder::~BatchEncoder() = default;

const RowEncoder& BatchEncoder::encoder() const { return *state_->encoder; }

Result<std::unique_ptr<BatchEncoder>> BatchEncoder::open(StoreSet& stores, const ProcessOptions& options, std::stop_token stop,
                                                         GpuTurn* gpu_turn) {
  if (options.dialect == LatentsDialect::kMosaicMl) {
    return Status::invalid_argument("shards of this --output-dialect are no record batches; use another one:",
                                    latents_dialect_name(options.dialect));
  }
  ProcessOptions job = options;
  job.input = job.output = kTheBatch;  // What a job must name.
  DARKROOM_RETURN_IF_ERROR(job.validate());
  DARKROOM_RETURN_IF_ERROR(check_decoder(job.decoder_program, kAnySize, stop));
  GpuTurn* const turn = job.place.device.is_cpu() ? nullptr : gpu_turn;
  DARKROOM_ASSIGN_OR_RETURN(auto models, fetch_frozen_models(stores, job, std::move(stop), turn));
  DARKROOM_RETURN_IF_ERROR(check_ids(job.text, models->tokenizer->vocabulary_size()));
  const auto held = take_turn(turn);
  DARKROOM_ASSIGN_OR_RETURN(auto encoder, make_encoder(std::move(models), job));
  return std::unique_ptr<BatchEncoder>(new BatchEncoder(std::make_unique<State>(std::move(job), std::move(encoder), turn)));
}

Result<RecordsOut> BatchEncoder::encode(const std::shared_ptr<arrow::RecordBatch>& batch) {
  ProcessBatch work{.tally = {.rows_in = batch->num_rows()}};
  DARKROOM_ASSIGN_OR_RETURN(arrow::FieldVector kept, keep_rows(batch, state_->options.keep_columns, work));
  DARKROOM_RETURN_IF_ERROR(state_->prepare(*batch, work));
  state_->run_networks(work);
  const LatentsLayout layout = make_layout(state_->networks, state_->options, "", std::move(kept));
  DARKROOM_ASSIGN_OR_RETURN(auto latents, make_latents_batch(layout, layout.schema(), work));
  return RecordsOut{.rows = std::move(latents), .tally = std::move(work.tally)};
}

}  // namespace darkroom
