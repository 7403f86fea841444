#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <toml++/toml.h>

#include "darkroom/core/status.h"

namespace darkroom {

/// Which numbers a field takes.
struct NumberRange {
  double least = 0;
  double most = std::numeric_limits<double>::max();
  bool above_least = false;  ///< `least` itself is not taken.
};
inline constexpr NumberRange kAboveZero = {.above_least = true};

/// A value as TOML writes it, on one line and cut at 100 bytes, for a message.
std::string shown_toml(const toml::node& node);

/// Takes the fields of one table of a user's file one by one, and keeps the first failure: file, line, place, key, value. A field that is
/// asked for and missing is a failure unless it is optional; one that nobody asked for is a failure of finish(), with the nearest name.
class TomlFields {
 public:
  /// `place` is how messages name the table: "[[price]] 3". `table` outlives the object.
  TomlFields(const toml::table& table, std::string file, std::string place)
      : table_(table), file_(std::move(file)), place_(std::move(place)) {}

  double number(const std::string& key, const NumberRange& range = {});
  double number_or(const std::string& key, double fallback, const NumberRange& range = {});
  /// A whole number from 0 on.
  int64_t count(const std::string& key);
  int64_t count_or(const std::string& key, int64_t fallback);
  /// Not empty.
  std::string text(const std::string& key);
  std::string text_or(const std::string& key, const std::string& fallback);
  /// One of a few words.
  std::string choice(const std::string& key, const std::vector<std::string>& words);
  /// A date as "2026-11-23".
  std::string date(const std::string& key);
  /// The tables below it: [[key]], or [key] as the only one. None where it is absent.
  std::vector<TomlFields> tables(const std::string& key);
  /// The one table below it, or none.
  std::optional<TomlFields> table(const std::string& key);
  /// The values of a list that is not empty; none where it is absent.
  std::vector<const toml::node*> list(const std::string& key);
  /// As list, of texts in quotes, which may be empty.
  std::vector<std::string> texts(const std::string& key);
  /// The field as it stands, for a caller that checks it by itself; null where it is absent.
  const toml::node* node(const std::string& key) { return find(key, false); }
  bool has(const std::string& key) const { return table_.contains(key); }
  const std::string& file() const { return file_; }
  const std::string& place() const { return place_; }
  /// How messages name this table: file, line, place.
  std::string where() const;

  /// Keeps a failure found by the caller: `what` goes on after the key.
  void fail(const std::string& key, const std::string& what);
  /// Keeps the failure of a table below it.
  void adopt(const Status& status) {
    if (status_.is_ok()) {
      status_ = status;
    }
  }
  /// The same table under another place.
  TomlFields placed(std::string place) const { return TomlFields(table_, file_, std::move(place)); }
  /// The first failure, or an unknown key.
  Status finish();
  const Status& status() const { return status_; }

 private:
  const toml::node* find(const std::string& key, bool is_required);
  std::string line_of(const toml::node& node) const;
  Status unknown_key() const;

  const toml::table& table_;
  std::string file_;
  std::string place_;
  std::vector<std::string> asked_;
  Status status_;
};

}  // namespace darkroom
