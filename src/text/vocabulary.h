#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// The mark at the end of a token that ends a word.
inline constexpr std::string_view kEndOfWord = "</w>";

/// The tokens of a byte-level byte-pair encoding and its merges in order of their rank.
class Vocabulary {
 public:
  /// `tokens[i]` has id i; a merge is its two tokens, separated by one space.
  /// Errors: kCorruptData (a token twice, a merge that is no pair or makes no token).
  static Result<Vocabulary> create(std::vector<std::string> tokens, std::vector<std::string> merges);

  std::optional<int32_t> find(std::string_view token) const;
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::string>& merges() const { return merges_; }

  struct Merge {
    int32_t left;
    int32_t right;
    int32_t merged;
  };
  /// Merges as ids, the first one with the lowest rank.
  const std::vector<Merge>& merge_ids() const { return merge_ids_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  std::vector<std::string> tokens_;
  std::vector<std::string> merges_;
  std::vector<Merge> merge_ids_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

/// The UTF-8 character that stands for a byte in tokens: itself where it prints, else one from U+0100 on (GPT-2's table).
const std::array<std::string, 256>& byte_characters();

/// The bytes that a token without its end-of-word mark stands for; nullopt when it holds another character.
std::optional<std::string> token_bytes(std::string_view token);

}  // namespace darkroom
