#include "corpus_split.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "darkroom/measure/retrieval.h"

namespace darkroom {

Result<std::set<std::string>> parse_held_out(std::string_view held_out_json) {
  try {
    return nlohmann::json::parse(held_out_json).at("captions").get<std::set<std::string>>();
  } catch (const nlohmann::json::exception& error) {
    return Status::corrupt_data("the corpus's held_out.json is not as docs/corpus.md says:", error.what());
  }
}

Result<CorpusSplit> split_corpus(const CorpusPictures& corpus, const std::set<std::string>& held_out) {
  for (const std::string& caption : held_out) {
    DARKROOM_RETURN_IF_ERROR(corpus.find_caption(caption).status().with_context("looking for the held-out pictures"));
  }
  CorpusSplit split;
  for (size_t row = 0; row < corpus.size(); ++row) {
    (held_out.contains(corpus.captions[row]) ? split.held_out : split.training).push_back(row);
  }
  return split;
}

std::vector<size_t> draw_from(std::span<const size_t> rows, uint64_t seed, std::string_view name, size_t count) {
  std::vector<size_t> drawn = draw_rows(seed, name, rows.size(), std::min(count, rows.size()));
  std::transform(drawn.begin(), drawn.end(), drawn.begin(), [rows](size_t place) { return rows[place]; });
  return drawn;
}

Result<std::vector<size_t>> choose_subset_rows(const CorpusPictures& corpus, const CorpusSplit& split, std::span<const std::string> prompts,
                                               uint64_t seed, size_t count) {
  std::set<size_t> chosen;
  for (const std::string& prompt : prompts) {
    DARKROOM_ASSIGN_OR_RETURN(const size_t row, corpus.find_caption(prompt));
    if (std::find(split.held_out.begin(), split.held_out.end(), row) != split.held_out.end()) {
      return Status::internal("a prompt that is trained on is held out from training:", prompt);
    }
    chosen.insert(row);
  }
  for (const size_t row : draw_from(split.training, seed, "demo/subset", split.training.size())) {
    if (chosen.size() >= count) {
      break;
    }
    chosen.insert(row);
  }
  return std::vector<size_t>(chosen.begin(), chosen.end());
}

}  // namespace darkroom
