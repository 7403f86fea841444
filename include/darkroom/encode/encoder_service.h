#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/encode/process_job.h"
#include "darkroom/slices/slice_server.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tensor/lost_device.h"

namespace darkroom {

struct EncoderServiceOptions {
  /// Of these count: input, model, transform, place, batch_size, batching, dtype, tokenizer_dialect, seed, rows_per_file, encoder_threads,
  /// num_encoders, memory_bytes, decoder_program, metrics and trace, each with process's meaning; of metrics and trace: stage and span
  /// "encode".
  ProcessOptions process;
  SocketAddress address;    ///< Where it listens.
  std::string token;        ///< DARKROOM_ENCODER_TOKEN; must be set where the address is not loopback.
  int max_trainers = 64;    ///< Connections at a time: a rank is one.
  DeviceLost lost;          ///< Told of a GPU that is; whatever is asked for from then on fails.
  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Encodes rows of an image dataset for trainers on other machines (docs/encode.md): opens the dataset with the trainers' own index, loads
/// the models once and answers slices, several trainers at a time. Thread safety: any thread.
class EncoderService {
 public:
  /// `stores` outlive it. Errors: those of run_process for its dataset, models and decoder, and of SliceServer::start.
  static Result<std::unique_ptr<EncoderService>> start(StoreSet& stores, const EncoderServiceOptions& options, std::stop_token stop);
  ~EncoderService();

  const SocketAddress& address() const;
  int64_t num_rows() const;
  int num_encoders() const;
  /// As SliceServer's.
  bool drain(std::chrono::milliseconds patience);
  SliceServerCounts counts() const;

 private:
  struct State;
  explicit EncoderService(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace darkroom
