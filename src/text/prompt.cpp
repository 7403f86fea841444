#include "darkroom/text/prompt.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/utf8.h"
#include "unicode_classes.h"

namespace darkroom {
namespace {

constexpr double kRoundBracket = 1.1;
constexpr double kSquareBracket = 1 / 1.1;
constexpr std::string_view kBreak = "BREAK";
constexpr double kBreakWeight = -1.0;
constexpr std::string_view kComma = ",</w>";
constexpr size_t kCommaLookBack = 20;  // Tokens: the published default of comma_padding_backtrack.

// White space and word characters as Python's expressions know them.
bool is_space(char32_t c) { return character_class(c) == CharacterClass::kSpace || (c >= 0x1C && c <= 0x1F); }

bool is_word_character(char32_t c) {
  const CharacterClass kind = character_class(c);
  return c == U'_' || kind == CharacterClass::kLetter || kind == CharacterClass::kNumber;
}

// The value of a decimal digit of any script: they stand in runs of ten, from 0 on.
int digit_value(char32_t c) {
  int value = 0;
  while (value < 50 && is_decimal_digit(c - static_cast<char32_t>(value) - 1)) {  // The longest run of runs has 50.
    ++value;
  }
  return value % 10;
}

void skip_white_space(std::string_view& text) {
  while (!text.empty() && is_space(first_character(text).code_point)) {
    text.remove_prefix(first_character(text).num_bytes);
  }
}

// What a closing bracket with a weight is at the start of `text`: ":1.3)" with white space on both sides of the number.
struct ClosingWeight {
  size_t num_bytes;
  std::string number;  // Signs, points and digits.
};

std::optional<ClosingWeight> take_closing_weight(std::string_view text) {
  std::string_view rest = text.substr(1);
  skip_white_space(rest);
  std::string number;
  if (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) {
    number += rest.front();
    rest.remove_prefix(1);
  }
  const size_t num_signs = number.size();
  while (!rest.empty()) {
    const Utf8Character c = first_character(rest);
    if (c.code_point == U'.') {
      number += '.';
    } else if (is_decimal_digit(c.code_point)) {
      number += static_cast<char>('0' + digit_value(c.code_point));
    } else {
      break;
    }
    rest.remove_prefix(c.num_bytes);
  }
  skip_white_space(rest);
  if (number.size() == num_signs || !rest.starts_with(')')) {
    return std::nullopt;
  }
  return ClosingWeight{text.size() - rest.size() + 1, std::move(number)};
}

std::optional<double> read_number(std::string_view number) {
  if (number.starts_with('+')) {
    number.remove_prefix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() && end == number.data() + number.size() ? std::optional(value) : std::nullopt;
}

// The character at the end of `text`; the last byte of what is ill-formed is U+FFFD. REQUIRES: not empty.
Utf8Character last_character(std::string_view text) {
  size_t back = 1;
  while (back < std::min<size_t>(4, text.size()) && (static_cast<unsigned char>(text[text.size() - back]) & 0xC0) == 0x80) {
    ++back;
  }
  const Utf8Character c = first_character(text.substr(text.size() - back));
  return c.is_valid && c.num_bytes == back ? c : Utf8Character{kReplacementCharacter, 1, false};
}

bool ends_with_word_character(std::string_view text) { return !text.empty() && is_word_character(last_character(text).code_point); }

std::string_view without_spaces_at_end(std::string_view text) {
  while (!text.empty() && is_space(last_character(text).code_point)) {
    text.remove_suffix(last_character(text).num_bytes);
  }
  return text;
}

class WeightParser {
 public:
  explicit WeightParser(std::string_view prompt) : prompt_(prompt), rest_(prompt) {}

  Result<std::vector<PromptPart>> parse() {
    while (!rest_.empty()) {
      DARKROOM_RETURN_IF_ERROR(take_next());
    }
    for (const auto& [open, weight] : {std::pair(&round_, kRoundBracket), std::pair(&square_, kSquareBracket)}) {
      for (const size_t first : *open) {
        multiply_from(first, weight);
      }
    }
    if (parts_.empty()) {
      parts_.push_back({});
    }
    for (const PromptPart& part : parts_) {
      if (!(std::abs(part.weight) <= static_cast<double>(std::numeric_limits<float>::max()))) {
        return Status::invalid_argument("the prompt's weights multiply to a number that is not finite (text):", part.text);
      }
    }
    return merged();
  }

 private:
  Status take_next() {
    switch (rest_.front()) {
      case '\\':
        return take_backslash();
      case '(':
        return open(round_);
      case '[':
        return open(square_);
      case ')':
        return round_.empty() ? take_text(1) : close(round_, kRoundBracket, 1);
      case ']':
        return square_.empty() ? take_text(1) : close(square_, kSquareBracket, 1);
      case ':':
        return take_colon();
      default:
        return take_text(std::min(rest_.find_first_of("\\()[]:"), rest_.size()));
    }
  }

  Status take_backslash() {
    const size_t size = rest_.size() > 1 && std::string_view("()[]\\").find(rest_[1]) != std::string_view::npos ? 2 : 1;
    parts_.push_back({std::string(rest_.substr(1, size - 1))});
    rest_.remove_prefix(size);
    return Status::ok();
  }

  Status open(std::vector<size_t>& brackets) {
    if (round_.size() + square_.size() == kMostOpenBrackets) {
      return Status::invalid_argument(
          "a weighted prompt has more open brackets than it may; write \\( for a bracket that is text (most, byte):", kMostOpenBrackets,
          place());
    }
    brackets.push_back(parts_.size());
    rest_.remove_prefix(1);
    return Status::ok();
  }

  Status close(std::vector<size_t>& brackets, double weight, size_t size) {
    multiply_from(brackets.back(), weight);
    brackets.pop_back();
    rest_.remove_prefix(size);
    return Status::ok();
  }

  Status take_colon() {
    const auto weight = take_closing_weight(rest_);
    if (!weight) {
      return take_text(1);
    }
    if (round_.empty()) {
      return take_text(weight->num_bytes);
    }
    const auto number = read_number(weight->number);
    if (!number) {
      return Status::invalid_argument("the weight of a prompt's bracket must be a number, such as (word:1.3) (byte, weight):", place(),
                                      weight->number);
    }
    return close(round_, *number, weight->num_bytes);
  }

  // Splits at the words BREAK.
  Status take_text(size_t size) {
    std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    for (size_t at = find_break(text); at != std::string_view::npos; at = find_break(text)) {
      parts_.push_back({std::string(without_spaces_at_end(text.substr(0, at)))});
      parts_.push_back({std::string(kBreak), kBreakWeight});
      text.remove_prefix(at + kBreak.size());
      skip_white_space(text);
    }
    parts_.push_back({std::string(text)});
    return Status::ok();
  }

  static size_t find_break(std::string_view text) {
    for (size_t at = text.find(kBreak); at != std::string_view::npos; at = text.find(kBreak, at + 1)) {
      const std::string_view behind = text.substr(at + kBreak.size());
      if (!ends_with_word_character(text.substr(0, at)) && (behind.empty() || !is_word_character(first_character(behind).code_point))) {
        return at;
      }
    }
    return std::string_view::npos;
  }

  void multiply_from(size_t first, double weight) {
    for (size_t i = first; i < parts_.size(); ++i) {
      parts_[i].weight *= weight;
    }
  }

  std::vector<PromptPart> merged() {
    std::vector<PromptPart> merged;
    for (PromptPart& part : parts_) {
      if (!merged.empty() && merged.back().weight == part.weight) {
        merged.back().text += part.text;
      } else {
        merged.push_back(std::move(part));
      }
    }
    return merged;
  }

  size_t place() const { return prompt_.size() - rest_.size(); }

  std::string_view prompt_;
  std::string_view rest_;
  std::vector<PromptPart> parts_;
  std::vector<size_t> round_;  // Of each open bracket the first part within it.
  std::vector<size_t> square_;
};

// Fills chunks with tokens, as tokenize_line does.
class ChunkWriter {
 public:
  explicit ChunkWriter(const ClipTokenizer& tokenizer) : tokenizer_(tokenizer), comma_(tokenizer.find_token(kComma)) {}

  void add(int32_t token, float weight) {
    if (comma_ == token) {
      comma_place_ = tokens_.size();
    } else if (tokens_.size() == kChunkTokens && comma_place_ && tokens_.size() - *comma_place_ <= kCommaLookBack) {
      const auto first_moved = static_cast<std::ptrdiff_t>(*comma_place_ + 1);
      const std::vector<int32_t> moved_tokens(tokens_.begin() + first_moved, tokens_.end());
      const std::vector<float> moved_weights(weights_.begin() + first_moved, weights_.end());
      tokens_.resize(static_cast<size_t>(first_moved));
      weights_.resize(static_cast<size_t>(first_moved));
      end_chunk();
      tokens_ = moved_tokens;
      weights_ = moved_weights;
    }
    if (tokens_.size() == kChunkTokens) {
      end_chunk();
    }
    tokens_.push_back(token);
    weights_.push_back(weight);
  }

  void end_chunk() {
    PromptChunk chunk;
    chunk.ids.assign(1, tokenizer_.start_id());
    chunk.ids.insert(chunk.ids.end(), tokens_.begin(), tokens_.end());
    chunk.ids.push_back(tokenizer_.end_id());
    chunk.ids.resize(ClipTokenizer::kContextLength, tokenizer_.pad_id());
    // A prompt may hold the end token itself: padding begins behind the first.
    const auto end = std::find(chunk.ids.begin(), chunk.ids.end(), tokenizer_.end_id());
    if (tokenizer_.pad_id() != tokenizer_.end_id()) {
      std::fill(end + 1, chunk.ids.end(), tokenizer_.pad_id());
    }
    chunk.weights.assign(1, 1.0F);
    chunk.weights.insert(chunk.weights.end(), weights_.begin(), weights_.end());
    chunk.weights.resize(ClipTokenizer::kContextLength, 1.0F);
    chunks_.push_back(std::move(chunk));
    tokens_.clear();
    weights_.clear();
    comma_place_.reset();
  }

  bool is_full() const { return tokens_.size() == kChunkTokens; }

  std::vector<PromptChunk> finish() {
    if (!tokens_.empty() || chunks_.empty()) {
      end_chunk();
    }
    return std::move(chunks_);
  }

 private:
  const ClipTokenizer& tokenizer_;
  std::optional<int32_t> comma_;
  std::vector<int32_t> tokens_;  // Of the chunk that is being filled.
  std::vector<float> weights_;
  std::optional<size_t> comma_place_;  // The last comma among them.
  std::vector<PromptChunk> chunks_;
};

TokenizedPrompt fill_chunks(const ClipTokenizer& tokenizer, const std::vector<PromptPart>& parts) {
  ChunkWriter writer(tokenizer);
  for (const PromptPart& part : parts) {
    if (part.is_break()) {
      writer.end_chunk();
      continue;
    }
    for (const int32_t token : tokenizer.encode_all(part.text)) {
      writer.add(token, static_cast<float>(part.weight));
    }
  }
  return {.chunks = writer.finish()};
}

TokenizedPrompt fill_one_chunk(const ClipTokenizer& tokenizer, const std::vector<PromptPart>& parts) {
  ChunkWriter writer(tokenizer);
  std::vector<int32_t> lost;
  bool is_over = false;
  for (const PromptPart& part : parts) {
    is_over = is_over || part.is_break();
    if (part.is_break()) {
      continue;
    }
    for (const int32_t token : tokenizer.encode_all(part.text)) {
      is_over = is_over || writer.is_full();
      if (is_over) {
        lost.push_back(token);
      } else {
        writer.add(token, static_cast<float>(part.weight));
      }
    }
  }
  return {.chunks = writer.finish(), .lost_text = tokenizer.decode(lost)};
}

// The ids of ClipTokenizer::encode, whatever a later end token in the caption does to them.
TokenizedPrompt truncate_plain(const ClipTokenizer& tokenizer, std::string_view prompt) {
  PromptChunk chunk;
  chunk.ids.resize(ClipTokenizer::kContextLength);
  tokenizer.encode(prompt, chunk.ids);
  chunk.weights.assign(ClipTokenizer::kContextLength, 1.0F);
  const std::vector<int32_t> tokens = tokenizer.encode_all(prompt);
  TokenizedPrompt result{.chunks = {std::move(chunk)}};
  if (tokens.size() > kChunkTokens) {
    result.lost_text = tokenizer.decode(std::span(tokens).subspan(kChunkTokens));
  }
  return result;
}

}  // namespace

std::string_view prompt_syntax_name(PromptSyntax syntax) { return syntax == PromptSyntax::kPlain ? "plain" : "weighted"; }

std::string_view long_prompts_name(LongPrompts long_prompts) {
  switch (long_prompts) {
    case LongPrompts::kAuto:
      return "auto";
    case LongPrompts::kTruncate:
      return "truncate";
    case LongPrompts::kChunks:
      return "chunks";
  }
  DARKROOM_CHECK(false, "a value outside its enumeration:", static_cast<int>(long_prompts));
}

Result<std::vector<PromptPart>> parse_weighted_prompt(std::string_view prompt) { return WeightParser(prompt).parse(); }

bool PromptChunk::has_weights() const {
  return std::any_of(weights.begin(), weights.end(), [](float weight) { return weight != 1.0F; });
}

Result<TokenizedPrompt> tokenize_prompt(const ClipTokenizer& tokenizer, std::string_view prompt, const PromptReading& reading) {
  const bool is_plain = reading.syntax == PromptSyntax::kPlain;
  const bool is_truncated = reading.long_prompts == LongPrompts::kTruncate || (reading.long_prompts == LongPrompts::kAuto && is_plain);
  if (is_plain && is_truncated) {
    return truncate_plain(tokenizer, prompt);
  }
  std::vector<PromptPart> parts = {{std::string(prompt)}};
  if (!is_plain) {
    DARKROOM_ASSIGN_OR_RETURN(parts, parse_weighted_prompt(prompt));
  }
  return is_truncated ? fill_one_chunk(tokenizer, parts) : fill_chunks(tokenizer, parts);
}

PromptChunk empty_chunk(const ClipTokenizer& tokenizer) {
  ChunkWriter writer(tokenizer);
  return std::move(writer.finish().front());
}

}  // namespace darkroom
