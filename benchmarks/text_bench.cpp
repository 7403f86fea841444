#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "darkroom/text/clip_tokenizer.h"
#include "stopwatch_server.h"

// Times the tokenizer on captions held in memory, for benchmarks/bench_tokens.py:
//   text_bench TOKENIZER_FOLDER CAPTIONS_FILE RESULTS_FOLDER
// Tasks: hf and open_clip. One run encodes every caption (one a line) once. At the start the ids go to RESULTS_FOLDER as
// int32, to be checked.
namespace darkroom {
namespace {

struct Captions {
  std::vector<std::string> lines;
  std::vector<int32_t> ids;

  void encode(const ClipTokenizer& tokenizer) {
    constexpr size_t kLength = ClipTokenizer::kContextLength;
    ids.resize(lines.size() * kLength);
    for (size_t i = 0; i < lines.size(); ++i) {
      tokenizer.encode(lines[i], std::span(ids).subspan(i * kLength, kLength));
    }
  }
};

int run(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: text_bench TOKENIZER_FOLDER CAPTIONS_FILE RESULTS_FOLDER\n";
    return 2;
  }
  Captions captions;
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) {
    captions.lines.push_back(line);
  }
  const auto hugging_face = ClipTokenizer::load(local_files(), argv[1], TokenizerDialect::kHuggingFace).value();
  const auto open_clip = ClipTokenizer::load(local_files(), argv[1], TokenizerDialect::kOpenClip).value();
  for (const auto* tokenizer : {hugging_face.get(), open_clip.get()}) {
    captions.encode(*tokenizer);
    std::ofstream out(std::string(argv[3]) + "/" + std::string(tokenizer_dialect_name(tokenizer->dialect())), std::ios::binary);
    out.write(reinterpret_cast<const char*>(captions.ids.data()), static_cast<std::streamsize>(captions.ids.size() * sizeof(int32_t)));
  }
  return serve_timings([&](const std::string& name) -> std::function<void()> {
    if (name == "hf") {
      return [&] { captions.encode(*hugging_face); };
    }
    if (name == "open_clip") {
      return [&] { captions.encode(*open_clip); };
    }
    return {};
  });
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) { return darkroom::run(argc, argv); }
