#pragma once

#include <cstdio>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "darkroom/ingest/item_orders.h"
#include "standard_input.h"

namespace darkroom {

/// `--items -`: numbers of items, one a line of the standard input, and a JSON object a line on the standard output for each
/// (docs/ingest.md). A line that is no number is answered, too, and costs nothing else. Whoever closes the output ends the run.
class StandardOrders final : public ItemOrders {
 public:
  Status ready(const OrderedJob& job) override;
  Result<std::optional<int64_t>> next(const std::stop_token& stop) override;
  Status answer(const ItemAnswer& answer) override;

 private:
  Status print(const std::string& line);

  std::stop_source end_;  // Of the waiting for a line.
  StandardInput input_{end_.get_token()};
  std::mutex printing_;  // A line is written whole.
};

}  // namespace darkroom
