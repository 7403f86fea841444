#include "darkroom/toml/toml_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "darkroom/core/typing_mistakes.h"

namespace darkroom {
namespace {

std::string range_text(const NumberRange& range) {
  std::string text = fmt::format("a number {} {}", range.above_least ? "above" : "from", range.least);
  if (range.most < std::numeric_limits<double>::max()) {
    text += fmt::format(" to {}", range.most);
  }
  return text;
}

bool is_date(const std::string& text) {
  constexpr std::string_view kPattern = "0000-00-00";
  return text.size() == kPattern.size() && std::equal(text.begin(), text.end(), kPattern.begin(), [](char found, char wanted) {
           return wanted == '0' ? found >= '0' && found <= '9' : found == wanted;
         });
}

}  // namespace

std::string shown_toml(const toml::node& node) {
  constexpr size_t kMostBytes = 100;
  std::string text = (std::ostringstream() << toml::node_view<const toml::node>(node)).str();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.size() > kMostBytes ? text.substr(0, kMostBytes) + "..." : text;
}

std::string TomlFields::where() const {
  return fmt::format("{}, line {}{}{}", file_, table_.source().begin.line, place_.empty() ? "" : ": ", place_);
}

std::string TomlFields::line_of(const toml::node& node) const { return fmt::format("{}, line {}", file_, node.source().begin.line); }

void TomlFields::fail(const std::string& key, const std::string& what) {
  if (status_.is_ok()) {
    const toml::node* node = table_.get(key);
    const std::string line = node == nullptr ? fmt::format("{}, line {}", file_, table_.source().begin.line) : line_of(*node);
    status_ = Status::invalid_argument(fmt::format("{}: {}{}{} {}", line, place_, place_.empty() ? "" : " ", key, what));
  }
}

const toml::node* TomlFields::find(const std::string& key, bool is_required) {
  asked_.push_back(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr && is_required) {
    fail(key, "is missing");
  }
  return node;
}

double TomlFields::number(const std::string& key, const NumberRange& range) {
  const toml::node* node = find(key, true);
  if (node == nullptr) {
    return 0;
  }
  const auto value = node->is_number() ? node->value<double>() : std::nullopt;
  const bool is_good =
      value && std::isfinite(*value) && *value <= range.most && (range.above_least ? *value > range.least : *value >= range.least);
  if (!is_good) {
    fail(key, fmt::format("must be {}, got: {}", range_text(range), shown_toml(*node)));
    return 0;
  }
  return *value;
}

double TomlFields::number_or(const std::string& key, double fallback, const NumberRange& range) {
  if (has(key)) {
    return number(key, range);
  }
  asked_.push_back(key);
  return fallback;
}

int64_t TomlFields::count(const std::string& key) {
  const toml::node* node = find(key, true);
  const auto value = node == nullptr ? std::nullopt : node->value_exact<int64_t>();
  if (node != nullptr && (!value || *value < 0)) {
    fail(key, fmt::format("must be a whole number from 0, got: {}", shown_toml(*node)));
  }
  return value.value_or(0);
}

int64_t TomlFields::count_or(const std::string& key, int64_t fallback) {
  if (has(key)) {
    return count(key);
  }
  asked_.push_back(key);
  return fallback;
}

std::string TomlFields::text(const std::string& key) {
  const toml::node* node = find(key, true);
  const auto value = node == nullptr ? std::nullopt : node->value_exact<std::string>();
  if (node != nullptr && (!value || value->empty())) {
    fail(key, fmt::format("must be a text in quotes that is not empty, got: {}", shown_toml(*node)));
  }
  return value.value_or("");
}

std::string TomlFields::text_or(const std::string& key, const std::string& fallback) {
  if (has(key)) {
    return text(key);
  }
  asked_.push_back(key);
  return fallback;
}

std::string TomlFields::choice(const std::string& key, const std::vector<std::string>& words) {
  const std::string value = text(key);
  if (status_.is_ok() && std::find(words.begin(), words.end(), value) == words.end()) {
    fail(key, fmt::format("must be one of {}, got: '{}'", fmt::join(words, ", "), value));
  }
  return value;
}

std::string TomlFields::date(const std::string& key) {
  const std::string value = text(key);
  if (status_.is_ok() && !is_date(value)) {
    fail(key, fmt::format("must be a date in quotes such as \"2026-11-23\", got: '{}'", value));
  }
  return value;
}

std::vector<TomlFields> TomlFields::tables(const std::string& key) {
  std::vector<TomlFields> found;
  const toml::node* node = find(key, false);
  if (node == nullptr) {
    return found;
  }
  if (const toml::table* only = node->as_table()) {
    found.emplace_back(*only, file_, fmt::format("[{}]", key));
    return found;
  }
  const toml::array* list = node->as_array();
  if (list == nullptr || !std::all_of(list->begin(), list->end(), [](const toml::node& item) { return item.is_table(); })) {
    fail(key, fmt::format("must be tables ([[{}]]), got: {}", key, shown_toml(*node)));
    return found;
  }
  for (size_t i = 0; i < list->size(); ++i) {
    found.emplace_back(*list->get(i)->as_table(), file_, fmt::format("[[{}]] {}", key, i + 1));
  }
  return found;
}

std::optional<TomlFields> TomlFields::table(const std::string& key) {
  const toml::node* node = find(key, false);
  if (node == nullptr) {
    return std::nullopt;
  }
  if (!node->is_table()) {
    fail(key, fmt::format("must be a table, got: {}", shown_toml(*node)));
    return std::nullopt;
  }
  return TomlFields(*node->as_table(), file_, place_.empty() ? fmt::format("[{}]", key) : fmt::format("{} {}", place_, key));
}

std::vector<const toml::node*> TomlFields::list(const std::string& key) {
  const toml::node* node = find(key, false);
  std::vector<const toml::node*> values;
  if (node == nullptr) {
    return values;
  }
  if (!node->is_array() || node->as_array()->empty()) {
    fail(key, fmt::format("must be a list that is not empty, got: {}", shown_toml(*node)));
    return values;
  }
  for (const toml::node& value : *node->as_array()) {
    values.push_back(&value);
  }
  return values;
}

std::vector<std::string> TomlFields::texts(const std::string& key) {
  std::vector<std::string> texts;
  for (const toml::node* node : list(key)) {
    if (!node->is_string()) {
      fail(key, fmt::format("must be a list of texts in quotes, got: {}", shown_toml(*node)));
      return {};
    }
    texts.push_back(**node->as_string());
  }
  return texts;
}

Status TomlFields::unknown_key() const {
  for (const auto& [key, node] : table_) {
    const std::string name(key.str());
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) {
      continue;
    }
    const auto nearest = std::ranges::min_element(asked_, {}, [&](const std::string& asked) { return typing_mistakes(asked, name); });
    return Status::invalid_argument(fmt::format("{}: {}{}there is no field '{}'; did you mean '{}'?", line_of(node), place_,
                                                place_.empty() ? "" : ": ", name.substr(0, 100), nearest == asked_.end() ? "" : *nearest));
  }
  return Status::ok();
}

Status TomlFields::finish() { return status_.is_ok() ? unknown_key() : status_; }

}  // namespace darkroom
