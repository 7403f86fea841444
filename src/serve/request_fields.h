#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "darkroom/core/status.h"

namespace darkroom {

/// The fields of a JSON object from outside, each asked for by name. The first that is wrong is kept as failure(), after which every other
/// answer is "not there". An absent field and null are the same.
class RequestFields {
 public:
  /// `object` outlives this. `where` stands before names in messages: "parameters.".
  RequestFields(const nlohmann::json& object, std::string where);

  /// The value as it is; null where there is none.
  const nlohmann::json* any(const char* name);
  std::optional<std::string> text(const char* name, size_t max_bytes);
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most);
  /// From 0 to 2^64 - 1.
  std::optional<uint64_t> seed(const char* name);
  std::optional<double> number(const char* name, double least, double most);
  /// A known field that is not built: nothing but its default is taken.
  void only(const char* name, std::initializer_list<nlohmann::json> defaults);

  /// Keeps the first failure.
  void fail(Status failure);
  /// Names the first field that nobody asked for.
  void refuse_others();
  const Status& failure() const { return failure_; }
  std::string shown(std::string_view name) const { return where_ + std::string(name); }

 private:
  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> asked_;
  Status failure_;
};

/// JSON in ASCII; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value);
/// A value of a request for a message: its JSON, cut where it is long.
std::string shown_json(const nlohmann::json& value);

}  // namespace darkroom
