#pragma once

#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "vocabulary.h"

namespace darkroom {

/// A string that is one token wherever it stands in a caption.
struct SpecialToken {
  std::string content;
  int32_t id = 0;
  bool is_normalized = false;  ///< Looked for after cleaning; else in the caption as it came.
};

/// What a tokenizer folder says, however it says it.
struct TokenizerFolder {
  Vocabulary vocabulary;
  std::vector<SpecialToken> special_tokens;
  int32_t start_id = 0;
  int32_t end_id = 0;
  int32_t pad_id = 0;
  int32_t unknown_id = 0;
};

/// Reads a folder as transformers 5's CLIPTokenizer does; errors as ClipTokenizer::load.
Result<TokenizerFolder> read_tokenizer_folder(FileSystem& files, const std::string& folder);

/// Writes the five files of the contract of ClipTokenizer::save.
Status write_tokenizer_folder(FileSystem& files, const std::string& folder, const TokenizerFolder& contents);

}  // namespace darkroom
