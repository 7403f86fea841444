#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// How a caption is cleaned and padded before and after byte-pair encoding (docs/text.md).
enum class TokenizerDialect {
  kHuggingFace,  ///< transformers 5's CLIPTokenizer: NFC, white space, lower case; padded with the folder's pad token.
  kOpenClip,     ///< open_clip's SimpleTokenizer, with which SD2 was trained: ftfy, HTML entities; padded with id 0.
};

/// "hf" or "open_clip", the names on the command line and on disk.
std::string_view tokenizer_dialect_name(TokenizerDialect dialect);
/// Errors: kInvalidArgument naming the unknown dialect.
Result<TokenizerDialect> parse_tokenizer_dialect(std::string_view name);

/// What a caption holds that open_clip's own cleaning would treat otherwise, so that its ids may differ from open_clip's.
enum class Unported : uint8_t {
  kNothing,
  kMojibake,      ///< Text that ftfy may repair as UTF-8 read in another encoding ("schÃ¶n"); the repair is not ported.
  kNewCharacter,  ///< A letter, number or mark newer than Unicode 14: the reference's answer depends on its Python.
};
/// "nothing", "mojibake" or "new_character".
std::string_view unported_name(Unported unported);

/// CLIP's lower-case byte-pair tokenizer: captions to 77 ids.
/// Thread safety: immutable after load; encode may be called from any number of threads.
class ClipTokenizer {
 public:
  static constexpr int kContextLength = 77;

  /// Reads a tokenizer folder: vocab.json + merges.txt, or tokenizer.json where one of these is absent; which strings
  /// are special and which one pads comes from tokenizer_config.json and special_tokens_map.json, as transformers reads them.
  /// Errors: kNotFound (no vocabulary in `folder`), kCorruptData (no JSON, ids with holes, a merge of unknown tokens),
  /// kFailedPrecondition (a tokenizer of another kind, or a special token with strip rules, which CLIP's have not).
  static Result<std::unique_ptr<ClipTokenizer>> load(FileSystem& files, const std::string& folder, TokenizerDialect dialect);

  ~ClipTokenizer();
  ClipTokenizer(const ClipTokenizer&) = delete;
  ClipTokenizer& operator=(const ClipTokenizer&) = delete;

  /// Writes start, the caption's tokens, end and padding; a longer caption is cut so that end is the last id. Bytes that
  /// are no UTF-8 count as U+FFFD. Returns what keeps the ids from being promised equal to the reference's: in the
  /// dialect hf always kNothing. REQUIRES: ids.size() == kContextLength.
  Unported encode(std::string_view caption, std::span<int32_t> ids) const;

  /// encode of many captions, spread over `num_threads` threads (the caller's is one; fewer where no more can be started): caption i fills
  /// ids [i * kContextLength, (i + 1) * kContextLength) and unported[i]. The same ids for any number of threads. REQUIRES: room for all of
  /// them, num_threads >= 1.
  void encode_batch(std::span<const std::string_view> captions, int num_threads, std::span<int32_t> ids,
                    std::span<Unported> unported) const;

  /// All tokens of a caption, however many: no start, no end, no padding.
  std::vector<int32_t> encode_all(std::string_view caption) const;
  /// What tokens spell, words separated by spaces: clean, lower-case text. REQUIRES: ids of this vocabulary.
  std::string decode(std::span<const int32_t> ids) const;

  TokenizerDialect dialect() const;
  /// Number of ids; the text model's embedding needs at least as many rows.
  int vocabulary_size() const;
  int32_t start_id() const;
  int32_t end_id() const;
  int32_t pad_id() const;
  /// The id of a token as the vocabulary spells it (",</w>"); none where it has no such token.
  std::optional<int32_t> find_token(std::string_view token) const;
  /// SHA-256 (hex) over everything that decides the ids: vocabulary, merges, special tokens, dialect, algorithm version.
  const std::string& fingerprint() const;

  /// Writes the folder that transformers and diffusers open: vocab.json, merges.txt, tokenizer.json,
  /// tokenizer_config.json and special_tokens_map.json. Deterministic bytes; loads back with the same fingerprint.
  Status save(FileSystem& files, const std::string& folder) const;

 private:
  struct State;
  explicit ClipTokenizer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace darkroom
