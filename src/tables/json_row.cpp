#include "json_row.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/utf8.h"

namespace darkroom {

namespace {

using nlohmann::json;

constexpr std::string_view kMark = "\xEF\xBF\xBF";         // U+FFFF, which is no character: stands for what JSON cannot hold.
constexpr std::string_view kInvalidByte = "\xFF";          // Part of no UTF-8.
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// The unit of UTF-16 that an escape at the start of `text` stands for.
std::optional<uint32_t> escaped_unit(std::string_view text) {
  constexpr size_t kEscapeBytes = 6;
  uint32_t unit = 0;
  if (text.size() < kEscapeBytes || !text.starts_with("\\u")) {
    return std::nullopt;
  }
  const char* const end = text.data() + kEscapeBytes;
  return std::from_chars(text.data() + 2, end, unit, 16).ptr == end ? std::optional(unit) : std::nullopt;
}

bool is_high_surrogate(std::optional<uint32_t> unit) { return unit && *unit >= 0xD800 && *unit < 0xDC00; }
bool is_low_surrogate(std::optional<uint32_t> unit) { return unit && *unit >= 0xDC00 && *unit < 0xE000; }

/// What stands at the start of a line: a character, or an escape.
struct JsonPiece {
  size_t num_bytes = 0;
  bool is_valid = true;
};

JsonPiece first_piece(std::string_view row) {
  if (row.front() != '\\') {
    const Utf8Character character = first_character(row);
    return {.num_bytes = character.num_bytes, .is_valid = character.is_valid};
  }
  const std::optional<uint32_t> unit = escaped_unit(row);
  if (is_high_surrogate(unit) && is_low_surrogate(escaped_unit(row.substr(6)))) {
    return {.num_bytes = 12};
  }
  return unit ? JsonPiece{.num_bytes = 6, .is_valid = !is_high_surrogate(unit) && !is_low_surrogate(unit)}
              : JsonPiece{.num_bytes = std::min<size_t>(row.size(), 2)};
}

/// The line with each ill-formed part of its UTF-8, and each escape that is half of a pair of surrogates, replaced by kMark; nothing where
/// there is none.
std::optional<std::string> with_marks(std::string_view row) {
  std::string marked;
  bool has_marks = false;
  while (!row.empty()) {
    const JsonPiece piece = first_piece(row);
    marked += piece.is_valid ? row.substr(0, piece.num_bytes) : kMark;
    has_marks = has_marks || !piece.is_valid;
    row.remove_prefix(piece.num_bytes);
  }
  return has_marks ? std::optional(std::move(marked)) : std::nullopt;
}

std::string replace_marks(std::string_view text, std::string_view replacement) {
  std::string result;
  for (size_t mark = text.find(kMark); mark != std::string_view::npos; mark = text.find(kMark)) {
    result.append(text.substr(0, mark)).append(replacement);
    text.remove_prefix(mark + kMark.size());
  }
  return result.append(text);
}

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// What the parser calls, in the order of the text; false ends it.
class RowReader final : public nlohmann::json_sax<json> {
 public:
  /// `has_marks`: the line is what with_marks made of it.
  RowReader(const FindMember& find, bool has_marks) : find_(find), has_marks_(has_marks) {}

  bool null() override {
    if (depth_ == 1 && member_ != nullptr) {
      member_->reset();
      return true;
    }
    return add("null");
  }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  /// Zero is unsigned, and minus zero is not.
  bool number_integer(number_integer_t value) override { return add(value == 0 ? "-0" : text_of(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(text_of(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return add(text); }
  bool string(string_t& value) override {
    if (has_marks_) {
      // Of a member's own text somebody else replaces what is no UTF-8, and counts it.
      value = replace_marks(value, depth_ == 1 ? kInvalidByte : kReplacement);
    }
    return add(depth_ == 1 ? value : text_of(value));
  }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON text has none.

  bool start_object(size_t /*size*/) override { return depth_ == 0 ? ++depth_ > 0 : open("{"); }
  bool end_object() override { return close('}'); }
  bool start_array(size_t /*size*/) override { return open("["); }
  bool end_array() override { return close(']'); }
  bool key(string_t& name) override {
    if (has_marks_) {
      name = replace_marks(name, kReplacement);
    }
    if (depth_ == 1) {
      member_ = find_(name);
      if (member_ != nullptr) {
        member_->emplace();
      }
      return true;
    }
    return member_ == nullptr || add(text_of(name) + ":");
  }

  bool parse_error(size_t /*place*/, const std::string& /*token*/, const json::exception& /*error*/) override { return false; }

 private:
  bool add(std::string_view text) {
    if (member_ != nullptr) {
      std::string& all = **member_;
      if (!all.empty() && std::string_view("[{:").find(all.back()) == std::string_view::npos) {
        all += ',';  // Behind another value of a list or an object.
      }
      all += text;
    }
    return depth_ > 0;
  }
  bool open(std::string_view bracket) { return add(bracket) && ++depth_ <= kMaxJsonDepth; }
  bool close(char bracket) {
    if (--depth_ > 0 && member_ != nullptr) {
      **member_ += bracket;
    }
    return true;
  }

  const FindMember& find_;
  const bool has_marks_;
  std::optional<std::string>* member_ = nullptr;  // Of the row's own members the one that is read now; null: not wanted.
  int depth_ = 0;                                 // Of open lists and objects.
};

}  // namespace

bool read_json_row(std::string_view row, const FindMember& find) {
  RowReader reader(find, false);
  if (json::sax_parse(row.begin(), row.end(), &reader)) {
    return true;
  }
  const std::optional<std::string> marked = with_marks(row);
  if (!marked) {
    return false;
  }
  RowReader second(find, true);
  return json::sax_parse(*marked, &second);
}

}  // namespace darkroom
