#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "value_text.h"

namespace darkroom {

/// What a flag's value is: how to read it, and how help, completion, man page and messages speak of it.
struct ValueDefinition {
  std::string kind;                     ///< For programs: integer, number, bytes, seconds, percent, text, path, folder, uri, choice, ...
  std::string shown;                    ///< For people: "N", "BYTES", "header|full".
  std::string unit = {};                ///< "pixels"; empty: none, or said by the kind.
  std::string default_text = {};        ///< Empty: none.
  std::string range = {};               ///< "at least 1"; empty: all values.
  std::vector<std::string> words = {};  ///< Words that it takes: the choices, or names such as none and auto.
  std::vector<std::string> later = {};  ///< Choices that a later release brings.
  int min_values = 1;                   ///< Values after one mention of the flag; 0: a switch.
  int max_values = 1;
  bool is_repeatable = false;  ///< May be mentioned several times.
  bool may_be_number = false;  ///< Of the kind text: a configuration file may hold a number.
  /// Reads the values of all mentions and keeps the result where the verb wants it. A failure's message goes on after the flag's
  /// name: "must be at least 1, got: 0".
  std::function<Status(const std::vector<std::string>&)> take = {};
};

inline constexpr int kManyValues = 1'000'000;

/// A scalar value under construction; converts to its definition.
template <typename T>
class ScalarValue {
 public:
  using Parse = Result<T> (*)(std::string_view);
  using Format = std::string (*)(T);

  ScalarValue(T& target, std::string kind, std::string shown, Parse parse, Format format)
      : target_(&target), parse_(parse), format_(format) {
    definition_.kind = std::move(kind);
    definition_.shown = std::move(shown);
  }

  ScalarValue& least(T value) {
    least_ = value;
    return *this;
  }
  /// Values above this one only.
  ScalarValue& above(T value) {
    above_ = value;
    return *this;
  }
  ScalarValue& most(T value) {
    most_ = value;
    return *this;
  }
  /// A word for a value that stands for something else: also("none", -1).
  ScalarValue& also(std::string word, T value) {
    words_.emplace_back(std::move(word), value);
    return *this;
  }
  ScalarValue& unit(std::string unit) {
    definition_.unit = std::move(unit);
    return *this;
  }
  ScalarValue& shown(std::string shown) {
    definition_.shown = std::move(shown);
    return *this;
  }

  operator ValueDefinition() const {
    ValueDefinition definition = definition_;
    definition.range = range();
    definition.default_text = format_(*target_);
    for (const auto& [word, value] : words_) {
      definition.words.push_back(word);
      if (*target_ == value) {
        definition.default_text = word;
      }
    }
    definition.take = [reader = *this](const std::vector<std::string>& values) { return reader.take(values.back()); };
    return definition;
  }

 private:
  Status take(const std::string& text) const {
    for (const auto& [word, value] : words_) {
      if (text == word) {
        *target_ = value;
        return Status::ok();
      }
    }
    Result<T> value = parse_(text);
    if (!value.is_ok()) {
      return Status::invalid_argument(with_words(value.status().message()));
    }
    if ((least_ && *value < *least_) || (above_ && !(*value > *above_)) || (most_ && *value > *most_)) {
      return Status::invalid_argument(with_words(fmt::format("must be {}, got: {}", range(), quote_value(text))));
    }
    *target_ = *value;
    return Status::ok();
  }

  std::string range() const {
    if (least_ && most_) {
      return fmt::format("from {} to {}", format_(*least_), format_(*most_));
    }
    if (above_ && most_) {
      return fmt::format("above {} and at most {}", format_(*above_), format_(*most_));
    }
    if (most_) {
      return fmt::format("at most {}", format_(*most_));
    }
    return least_ ? fmt::format("at least {}", format_(*least_)) : above_ ? fmt::format("above {}", format_(*above_)) : "";
  }

  // "must be ..., got: x" -> "must be ... or none, got: x".
  std::string with_words(std::string message) const {
    std::string list;
    for (const auto& named : words_) {
      list += " or " + named.first;
    }
    const size_t comma = message.rfind(", got: ");
    return comma == std::string::npos ? message : message.insert(comma, list);
  }

  T* target_;
  Parse parse_;
  Format format_;
  ValueDefinition definition_;
  std::optional<T> least_;
  std::optional<T> above_;
  std::optional<T> most_;
  std::vector<std::pair<std::string, T>> words_;
};

/// A whole number in T's range; `bounded_by` narrows a wide integer.
template <typename T, Result<WideInteger> (*parse)(std::string_view)>
Result<T> parse_integer(std::string_view text) {
  DARKROOM_ASSIGN_OR_RETURN(const WideInteger value, parse(text));
  if (value < static_cast<WideInteger>(std::numeric_limits<T>::min()) || value > static_cast<WideInteger>(std::numeric_limits<T>::max())) {
    return Status::invalid_argument(fmt::format("must be from {} to {}, got:", format_count(std::numeric_limits<T>::min()),
                                                format_count(std::numeric_limits<T>::max())),
                                    quote_value(text));
  }
  return static_cast<T>(value);
}

/// The kinds of values. Each binds a target, whose present value is the default; the target must outlive the definition.
namespace value {

/// A count: whole numbers from 0 on unless least() says otherwise.
template <typename T>
ScalarValue<T> count(T& target) {
  return ScalarValue<T>(target, "integer", "N", parse_integer<T, parse_count>, [](T value) { return format_count(value); }).least(0);
}
/// A size in bytes.
template <typename T>
ScalarValue<T> bytes(T& target) {
  return ScalarValue<T>(target, "bytes", "BYTES", parse_integer<T, parse_bytes>, [](T value) { return format_bytes(value); })
      .least(0)
      .unit("bytes");
}
ScalarValue<double> number(double& target);
ScalarValue<double> percent(double& target);
ScalarValue<double> seconds(double& target);
ScalarValue<double> minutes(double& target);

/// One of `names`: hands its index over. `current` is the default's index. `later` are choices that a later release brings.
ValueDefinition choice_of(std::vector<std::string> names, std::vector<std::string> later, size_t current, std::function<void(size_t)> keep);

/// One of a few words, each for a value.
template <typename T>
ValueDefinition choice(T& target, const std::vector<std::pair<std::string, T>>& choices, std::vector<std::string> later = {}) {
  std::vector<std::string> names;
  size_t current = choices.size();
  for (const auto& [name, value] : choices) {
    current = value == target ? names.size() : current;
    names.push_back(name);
  }
  return choice_of(std::move(names), std::move(later), current,
                   [target = &target, choices](size_t index) { *target = choices[index].second; });
}
/// One of a few words, kept as text.
ValueDefinition choice(std::string& target, std::vector<std::string> names, std::vector<std::string> later = {});

/// Any text that is not empty; `empty_name` says what the empty default stands for ("auto") and may be given for it.
ValueDefinition text(std::string& target, std::string shown, std::string empty_name = {});
/// A text that often is a number, so that a configuration file need not quote it.
ValueDefinition text_or_number(ValueDefinition definition);
/// Any text, the empty one too.
ValueDefinition free_text(std::string& target, std::string shown);
/// A path of the local file system, also as a file:// address: `kind` is path or folder. Other addresses are refused. `default_text` says
/// what an empty default means.
ValueDefinition path(std::string& target, std::string shown, std::string default_text = {});
ValueDefinition folder(std::string& target, std::string shown, std::string default_text = {});
/// The same or an address of a store, which is checked where it is opened; `kind` is uri.
ValueDefinition uri(std::string& target, std::string shown, std::string default_text = {});

/// Several values after one mention and several mentions. Each must not be empty.
ValueDefinition texts(std::vector<std::string>& target, std::string shown);
ValueDefinition uris(std::vector<std::string>& target, std::string shown);
ValueDefinition paths(std::vector<std::string>& target, std::string shown);
/// As texts, empty ones too.
ValueDefinition free_texts(std::vector<std::string>& target, std::string shown);
/// Several mentions with one value each.
ValueDefinition repeated_texts(std::vector<std::string>& target, std::string shown);

/// WIDTHxHEIGHT in pixels.
ValueDefinition picture_size(int& width, int& height);
/// auto, cpu, cuda or cuda:I. `later_gpu`: a GPU is not built yet for this verb.
ValueDefinition device(std::string& target, bool later_gpu);
/// A number and a path.
ValueDefinition number_and_path(int& number, std::string& path, std::string shown);
/// A switch: true when the flag is given.
ValueDefinition toggle(bool& target);
/// A switch that turns something off.
ValueDefinition toggle_off(bool& target);

}  // namespace value

}  // namespace darkroom
