#pragma once

#include <cstdint>
#include <string>
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
  bool on_demand = false;           ///< Those alone that somebody orders while the run goes on (ItemOrders).
  bool extend = false;              ///< Files that came after the job was started are appended to its list.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Item numbers that one list may name.
inline constexpr int64_t kMaxListedItems = 1'000'000;

/// Reads "I/N" into shard and num_shards. Errors: kInvalidArgument, as the end of a sentence: "must be I/N with 0 <= I < N, got: 3/3".
Status read_shard(std::string_view text, Selection& selection);

/// Reads "17,18,30-39" into items: ascending, each once; "-" into on_demand. Errors: kInvalidArgument, as above.
Status read_items(std::string_view text, Selection& selection);

/// The same list in its shortest form: "17-18,30-39"; of no item "". REQUIRES: ascending, each once.
std::string print_items(const std::vector<int64_t>& items);

}  // namespace darkroom
