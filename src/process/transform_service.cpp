#include "darkroom/process/transform_service.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/ingest/job_inputs.h"
#include "darkroom/ingest/row_dialects.h"
#include "darkroom/process/image_rows.h"
#include "darkroom/process/kept_columns.h"
#include "darkroom/slices/slice_observation.h"
#include "darkroom/tables/table_rows.h"
#include "transformed_slice.h"

namespace darkroom {
namespace {

constexpr std::chrono::seconds kDrainPatience{20};
constexpr int kMostJobs = 4096;  // Each of their readers has a connection.

/// The image dataset as jobs number its rows.
class TransformInputs {
 public:
  static Result<TransformInputs> open(StoreSet& stores, const TransformServiceOptions& options, const std::stop_token& stop) {
    TransformInputs made;
    DARKROOM_ASSIGN_OR_RETURN(made.inputs_, list_image_job_inputs(stores, options.input));
    const CheckColumns check = [&](const arrow::Schema& schema, const std::string& path) {
      DARKROOM_RETURN_IF_ERROR(find_image_columns(schema, path, options.caption_column).status());
      DARKROOM_ASSIGN_OR_RETURN(const arrow::FieldVector kept, kept_fields(schema, path, options.keep_columns));
      return check_sendable(kept, path);
    };
    DARKROOM_RETURN_IF_ERROR(measure_inputs(nullptr, check, stop, made.inputs_));
    DARKROOM_RETURN_IF_ERROR(count_other_rows(nullptr, stop, made.inputs_));
    number_inputs(made.inputs_, 1);
    return made;
  }

  const std::vector<JobInput>& all() const { return inputs_; }
  int64_t num_rows() const { return inputs_.empty() ? 0 : inputs_.back().first_row + inputs_.back().num_rows; }
  /// The input that holds a row of the list. REQUIRES: 0 <= row < num_rows().
  const JobInput& of_row(int64_t row) const {
    return *std::prev(std::ranges::upper_bound(inputs_, row, {}, [](const JobInput& input) { return input.first_row; }));
  }

 private:
  std::vector<JobInput> inputs_;
};

/// One worker's: its decoder, and the input that it read last.
class TransformWorker {
 public:
  TransformWorker(const TransformInputs& inputs, const TransformServiceOptions& options, std::stop_token stop)
      : inputs_(inputs), options_(options), stop_(std::move(stop)) {}

  Result<std::string> make(std::span<const int64_t> rows) {
    const JobInput& input = inputs_.of_row(rows.front());
    const bool is_run = rows.back() - rows.front() == static_cast<int64_t>(rows.size()) - 1 && std::ranges::is_sorted(rows);
    if (!is_run || rows.back() >= input.first_row + input.num_rows) {
      return Status::invalid_argument("a slice is one run of rows of one file (first row, last row, rows of the file up to):", rows.front(),
                                      rows.back(), input.first_row + input.num_rows);
    }
    if (!is_in_order_) {  // Whatever broke the last slice off, this one begins anew.
      rows_.reset();
      decoder_.reset();
      is_in_order_ = true;
    }
    if (decoder_ == nullptr) {  // On the thread that uses it: its child belongs to that.
      DARKROOM_ASSIGN_OR_RETURN(decoder_, open_decoder(options_.decoder_program, kAnySize, stop_));
    }
    DARKROOM_RETURN_IF_ERROR(open(input));
    is_in_order_ = false;
    Result<std::string> made = make_of_input(input, rows.front(), static_cast<int64_t>(rows.size()));
    is_in_order_ = made.is_ok();
    return made;
  }

 private:
  Status open(const JobInput& input) {
    if (rows_ && input_ == &input) {
      return Status::ok();
    }
    rows_.reset();
    DARKROOM_ASSIGN_OR_RETURN(auto table, open_pinned_input(nullptr, input));
    DARKROOM_ASSIGN_OR_RETURN(columns_, find_image_columns(*table->schema(), table->path(), options_.caption_column));
    DARKROOM_ASSIGN_OR_RETURN(kept_fields_, kept_fields(*table->schema(), table->path(), options_.keep_columns));
    rows_.emplace(std::move(table), std::nullopt, names_of(columns_, options_.keep_columns), image_read_options());
    input_ = &input;
    return Status::ok();
  }

  Result<std::string> make_of_input(const JobInput& input, int64_t first_list_row, int64_t count) {
    const int64_t first = first_list_row - input.first_row;
    const int64_t end = first + count;
    DARKROOM_RETURN_IF_ERROR(rows_->seek(first));
    ProcessBatch work;
    int64_t picture_bytes = 0;
    while (true) {
      DARKROOM_ASSIGN_OR_RETURN(const KeptRows read, rows_->next(end));
      if (read.batch == nullptr) {
        break;
      }
      DARKROOM_RETURN_IF_ERROR(add_rows(read, input.first_row, first, work, picture_bytes));
    }
    if (const int64_t num_rows = rows_->finish(end); num_rows != count) {
      return Status::corrupt_data("an input has fewer rows than when the transformer was started (file, want, got):", rows_->table().path(),
                                  count, num_rows);
    }
    int64_t num_failed = 0;
    for (const auto& [code, failed] : work.tally.rows_by_error) {
      num_failed += failed;
    }
    if (static_cast<int64_t>(work.prepared.size()) + num_failed != count) {
      return Status::corrupt_data("an input gave other rows than were asked for (file, want, got):", rows_->table().path(), count,
                                  static_cast<int64_t>(work.prepared.size()) + num_failed);
    }
    return write_transformed_slice(options_.transform.resolution, kept_fields_, work, picture_bytes);
  }

  /// `first`: the slice's first row, in the file.
  Status add_rows(const KeptRows& read, int64_t first_row_of_list, int64_t first, ProcessBatch& work, int64_t& picture_bytes) {
    DARKROOM_ASSIGN_OR_RETURN(const ImageRows rows,
                              ImageRows::open(rows_->table().path(), columns_, *read.batch, first_row_of_list + read.first_row));
    const auto kept = options_.keep_columns.empty() ? nullptr : select_columns(*read.batch, options_.keep_columns);
    const RowTransform how{.transform = options_.transform, .seed = options_.seed};
    for (const int64_t i : read.rows) {
      if (stop_.stop_requested()) {
        return Status::cancelled("stopped before a picture was transformed");
      }
      const ReadImageRow row = rows.at(i);
      work.tally.num_invalid_captions += row.caption_was_invalid ? 1 : 0;
      picture_bytes += static_cast<int64_t>(row.row.image.size());
      if (kept != nullptr) {
        work.kept.push_back({.columns = kept, .row = i});
      }
      DARKROOM_ASSIGN_OR_RETURN(RowResult<PreparedRow> prepared, transform_row(row.row, how, *decoder_));
      if (prepared.is_ok()) {
        work.prepared.push_back(std::move(prepared).value());
        work.positions.push_back(read.first_row + i - first);
      } else {
        work.count_failed(prepared.error().name(), read.first_row + i - first);
      }
    }
    return Status::ok();
  }

  const TransformInputs& inputs_;
  const TransformServiceOptions& options_;
  const std::stop_token stop_;
  std::unique_ptr<PictureDecoder> decoder_;
  bool is_in_order_ = true;
  const JobInput* input_ = nullptr;
  ImageColumns columns_;
  arrow::FieldVector kept_fields_;
  std::optional<TableRows> rows_;
};

void wait_for(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, stop, [] { return false; });
}

}  // namespace

Status TransformServiceOptions::validate() const {
  if (input.empty()) {
    return Status::invalid_argument("the image dataset must be named");
  }
  if (num_workers < 0) {
    return Status::invalid_argument("--num-workers must not be negative, got:", num_workers);
  }
  DARKROOM_RETURN_IF_ERROR(check_listening(address, token));
  DARKROOM_RETURN_IF_ERROR(check_kept_names(keep_columns, LatentsDialect::kDarkroom));
  DARKROOM_RETURN_IF_ERROR(check_beside_squares(keep_columns, transform.resolution));
  return transform.validate();
}

Status serve_transforms(StoreSet& stores, const TransformServiceOptions& options,
                        const std::function<Status(const SocketAddress&)>& listening, std::stop_token stop, SliceServerCounts& counts) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_RETURN_IF_ERROR(check_decoder(options.decoder_program, kAnySize, stop));
  DARKROOM_ASSIGN_OR_RETURN(const TransformInputs inputs, TransformInputs::open(stores, options, stop));
  if (inputs.num_rows() == 0) {
    return Status::failed_precondition("the image dataset has no rows:", options.input);
  }
  std::stop_source ending;  // Of the workers: after the drain.
  std::vector<std::unique_ptr<TransformWorker>> workers;
  const int num_workers = options.num_workers > 0 ? options.num_workers : num_processors();
  for (int i = 0; i < num_workers; ++i) {
    workers.push_back(std::make_unique<TransformWorker>(inputs, options, ending.get_token()));
  }
  const RowTransform how{.transform = options.transform, .seed = options.seed};
  const SliceServerOptions serving{.address = options.address,
                                   .token = options.token,
                                   .facts = transform_facts(inputs.all(), how, options.caption_column, options.keep_columns),
                                   .num_rows = inputs.num_rows(),
                                   .max_rows = kMostTransformedRows,
                                   .num_workers = num_workers,
                                   .max_connections = kMostJobs,
                                   .names = transformer_names()};
  const auto make = [&workers](int worker, std::span<const int64_t> rows) { return workers[static_cast<size_t>(worker)]->make(rows); };
  const SliceObservation observation{.stage = "transform", .metrics = options.metrics, .trace = options.trace};
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<SliceServer> server,
                            SliceServer::start(serving, observe_slices(make, num_workers, observation)));
  log_info("transformer: {} rows of {} files, {} workers", inputs.num_rows(), inputs.all().size(), num_workers);
  DARKROOM_RETURN_IF_ERROR(listening(server->address()));
  wait_for(stop);
  server->drain(kDrainPatience);
  ending.request_stop();
  if (options.on_drained) {
    options.on_drained();
  }
  counts = server->counts();
  log_info("transformer: made {} slices of {} rows; its workers worked {:.0f} % of the time", counts.slices, counts.rows,
           counts.seconds > 0 ? 100 * counts.busy_seconds / counts.seconds / num_workers : 0.0);
  return Status::ok();
}

}  // namespace darkroom
