#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/image/picture_decoder.h"
#include "darkroom/image/sandbox.h"

namespace darkroom {

/// Decoders for threads that come and go: as many as threads ask at a time. Thread safety: any thread.
class DecoderPool {
 public:
  /// `program`: as open_decoder's.
  explicit DecoderPool(std::string program) : program_(std::move(program)) {}

  /// A decoder that nobody else uses. Errors: open_decoder's.
  Result<std::unique_ptr<PictureDecoder>> take() {
    {
      const std::lock_guard hold(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<PictureDecoder> decoder = std::move(free_.back());
        free_.pop_back();
        return decoder;
      }
    }
    return open_decoder(program_, kAnySize, {});
  }
  void give_back(std::unique_ptr<PictureDecoder> decoder) {
    const std::lock_guard hold(mutex_);
    free_.push_back(std::move(decoder));
  }

 private:
  const std::string program_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PictureDecoder>> free_;  // Guarded by mutex_.
};

}  // namespace darkroom
