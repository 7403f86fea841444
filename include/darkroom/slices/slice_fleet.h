#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/slices/slice_names.h"
#include "darkroom/web/resolver.h"

namespace darkroom {

/// Where an encoder listens: a name or an address, and a port.
struct EncoderAddress {
  std::string host;
  std::string port;

  std::string to_string() const;  ///< "node-3:7000", "[::1]:7000".
  bool operator==(const EncoderAddress&) const = default;
};

/// Reads "HOST:PORT,HOST:PORT", or, behind a "@", the file that holds one a line (empty lines and such that begin with # are passed over).
/// Each address counts once. Errors: kInvalidArgument naming the text, and for a file its line; those of reading the file.
Result<std::vector<EncoderAddress>> read_encoder_addresses(const std::string& text, const SliceNames& names = {});

/// Rows of a slice at most, whatever encoders take.
inline constexpr int64_t kMostSliceRows = 1024;

/// What a slice has become on this side.
class SliceContent {
 public:
  virtual ~SliceContent() = default;
};

/// Reads what an encoder sent for these rows. Runs on threads of the fleet. Errors: kCorruptData, which costs the encoder its connection.
using SliceReader = std::function<Result<std::shared_ptr<const SliceContent>>(std::span<const int64_t> rows, std::string bytes)>;

struct SliceFleetOptions {
  std::string encoders;                                      ///< As for read_encoder_addresses.
  std::string token;                                         ///< Which encoders must know; empty: they may have none.
  nlohmann::json facts = nlohmann::json::object();           ///< What an encoder must have exactly so, by its name for people.
  int64_t max_slice_bytes = int64_t{64} << 20;               ///< Of what is sent for a slice.
  std::chrono::milliseconds timeout{120'000};                ///< Without a byte from an encoder that owes something.
  std::chrono::milliseconds patience{600'000};               ///< Without any encoder.
  std::chrono::milliseconds look{1'000};                     ///< Between two attempts to reach an encoder, or two looks at the file.
  ResolverOptions resolver = {.uses_search_domains = true};  ///< For names of encoders' machines; they are asked for anew at each attempt.
  SliceNames names = {};                                     ///< For messages.
  std::stop_token stop = {};                                 ///< Ends waiting where there is no encoder; else the next slice is not far.
  Status validate() const;                                   ///< kInvalidArgument naming the first bad field.
};

/// What came of it, and who waited for whom. Encoders count by their own clocks, from when they let this trainer in to their last answer.
struct FleetReport {
  int64_t encoders = 0;             ///< The most at a time.
  int64_t rows = 0;                 ///< That this fleet got.
  int64_t bytes = 0;                ///< Likewise.
  int64_t lost = 0;                 ///< Connections that ended with their encoder, or were given up.
  int64_t repeated = 0;             ///< Slices that were asked of another encoder.
  double encoder_seconds = 0;       ///< Of all encoders together, within their connections.
  double encoder_idle_seconds = 0;  ///< Of these: their workers had nothing to do.
  int64_t encoder_rows = 0;         ///< That they made in this time, for all their trainers.

  /// Rows that one encoder makes per second while it works; 0: nothing was measured.
  double rows_per_second() const;
  nlohmann::json to_json() const;
};

/// The encoders of a trainer: hands out slices to those that are there, and again when one is lost (docs/encode.md). A thread per encoder,
/// and one that looks for new ones. Which encoder makes a slice changes nothing about it, so that neither does the order of arrival.
/// Thread safety: ask() and take() from one thread; the rest from any.
class SliceFleet {
 public:
  /// Waits for the first encoder. Errors: kInvalidArgument (options, addresses), kFailedPrecondition (an encoder with other facts or
  /// another token), kUnavailable (none within the patience), kCancelled.
  static Result<std::unique_ptr<SliceFleet>> open(const SliceFleetOptions& options, SliceReader read);
  ~SliceFleet();
  SliceFleet(const SliceFleet&) = delete;
  SliceFleet& operator=(const SliceFleet&) = delete;

  /// Asks for a slice without waiting for it; returns its number. REQUIRES: rows not empty.
  uint64_t ask(std::vector<int64_t> rows);
  /// Waits for a slice. Each may be taken once. Errors: kUnavailable (no encoder within the patience, or the slice was lost with too many),
  /// an encoder's own failure to make it, after three attempts; kCancelled (stopped, or stop_waiting()).
  Result<std::shared_ptr<const SliceContent>> take(uint64_t slice);
  /// Ends take(), now and later.
  void stop_waiting();

  /// Rows that a slice should have: as many as the first encoder's networks take at a time, and enough to be worth a message.
  int64_t slice_rows() const;
  FleetReport report() const;

 private:
  class Crew;
  explicit SliceFleet(std::unique_ptr<Crew> crew);

  std::unique_ptr<Crew> crew_;
};

}  // namespace darkroom
