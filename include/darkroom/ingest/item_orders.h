#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/ingest/part_record.h"

namespace darkroom {

/// What became of an item that was ordered.
enum class ItemOutcome : uint8_t {
  kCommitted,  ///< Done by this run.
  kThere,      ///< Its part was there already.
  kBusy,       ///< Another process, or this one, is at it: order it again later.
  kUnknown,    ///< The job has no such item.
};

struct ItemAnswer {
  int64_t item = 0;
  ItemOutcome outcome = ItemOutcome::kUnknown;
  ItemTally tally = {};   ///< Of the item's part, where it is there.
  int64_t num_bytes = 0;  ///< Of the part that this run made.
};

/// The job that orders are taken for.
struct OrderedJob {
  int64_t num_items = 0;
  int64_t num_rows = 0;         ///< Input rows of all items.
  std::string open_items = {};  ///< Those without a part, as print_items() writes them.
};

/// Who hands out a job's items one by one while the run goes on, and is told what became of each (`--items -`).
class ItemOrders {
 public:
  virtual ~ItemOrders() = default;
  /// The job is pinned and orders are taken from now on. Called once, before next().
  virtual Status ready(const OrderedJob& job) = 0;
  /// The next item that is asked for, waiting for it until a stop; nothing: there will be none. Called by one thread at a time. Errors:
  /// kCancelled.
  virtual Result<std::optional<int64_t>> next(const std::stop_token& stop) = 0;
  /// Called by any thread, in the order in which items are settled.
  virtual Status answer(const ItemAnswer& answer) = 0;
};

}  // namespace darkroom
