#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "darkroom/core/status.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

// Reading many ranges of an object that is far away: few requests, several at once.

inline constexpr int64_t kMostGapBytes = 256 << 10;    ///< Reading so much in vain is faster than one more request.
inline constexpr int64_t kMostRequestBytes = 8 << 20;  ///< More than that is read by several requests at once.
inline constexpr int kMostRequestsAtOnce = 8;          ///< Of one call.

/// Carries out call(0), ..., call(count - 1), several at once in threads of its own; after a failure begins no more of them and returns the
/// first. The calls may throw; that passes through, when all have ended.
Status run_at_once(size_t count, int num_at_once, const std::function<Status(size_t)>& call);

/// One request, and the ranges that it fills.
struct RangeRequest {
  ByteRange bytes;
  std::vector<size_t> ranges = {};  ///< Their numbers. Alone: `bytes` are a part of that range. Several: each lies whole within `bytes`.

  bool operator==(const RangeRequest&) const = default;
};
/// Ranges of no bytes are left out. Any order; ranges may overlap.
std::vector<RangeRequest> plan_range_requests(std::span<const ByteRange> ranges);

/// Fills `out` with these bytes of the object, all of them.
using ReadBytes = std::function<Status(ByteRange bytes, std::span<std::byte> out)>;

/// InputFile::read_ranges by these rules; `read` is called by several threads at once. Holds at most kMostRequestsAtOnce requests' bytes.
Status read_ranges_at_once(std::span<const ByteRange> ranges, std::span<const std::span<std::byte>> out, const ReadBytes& read);

}  // namespace darkroom
