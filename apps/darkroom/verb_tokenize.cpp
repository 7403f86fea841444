#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "darkroom/text/clip_tokenizer.h"
#include "verb.h"

namespace darkroom {
namespace {

struct TokenizeOptions {
  std::string tokenizer;
  std::string dialect = "hf";
};

Result<int> tokenize_lines(const TokenizeOptions& options, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const TokenizerDialect dialect, parse_tokenizer_dialect(options.dialect));
  DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer, ClipTokenizer::load(local_files(), options.tokenizer, dialect));
  int64_t num_captions = 0;
  std::array<int32_t, ClipTokenizer::kContextLength> ids;
  std::string out;
  for (std::string line; std::getline(std::cin, line); ++num_captions) {
    if (context.stop.stop_requested())
      return Status::cancelled("tokenize was stopped after captions:", num_captions);
    tokenizer->encode(line, ids);
    out = fmt::format("{}\n", fmt::join(ids, " "));
    if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size()) {
      return Status::unavailable("tokenize: writing to the standard output failed after captions:", num_captions);
    }
  }
  if (std::fflush(stdout) != 0)
    return Status::unavailable("tokenize: writing to the standard output failed after captions:", num_captions);
  context.summary["captions"] = num_captions;
  return 0;
}

}  // namespace

Verb add_tokenize_verb(CLI::App& program) {
  CLI::App* command = program.add_subcommand("tokenize", "one caption a line on stdin -> its 77 token ids a line on stdout");
  auto options = std::make_shared<TokenizeOptions>();  // Shared by the flags and the action.
  command->add_option("--tokenizer", options->tokenizer, "folder with vocab.json + merges.txt or tokenizer.json")->required();
  command->add_option("--tokenizer-dialect", options->dialect, "cleaning and padding: hf or open_clip")->capture_default_str();
  return {command, [options](VerbContext& context) { return tokenize_lines(*options, context); }};
}

}  // namespace darkroom
