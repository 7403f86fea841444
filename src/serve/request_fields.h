#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "darkroom/core/status.h"

namespace darkroom {

/// The fields of a JSON object from outside, each asked for by name. The first that is wrong is kept as failure(), after which every other
/// answer is "not there". An absent field and null are the same. What a reader asks for is what it takes: over an empty object and with
/// `schema` it tells that instead (described_fields), so a reader asks for all its fields whatever is there.
class RequestFields {
 public:
  /// `object` and `schema` outlive this. `where` stands before names in messages: "parameters.". `schema` becomes the object's JSON Schema;
  /// null: nobody wants it.
  RequestFields(const nlohmann::json& object, std::string where, nlohmann::json* schema = nullptr);
  /// Of an object whose values are all texts, as forms and queries have them, which know nothing else.
  static RequestFields of_texts(const nlohmann::json& object);

  /// The value as it is, of of_texts() what the text says where the schema wants a number or a boolean; null where there is none. `schema`
  /// describes it.
  const nlohmann::json* any(const char* name, const nlohmann::json& schema = nlohmann::json::object());
  std::optional<std::string> text(const char* name, size_t max_bytes);
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most);
  /// From 0 to 2^64 - 1.
  std::optional<uint64_t> seed(const char* name);
  std::optional<double> number(const char* name, double least, double most);
  std::optional<bool> boolean(const char* name);
  /// Reads an object's fields, refuses its others and keeps its failure. `read` is called where there is one.
  void object(const char* name, const std::function<void(RequestFields&)>& read);
  /// Whichever of two spellings of a field is there; both are a fault.
  const char* spelling(const char* snake, const char* camel);
  /// A field without which there is nothing to do.
  void need(const char* name);
  /// A known field that is not built: nothing but its default is taken.
  void only(const char* name, std::initializer_list<nlohmann::json> defaults);

  /// Keeps the first failure.
  void fail(Status failure);
  /// Names the first field that nobody asked for.
  void refuse_others();
  /// Changes how a field that was asked for is described; nothing where nobody wants to know.
  void describe(const char* name, const nlohmann::json& more);
  const Status& failure() const { return failure_; }
  std::string shown(std::string_view name) const { return where_ + std::string(name); }

 private:
  const nlohmann::json& object_;
  std::string where_;
  nlohmann::json* schema_;
  bool has_texts_ = false;
  std::map<std::string, nlohmann::json, std::less<>> said_;  // Of of_texts(): what texts say.
  std::set<std::string, std::less<>> asked_;
  Status failure_;
};

/// JSON Schema of the object that a reader takes.
nlohmann::json described_fields(const std::function<void(RequestFields&)>& read);

/// JSON Schema of what looks like a value: its fields, all of which are there, with their types; lists are of what their first one is.
nlohmann::json schema_like(const nlohmann::json& value);

/// JSON in ASCII; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value);
/// A value of a request for a message: its JSON, cut where it is long.
std::string shown_json(const nlohmann::json& value);

}  // namespace darkroom
