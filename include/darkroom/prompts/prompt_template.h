#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// A text with places for words: "a {colour} house" has one, called colour; {{ and }} are the characters { and }. A name is 1 to 64
/// letters, digits, - and _ of ASCII. Takes linear time. Thread safety: a value type.
class PromptTemplate {
 public:
  /// Errors: kInvalidArgument naming the character (counted from 1): a brace without its other one, no such name between two, a NUL. The
  /// message goes on after what the text is of: "has a '{' at character 3 that stands alone; ...".
  static Result<PromptTemplate> parse(std::string_view text);

  /// The names of its places, each once, in the order in which they come first.
  const std::vector<std::string>& names() const { return names_; }
  /// The text with words[i] at every place of names()[i]. REQUIRES: as many words as names.
  std::string fill(std::span<const std::string_view> words) const;
  /// How many bytes fill() would give. REQUIRES: as fill.
  size_t filled_bytes(std::span<const std::string_view> words) const;

 private:
  struct Part {
    std::string text;  // Before the place.
    size_t name = 0;
  };

  std::vector<Part> parts_;
  std::string end_;  // Behind the last place.
  std::vector<std::string> names_;
};

}  // namespace darkroom
