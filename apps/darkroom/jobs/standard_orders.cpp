#include "jobs/standard_orders.h"

#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

namespace darkroom {
namespace {

constexpr size_t kShownBytes = 100;  // Of a line that is refused.

std::string_view outcome_name(ItemOutcome outcome) {
  switch (outcome) {
    case ItemOutcome::kCommitted:
      return "committed";
    case ItemOutcome::kThere:
      return "there";
    case ItemOutcome::kBusy:
      return "busy";
    case ItemOutcome::kUnknown:
      break;
  }
  return "unknown";
}

std::optional<int64_t> read_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string line_of(const nlohmann::json& json) { return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n"; }

}  // namespace

Status StandardOrders::ready(const OrderedJob& job) {
  return print(line_of({{"ready", true}, {"items", job.num_items}, {"rows", job.num_rows}, {"open_items", job.open_items}}));
}

Result<std::optional<int64_t>> StandardOrders::next(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { end_.request_stop(); });
  std::string line;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_line, input_.next_line(line));
    if (!is_line) {
      return std::optional<int64_t>();
    }
    if (const std::optional<int64_t> number = read_number(line)) {
      return number;
    }
    DARKROOM_RETURN_IF_ERROR(
        print(line_of({{"line", line.substr(0, kShownBytes)}, {"outcome", "refused"}, {"why", "a line must be the number of an item"}})));
  }
}

Status StandardOrders::answer(const ItemAnswer& answer) {
  nlohmann::json json = {{"item", answer.item}, {"outcome", outcome_name(answer.outcome)}};
  if (answer.outcome == ItemOutcome::kCommitted || answer.outcome == ItemOutcome::kThere) {
    json["rows_in"] = answer.tally.rows_in;
    json["rows_out"] = answer.tally.rows_out;
    json["rows_by_error"] = nlohmann::json::object();
    for (const auto& [code, count] : answer.tally.rows_by_error) {
      json["rows_by_error"][code] = count;
    }
    json["bytes"] = answer.num_bytes;
  }
  return print(line_of(json));
}

Status StandardOrders::print(const std::string& line) {
  const std::lock_guard hold(printing_);
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0) {
    return Status::unavailable("whoever ordered items does not read the standard output any more:", std::generic_category().message(errno));
  }
  return Status::ok();
}

}  // namespace darkroom
