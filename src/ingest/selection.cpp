#include "darkroom/ingest/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace darkroom {
namespace {

/// A whole number from 0 on that is all of the text.
std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = failure == std::errc() && end == text.data() + text.size() && number >= 0 && !text.starts_with('-');
  return is_number ? std::optional(number) : std::nullopt;
}

/// "17" or "30-39". Nothing where it is neither.
std::optional<std::pair<int64_t, int64_t>> number_or_range(std::string_view text) {
  const size_t dash = text.find('-');
  const std::optional<int64_t> first = whole_number(text.substr(0, dash));
  const std::optional<int64_t> last = whole_number(dash == std::string_view::npos ? text : text.substr(dash + 1));
  return first && last && *first <= *last ? std::optional(std::pair(*first, *last)) : std::nullopt;
}

}  // namespace

Status Selection::validate() const {
  if (num_shards < 1 || shard < 0 || shard >= num_shards) {
    return Status::invalid_argument(fmt::format("--shard must be I/N with 0 <= I < N, got: {}/{}", shard, num_shards));
  }
  if (on_demand && (num_shards > 1 || !items.empty())) {
    return Status::invalid_argument("--items - does what is ordered and nothing else: leave --shard out, got a share of:", num_shards);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i] < 0 || (i > 0 && items[i] <= items[i - 1])) {
      return Status::invalid_argument("--items must be ascending numbers of items, got:", items[i]);
    }
  }
  return Status::ok();
}

Status read_shard(std::string_view text, Selection& selection) {
  const size_t slash = text.find('/');
  const std::optional<int64_t> shard = whole_number(text.substr(0, slash));
  const std::optional<int64_t> num_shards = whole_number(text.substr(slash == std::string_view::npos ? text.size() : slash + 1));
  if (!shard || !num_shards || *shard >= *num_shards) {
    return Status::invalid_argument("must be I/N with 0 <= I < N, got:", text);
  }
  selection.shard = *shard;
  selection.num_shards = *num_shards;
  return Status::ok();
}

Status read_items(std::string_view text, Selection& selection) {
  std::vector<int64_t> items;
  selection.on_demand = text == "-";
  if (selection.on_demand) {
    selection.items.clear();
    return Status::ok();
  }
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const auto range = number_or_range(rest.substr(0, comma));
    if (!range) {
      return Status::invalid_argument("must be numbers of items and ranges of them, such as 17,18,30-39, or -, got:", text.substr(0, 100));
    }
    if (range->second - range->first >= kMaxListedItems - static_cast<int64_t>(items.size())) {
      return Status::invalid_argument("names more items than one list may (most, list):", kMaxListedItems, text.substr(0, 100));
    }
    for (int64_t item = range->first; item <= range->second; ++item) {
      items.push_back(item);
    }
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  selection.items = std::move(items);
  return Status::ok();
}

std::string print_items(const std::vector<int64_t>& items) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    end = begin + 1;
    while (end < items.size() && items[end] == items[end - 1] + 1) {
      ++end;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ",", items[begin]);
    text += end - begin > 1 ? fmt::format("-{}", items[end - 1]) : "";
  }
  return text;
}

}  // namespace darkroom
