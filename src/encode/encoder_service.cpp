#include "darkroom/encode/encoder_service.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/machine.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/slices/slice_observation.h"
#include "encoder_of_options.h"
#include "slice_columns.h"
#include "slice_encoder.h"

namespace darkroom {
namespace {

constexpr int64_t kLeastMaxRows = 256;
constexpr int kWorkersOfAGpu = 4;      // While one waits for the GPU others decode.
constexpr int64_t kShareOfMemory = 4;  // Of the machine's, where nothing is said.

int workers_of(const ProcessOptions& options) {
  if (options.num_encoders > 0) {
    return options.num_encoders;
  }
  return options.place.device.is_cpu() ? std::max(1, num_processors() / options.encoder_threads) : kWorkersOfAGpu;
}

}  // namespace

Status EncoderServiceOptions::validate() const {
  DARKROOM_RETURN_IF_ERROR(check_listening(address, token));
  if (process.batch_size > kMostSliceRows) {
    return Status::invalid_argument("a slice has at most 1024 rows, and so has --batch-size, got:", process.batch_size);
  }
  if (process.encoder_threads < 1 || process.num_encoders < 0 || process.batch_size < 0 || process.rows_per_file < 1) {
    return Status::invalid_argument("encoder threads and rows per file must be at least 1, encoders and batch size at least 0, got:",
                                    process.encoder_threads, process.rows_per_file, process.num_encoders, process.batch_size);
  }
  return {};
}

struct EncoderService::State {
  int64_t num_rows = 0;
  int num_encoders = 1;
  std::unique_ptr<SliceEncoder> encoder;
  std::unique_ptr<SliceServer> server;  // Last: its workers use the encoder.
};

EncoderService::EncoderService(std::unique_ptr<State> state) : state_(std::move(state)) {}
EncoderService::~EncoderService() = default;

Result<std::unique_ptr<EncoderService>> EncoderService::start(StoreSet& stores, const EncoderServiceOptions& options,
                                                              std::stop_token stop) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  const ProcessOptions& process = options.process;
  DARKROOM_RETURN_IF_ERROR(check_decoder(process.decoder_program, kAnySize, stop));
  DARKROOM_ASSIGN_OR_RETURN(const DatasetFiles dataset, find_image_dataset(stores, process.input));
  DARKROOM_ASSIGN_OR_RETURN(const DatasetIndex index, DatasetIndex::of_images(dataset, process.rows_per_file));
  DARKROOM_ASSIGN_OR_RETURN(auto models, fetch_frozen_models(stores, process, std::move(stop)));
  DARKROOM_ASSIGN_OR_RETURN(const auto row_encoder, make_encoder(std::move(models), process));
  auto state = std::make_unique<State>();
  state->num_rows = index.num_rows();
  state->num_encoders = workers_of(process);
  const SliceEncoderOptions slices{.memory_bytes = process.memory_bytes > 0 ? process.memory_bytes : usable_memory_bytes() / kShareOfMemory,
                                   .threads = process.encoder_threads,
                                   .num_workers = state->num_encoders,
                                   .decoder_program = process.decoder_program};
  DARKROOM_ASSIGN_OR_RETURN(state->encoder, SliceEncoder::open(dataset, index, row_encoder, slices));
  SliceServerOptions server;
  server.address = options.address;
  server.token = options.token;
  server.facts = slice_facts(index, *row_encoder);
  server.place = slice_place(*row_encoder, process.encoder_threads);
  server.processor = read_machine_facts().processor;
  server.num_rows = index.num_rows();
  server.rows_together = row_encoder->options().rows_together;
  server.max_rows = std::max(kLeastMaxRows, server.rows_together);
  server.num_workers = state->num_encoders;
  server.max_connections = options.max_trainers;
  const SliceMaker make = [encoder = state->encoder.get(), form = form_of(*row_encoder), device = process.place.device,
                           lost = options.lost](int worker, std::span<const int64_t> rows) {
    return telling_of_lost_device(device, lost, [&]() -> Result<std::string> {
      DARKROOM_ASSIGN_OR_RETURN(const auto encoded, encoder->encode(worker, rows));
      return write_slice(form, rows, encoded);
    });
  };
  const SliceObservation observation{.stage = "encode", .metrics = process.metrics, .trace = process.trace};
  DARKROOM_ASSIGN_OR_RETURN(state->server, SliceServer::start(server, observe_slices(make, server.num_workers, observation)));
  return std::unique_ptr<EncoderService>(new EncoderService(std::move(state)));
}

const SocketAddress& EncoderService::address() const { return state_->server->address(); }
int64_t EncoderService::num_rows() const { return state_->num_rows; }
int EncoderService::num_encoders() const { return state_->num_encoders; }
bool EncoderService::drain(std::chrono::milliseconds patience) { return state_->server->drain(patience); }
SliceServerCounts EncoderService::counts() const { return state_->server->counts(); }

}  // namespace darkroom
