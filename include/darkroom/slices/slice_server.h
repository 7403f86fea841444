#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/slices/slice_names.h"
#include "darkroom/web/http_exchange.h"

namespace darkroom {

/// Makes what a slice is sent as: rows of the dataset by their numbers, in this order. Runs on worker `worker` of num_workers, each of
/// which makes one at a time. Its failure is the trainer's to judge: the server goes on.
using SliceMaker = std::function<Result<std::string>(int worker, std::span<const int64_t> rows)>;

/// Reads the value of --listen: "127.0.0.1:0", "0.0.0.0:7000", "[::1]:7000", "localhost:7000". Port 0: one that is free.
/// Errors: kInvalidArgument with the text.
Result<SocketAddress> parse_listen_address(std::string_view text);

/// Whether a server may listen there: beyond loopback only with a token. Errors: kInvalidArgument with the address.
Status check_listening(const SocketAddress& address, std::string_view token);

struct SliceServerOptions {
  SocketAddress address = {};
  std::string token = {};                               ///< Which trainers must know; empty: they may have none.
  nlohmann::json facts = nlohmann::json::object();      ///< What a trainer must want exactly so, by its name for people.
  nlohmann::json place = nlohmann::json::object();      ///< What all encoders of a trainer must have alike, by its name for people.
  std::string processor = {};                           ///< Told to trainers: between two kinds last bits may differ.
  int64_t num_rows = 0;                                 ///< Of the dataset.
  int64_t rows_together = 1;                            ///< Rows that the networks take in one call.
  int64_t max_rows = 256;                               ///< Of a slice.
  int num_workers = 1;                                  ///< Slices that are made at a time.
  int max_in_flight = 0;                                ///< Slices that a trainer may have asked for; 0: num_workers + 1.
  int max_connections = 64;                             ///< That have said their hello; one more is refused.
  std::chrono::milliseconds handshake_timeout{10'000};  ///< From accepting a connection to the trainer's hello.
  std::chrono::milliseconds send_timeout{60'000};       ///< Without a byte that the trainer took.
  std::chrono::milliseconds word_interval{5'000};       ///< Between two words to a trainer that its slices are worked on.
  std::chrono::milliseconds work_timeout{600'000};      ///< Without a slice begun or made: then no such word is said any more.
  SliceNames names = {};                                ///< For messages.
  Status validate() const;                              ///< kInvalidArgument naming the first bad field.
};

/// What a server has done.
struct SliceServerCounts {
  int64_t slices = 0;
  int64_t rows = 0;
  double busy_seconds = 0;  ///< Of all workers together.
  double seconds = 0;       ///< Since it started.
};

/// Answers trainers that ask for slices (docs/encode.md: protocol): one thread for all connections, and the workers. Whatever comes over a
/// connection costs that connection alone. Memory: of a connection at most max_in_flight slices wait, made or not. Nothing is encrypted.
/// Thread safety: any thread.
class SliceServer {
 public:
  /// Listens and starts the threads. Errors: kInvalidArgument (options), kFailedPrecondition (the port is taken, may not be used, or the
  /// address is none of this machine), kResourceExhausted (no descriptor, no thread).
  static Result<std::unique_ptr<SliceServer>> start(const SliceServerOptions& options, SliceMaker make);
  /// Ends the connections; slices that are being made are waited for.
  ~SliceServer();
  SliceServer(const SliceServer&) = delete;
  SliceServer& operator=(const SliceServer&) = delete;

  /// Where it listens, with the port that it got.
  const SocketAddress& address() const { return address_; }
  /// Takes no more requests, sends the slices that are being made and closes the connections; those that were only asked for are dropped,
  /// and trainers ask others for them. False: not all were sent within `patience`.
  bool drain(std::chrono::milliseconds patience);
  SliceServerCounts counts() const;

 private:
  class Loop;
  SliceServer(SocketAddress address, std::unique_ptr<Loop> loop);

  SocketAddress address_;
  std::unique_ptr<Loop> loop_;
  std::jthread thread_;
};

}  // namespace darkroom
