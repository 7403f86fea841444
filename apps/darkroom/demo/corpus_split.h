#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corpus_pictures.h"
#include "darkroom/core/result.h"

namespace darkroom {

/// Rows of the corpus: those that training may see, and those of held_out.json (docs/corpus.md), which neither the shipped
/// weights nor the demo's own have seen.
struct CorpusSplit {
  std::vector<size_t> training;
  std::vector<size_t> held_out;
};

/// The captions of held_out.json. Errors: kCorruptData.
Result<std::set<std::string>> parse_held_out(std::string_view held_out_json);

/// Errors: kNotFound naming a held-out caption that the corpus lacks.
Result<CorpusSplit> split_corpus(const CorpusPictures& corpus, const std::set<std::string>& held_out);

/// `count` of `rows`, by the order that (seed, name) shuffles them into (draw_rows); all of them, shuffled, when they are fewer.
std::vector<size_t> draw_from(std::span<const size_t> rows, uint64_t seed, std::string_view name, size_t count);

/// The rows that the demo trains on, in the corpus's order: those of `prompts`, filled up to `count` with training rows that
/// `seed` draws. Errors: kNotFound (a prompt is no caption), kInternal (a prompt is held out).
Result<std::vector<size_t>> choose_subset_rows(const CorpusPictures& corpus, const CorpusSplit& split, std::span<const std::string> prompts,
                                               uint64_t seed, size_t count);

}  // namespace darkroom
