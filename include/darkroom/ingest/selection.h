#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// Which items of a job a run does.
struct Selection {
  int64_t limit = -1;  ///< Only the first rows of the list; negative: all.
  int64_t shard = 0;   ///< Items shard, shard + num_shards, ...
  int64_t num_shards = 1;
  std::vector<int64_t> items = {};  ///< Only these, ascending; empty: all.
  bool extend = false;              ///< Files that came after the job was started are appended to its list.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Item numbers that one list may name.
inline constexpr int64_t kMaxListedItems = 1'000'000;

/// Reads "I/N" into shard and num_shards. Errors: kInvalidArgument, as the end of a sentence: "must be I/N with 0 <= I < N, got: 3/3".
Status read_shard(std::string_view text, Selection& selection);

/// Reads "17,18,30-39" into items: ascending, each once. Errors: kInvalidArgument, as above.
Status read_items(std::string_view text, Selection& selection);

}  // namespace darkroom
