#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "darkroom/core/row_error.h"
#include "darkroom/image/picture_decoder.h"

namespace darkroom {

/// Says in the log why rows fail, and keeps that for the summary: of each code the first detail that comes, in one line of at most some 400
/// characters without control characters and secrets of addresses. At most 64 codes are told. Thread safety: any thread.
class ToldErrors {
 public:
  /// `job`: what the lines begin with.
  explicit ToldErrors(std::string job) : job_(std::move(job)) {}

  /// `place`: the address of the row's picture; empty: not known.
  void tell(const RowError& error, std::string_view place = {});
  /// What was told, by code.
  std::map<std::string, std::string> told() const;

 private:
  const std::string job_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> told_;  // Guarded by mutex_.
};

/// A decoder that tells what it refuses. `told` outlives it.
std::unique_ptr<PictureDecoder> decoder_that_tells(ToldErrors& told, std::unique_ptr<PictureDecoder> decoder);

}  // namespace darkroom
