#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

/// What the characters of a prompt mean.
enum class PromptSyntax : uint8_t {
  kPlain,     ///< Themselves, every one.
  kWeighted,  ///< Brackets are weights: parse_weighted_prompt.
};

/// What becomes of a prompt with more than kChunkTokens tokens.
enum class LongPrompts : uint8_t {
  kAuto,      ///< kTruncate of plain prompts, kChunks of weighted ones, as the programs do from which these come.
  kTruncate,  ///< The rest is lost, as in CLIP.
  kChunks,    ///< More chunks of 77 ids, whose text states stand one after another.
};

/// How prompts become ids and weights. The default is CLIP's own way.
struct PromptReading {
  PromptSyntax syntax = PromptSyntax::kPlain;
  LongPrompts long_prompts = LongPrompts::kAuto;

  bool operator==(const PromptReading&) const = default;
};

/// "plain", "weighted"; "auto", "truncate", "chunks": the names on the command line and on disk.
std::string_view prompt_syntax_name(PromptSyntax syntax);
std::string_view long_prompts_name(LongPrompts long_prompts);

/// A stretch of a prompt with one weight.
struct PromptPart {
  std::string text;
  double weight = 1.0;

  /// Whether it ends a chunk instead of being text.
  bool is_break() const { return text == "BREAK" && weight == -1.0; }
  bool operator==(const PromptPart&) const = default;
};

/// Brackets that may be open at a time: the one bound that the published rule has not.
inline constexpr size_t kMostOpenBrackets = 256;

/// Splits a prompt at its attention weights, by the rule that AUTOMATIC1111's stable-diffusion-webui publishes
/// (modules/prompt_parser.py, parse_prompt_attention, release 1.10): (a) is a times 1.1, [a] a divided by 1.1, (a:1.3) a times 1.3, each
/// times what is around it; \( \) \[ \] \\ are these characters; any other \ is dropped; brackets that stay open hold to the end; closing
/// ones without an opening one are text, and so is :1.3) there. BREAK as a word is a part of its own, a break, with the white space around
/// it gone; within brackets, where its weight of -1 is multiplied, the rule takes it for text. Neighbours of one weight are one part. Bytes
/// that are no UTF-8 stay as they are. At least one part. Errors: kInvalidArgument naming the place: a weight that is no finite number
/// ("(a:1.2.3)"), more than kMostOpenBrackets open brackets. Takes linear time.
Result<std::vector<PromptPart>> parse_weighted_prompt(std::string_view prompt);

/// Tokens between start and end of a chunk.
inline constexpr int kChunkTokens = ClipTokenizer::kContextLength - 2;

/// What the text encoder is given at a time.
struct PromptChunk {
  std::vector<int32_t> ids;    ///< ClipTokenizer::kContextLength of them.
  std::vector<float> weights;  ///< One an id; 1 for start, end and padding.

  bool has_weights() const;  ///< Whether one of them is not 1.
  bool operator==(const PromptChunk&) const = default;
};

/// A prompt as ids.
struct TokenizedPrompt {
  std::vector<PromptChunk> chunks = {};  ///< At least one.
  std::string lost_text = {};            ///< What truncation left out, as its tokens spell it; else empty.
};

/// Tokenizes a prompt. Truncated plain ones have the ids of ClipTokenizer::encode. Chunks are filled by the rule of
/// stable-diffusion-webui (modules/sd_hijack_clip.py, tokenize_line, release 1.10, with its default look-back): each part is tokenized by
/// itself; a chunk takes kChunkTokens tokens; where the next token would not fit and a comma is among the last 20, what follows that comma
/// moves to the next chunk; a break ends a chunk, also an empty one. Truncated weighted prompts keep what comes before the first break,
/// kChunkTokens tokens of it. Errors: those of parse_weighted_prompt.
Result<TokenizedPrompt> tokenize_prompt(const ClipTokenizer& tokenizer, std::string_view prompt, const PromptReading& reading);

/// The chunk of an empty prompt: what shorter prompts are filled up with beside longer ones.
PromptChunk empty_chunk(const ClipTokenizer& tokenizer);

}  // namespace darkroom
