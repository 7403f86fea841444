#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "darkroom/text/clip_tokenizer.h"
#include "standard_input.h"
#include "verb.h"

namespace darkroom {
namespace {

struct TokenizeOptions {
  std::string tokenizer;
  std::string dialect = "hf";
  std::string unported;
};

// Counts the captions that open_clip itself would clean otherwise, and lists them for who asks.
class UnportedList {
 public:
  Status open(const std::string& path) {
    if (path.empty()) {
      return Status::ok();
    }
    file_.open(path, std::ios::trunc);
    return file_ ? Status::ok() : Status::unavailable("cannot write the list of unported captions:", path);
  }
  void add(int64_t line, Unported unported) {
    if (unported == Unported::kNothing) {
      return;
    }
    ++counts_[std::string(unported_name(unported))];
    if (file_.is_open()) {
      file_ << line << '\t' << unported_name(unported) << '\n';
    }
  }
  Status close() {
    if (!file_.is_open()) {
      return Status::ok();
    }
    file_.close();
    return file_ ? Status::ok() : Status::unavailable("cannot write the list of unported captions to its end");
  }
  const std::map<std::string, int64_t>& counts() const { return counts_; }

 private:
  std::ofstream file_;
  std::map<std::string, int64_t> counts_ = {{"mojibake", 0}, {"new_character", 0}};
};

Result<int> tokenize_lines(const TokenizeOptions& options, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const TokenizerDialect dialect, parse_tokenizer_dialect(options.dialect));
  DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer, ClipTokenizer::load(local_files(), options.tokenizer, dialect));
  UnportedList unported;
  DARKROOM_RETURN_IF_ERROR(unported.open(options.unported));
  context.summary["captions"] = 0;
  int64_t num_captions = 0;
  StandardInput input(context.stop);
  std::array<int32_t, ClipTokenizer::kContextLength> ids;
  for (std::string line;; ++num_captions) {
    context.summary["captions"] = num_captions;
    // Who writes a caption and waits for its ids shall get them.
    if (!input.has_line() && std::fflush(stdout) != 0) {
      return Status::unavailable("cannot write to the standard output; captions:", num_captions);
    }
    const Result<bool> is_line = input.next_line(line);
    if (!is_line.is_ok()) {
      return is_line.status().with_context(fmt::format("after {} captions", num_captions));
    }
    if (!*is_line) {
      break;
    }
    unported.add(num_captions + 1, tokenizer->encode(line, ids));
    const std::string out = fmt::format("{}\n", fmt::join(ids, " "));
    if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size()) {
      return Status::unavailable("cannot write to the standard output; captions:", num_captions);
    }
  }
  DARKROOM_RETURN_IF_ERROR(unported.close());
  context.summary["unported"] = unported.counts();
  return 0;
}

}  // namespace

void add_tokenize_verb(CommandLine& line) {
  const auto options = std::make_shared<TokenizeOptions>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("tokenize", "one caption a line on stdin -> its 77 token ids a line on stdout");
  verb.flag("--tokenizer", value::folder(options->tokenizer, "DIR"), "folder with vocab.json + merges.txt or tokenizer.json").required();
  verb.flag("--tokenizer-dialect", value::choice(options->dialect, {"hf", "open_clip"}), "cleaning and padding");
  verb.flag("--unported", value::path(options->unported, "FILE", "none"),
            "write line number and kind of captions that open_clip would clean otherwise (docs/text.md)");
  verb.example("echo 'a red apple' | darkroom tokenize --tokenizer models/tiny/tokenizer", "the ids of a caption");
  verb.run([options](VerbContext& context) { return tokenize_lines(*options, context); });
}

}  // namespace darkroom
