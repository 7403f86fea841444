#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/text/clip_tokenizer.h"
#include "support/source_path.h"

namespace darkroom {

/// The full CLIP vocabulary of models/tiny; loaded once a dialect.
inline const ClipTokenizer& tiny_tokenizer(TokenizerDialect dialect) {
  const auto load = [](TokenizerDialect which) {
    return ClipTokenizer::load(local_files(), source_path("models/tiny/tokenizer"), which).value();
  };
  static const std::unique_ptr<ClipTokenizer> hugging_face = load(TokenizerDialect::kHuggingFace);
  static const std::unique_ptr<ClipTokenizer> open_clip = load(TokenizerDialect::kOpenClip);
  return dialect == TokenizerDialect::kHuggingFace ? *hugging_face : *open_clip;
}

/// All 77 ids.
inline std::vector<int32_t> encode(const ClipTokenizer& tokenizer, std::string_view caption) {
  std::vector<int32_t> ids(ClipTokenizer::kContextLength, -1);
  tokenizer.encode(caption, ids);
  return ids;
}

/// What encode says about the caption.
inline Unported unported(const ClipTokenizer& tokenizer, std::string_view caption) {
  std::vector<int32_t> ids(ClipTokenizer::kContextLength);
  return tokenizer.encode(caption, ids);
}

/// The whole context from the ids between start and end.
inline std::vector<int32_t> padded(std::vector<int32_t> ids) {
  ids.insert(ids.begin(), 49406);
  ids.push_back(49407);
  ids.resize(ClipTokenizer::kContextLength, 0);
  return ids;
}

}  // namespace darkroom
