#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/machine.h"
#include "darkroom/text/clip_tokenizer.h"
#include "self_description.h"
#include "standard_input.h"
#include "verb.h"

namespace darkroom {
namespace {

constexpr size_t kChunk = 4096;  // Captions at a time: their ids take 1.3 MB, the lines of these about twice that.

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

// Waits for one line and takes what has come with it; no line: the end. Who writes a caption and waits for its ids shall get them.
Result<std::vector<std::string>> next_chunk(StandardInput& input, const std::stop_token& stop) {
  if (stop.stop_requested()) {
    return Status::cancelled("stopped while tokenizing");
  }
  std::vector<std::string> lines;
  std::string line;
  do {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_line, input.next_line(line));
    if (!is_line) {
      break;
    }
    lines.push_back(std::move(line));
  } while (lines.size() < kChunk && input.has_line());
  return lines;
}

// The ids of captions, and what was found in each.
class CaptionEncoder {
 public:
  explicit CaptionEncoder(const ClipTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void encode(const std::vector<std::string>& captions) {
    const std::vector<std::string_view> views(captions.begin(), captions.end());
    ids_.resize(captions.size() * ClipTokenizer::kContextLength);
    unported_.resize(captions.size());
    tokenizer_.encode_batch(views, num_threads_, ids_, unported_);
  }
  const std::vector<Unported>& unported() const { return unported_; }
  /// A line a caption.
  std::string text() const {
    std::string text;
    for (auto row = ids_.begin(); row != ids_.end(); row += ClipTokenizer::kContextLength) {
      fmt::format_to(std::back_inserter(text), "{}\n", fmt::join(row, row + ClipTokenizer::kContextLength, " "));
    }
    return text;
  }

 private:
  const ClipTokenizer& tokenizer_;
  const int num_threads_ = num_processors();
  std::vector<int32_t> ids_;
  std::vector<Unported> unported_;
};

Result<int> tokenize_lines(const TokenizeOptions& options, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const TokenizerDialect dialect, parse_tokenizer_dialect(options.dialect));
  DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer, ClipTokenizer::load(local_files(), options.tokenizer, dialect));
  UnportedList unported;
  DARKROOM_RETURN_IF_ERROR(unported.open(options.unported));
  CaptionEncoder encoder(*tokenizer);
  StandardInput input(context.stop);
  int64_t num_captions = 0;
  for (;;) {
    context.summary["captions"] = num_captions;
    context.summary["unported"] = unported.counts();
    const Result<std::vector<std::string>> captions = next_chunk(input, context.stop);
    if (!captions.is_ok()) {
      return captions.status().with_context(fmt::format("after {} captions", num_captions));
    }
    if (captions->empty()) {
      break;
    }
    encoder.encode(*captions);
    const Status printed = print_text(encoder.text());
    if (!printed.is_ok()) {
      return printed.with_context(fmt::format("after {} captions", num_captions));
    }
    for (const Unported found : encoder.unported()) {
      unported.add(++num_captions, found);
    }
  }
  DARKROOM_RETURN_IF_ERROR(unported.close());
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
