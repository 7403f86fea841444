#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// How many bytes a process without privileges may still write to the disk that holds a folder of this machine. Others write there, too:
/// what is written may find it full all the same. Errors: those of a FileSystem (kNotFound: there is no such folder).
Result<int64_t> free_bytes_at(const std::string& folder);

/// Bytes that wait on a disk for a while: files without a name, so that nothing is left after any death. Bounded.
/// Thread safety: every method may be called from any thread.
class ScratchFiles {
 public:
  static constexpr int64_t kSegmentBytes = int64_t{64} << 20;

  /// Where bytes lie.
  struct Place {
    int32_t segment = -1;
    int32_t num_bytes = 0;
    int64_t offset = 0;
  };

  /// Opens the first file at once, so that a folder that cannot be written says so here. Segments hold up to `segment_bytes`, or one
  /// larger entry. Errors: those of a FileSystem. REQUIRES: max_bytes > 0, segment_bytes > 0.
  static Result<std::unique_ptr<ScratchFiles>> open(const std::string& folder, int64_t max_bytes, int64_t segment_bytes = kSegmentBytes);
  ~ScratchFiles();
  ScratchFiles(const ScratchFiles&) = delete;
  ScratchFiles& operator=(const ScratchFiles&) = delete;

  /// Stores the bytes. Errors: kResourceExhausted when the bound or the disk is full (give something back and try again), kUnavailable when
  /// the disk failed; what was stored before stays readable. REQUIRES: less than 2 GiB.
  Result<Place> append(std::span<const std::byte> bytes);
  /// Fills `out`. Errors: kUnavailable. REQUIRES: a place from append() that was not given back; `out` has its size.
  Status read(const Place& place, std::span<std::byte> out) const;
  /// Gives the bytes back. The disk gets the space of a segment when all its places are back. REQUIRES: as read().
  void free(const Place& place);

  /// What counts against `max_bytes`: all that was written to segments that still hold something.
  int64_t used_bytes() const;

 private:
  struct Segment;

  ScratchFiles(std::string folder, int64_t max_bytes, int64_t segment_bytes);
  Result<std::shared_ptr<Segment>> open_segment() const;
  Result<Place> reserve(int64_t num_bytes, std::shared_ptr<Segment>& segment);
  std::shared_ptr<Segment> segment_of(const Place& place) const;

  const std::string folder_;
  const int64_t max_bytes_;
  const int64_t segment_bytes_;
  mutable std::mutex mutex_;                              // Guards all below, not the bytes.
  std::map<int32_t, std::shared_ptr<Segment>> segments_;  // Shared: a segment is closed when its last reader is done.
  int32_t next_segment_ = 0;
  int64_t used_bytes_ = 0;
};

}  // namespace darkroom
