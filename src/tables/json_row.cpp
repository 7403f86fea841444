#include "json_row.h"

#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"

namespace darkroom {

namespace {

using nlohmann::json;

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// What the parser calls, in the order of the text; false ends it.
class RowReader final : public nlohmann::json_sax<json> {
 public:
  explicit RowReader(const FindMember& find) : find_(find) {}

  bool null() override {
    if (depth_ == 1 && member_ != nullptr) {
      member_->reset();
      return true;
    }
    return add("null");
  }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return add(text_of(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(text_of(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(text_of(value)); }
  bool string(string_t& value) override { return add(depth_ == 1 ? value : text_of(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON text has none.

  bool start_object(size_t /*size*/) override { return depth_ == 0 ? ++depth_ > 0 : open("{"); }
  bool end_object() override { return close('}'); }
  bool start_array(size_t /*size*/) override { return open("["); }
  bool end_array() override { return close(']'); }
  bool key(string_t& name) override {
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
  std::optional<std::string>* member_ = nullptr;  // Of the row's own members the one that is read now; null: not wanted.
  int depth_ = 0;                                 // Of open lists and objects.
};

}  // namespace

bool read_json_row(std::string_view row, const FindMember& find) {
  RowReader reader(find);
  return json::sax_parse(row.begin(), row.end(), &reader);
}

}  // namespace darkroom
