#include "text/byte_pair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "darkroom/files/file_system.h"
#include "support/rounds.h"
#include "support/source_path.h"
#include "text/rank_queue.h"
#include "text/tokenizer_folder.h"

namespace darkroom {
namespace {

using Tokens = std::vector<std::string>;

// A vocabulary over the letters a, b and c. Its merges come in any order, so a token's own merge may have a higher rank than one
// that takes the token, and a token can be made in several ways: nothing of this is in CLIP's vocabulary.
Vocabulary random_vocabulary(std::mt19937& random, size_t num_merges) {
  Tokens tokens = {"a", "b", "c", "a</w>", "b</w>", "c</w>"};
  Tokens merges;
  while (merges.size() < num_merges) {
    const std::string& left = tokens[random() % tokens.size()];
    const std::string& right = tokens[random() % tokens.size()];
    const std::string merge = left + " " + right;
    if (left.ends_with(kEndOfWord) || merge.size() > 20 || std::ranges::find(merges, merge) != merges.end()) {
      continue;
    }
    merges.push_back(merge);
    if (const std::string merged = left + right; std::ranges::find(tokens, merged) == tokens.end()) {
      tokens.push_back(merged);
    }
  }
  if (random() % 2 == 0) {
    std::ranges::shuffle(merges, random);
  }
  return Vocabulary::create(tokens, merges).value();
}

// The definition: looks through the whole word again for each merge.
Tokens encode_plainly(const std::string& word, const std::map<std::string, size_t>& ranks, MergeOrder order) {
  Tokens tokens;
  for (const char letter : word) {
    tokens.emplace_back(1, letter);
  }
  tokens.back() += kEndOfWord;
  const auto rank_at = [&](size_t i) {
    const auto found = ranks.find(tokens[i] + " " + tokens[i + 1]);
    return found != ranks.end() ? found->second : ranks.size();
  };
  while (true) {
    size_t lowest = ranks.size();
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      lowest = std::min(lowest, rank_at(i));
    }
    if (lowest == ranks.size()) {
      return tokens;
    }
    Tokens merged;
    bool may_merge = true;
    for (size_t i = 0; i < tokens.size(); ++i) {
      merged.push_back(tokens[i]);
      if (may_merge && i + 1 < tokens.size() && rank_at(i) == lowest) {
        merged.back() += tokens[++i];
        may_merge = order == MergeOrder::kAllOccurrences;
      }
    }
    tokens = merged;
  }
}

std::string random_word(std::mt19937& random, size_t max_size) {
  const size_t num_letters = 1 + random() % 3;  // Of one letter, too: all pairs overlap.
  std::string word(1 + random() % max_size, 'a');
  for (char& letter : word) {
    letter = static_cast<char>('a' + random() % num_letters);
  }
  return word;
}

TEST(BytePairEncoder, words_of_any_length_are_merged_as_defined) {
  std::mt19937 random(1);
  BytePairEncoder::Workspace workspace;  // One for all vocabularies, as in a thread.
  for (int64_t trial = 0; trial < few_rounds(300); ++trial) {
    const Vocabulary vocabulary = random_vocabulary(random, 1 + random() % 100);
    std::map<std::string, size_t> ranks;
    for (const std::string& merge : vocabulary.merges()) {
      ranks.emplace(merge, ranks.size());
    }
    for (const MergeOrder order : {MergeOrder::kOneAtATime, MergeOrder::kAllOccurrences}) {
      const BytePairEncoder encoder(vocabulary, 0, order);
      for (const size_t max_size : {40u, 40u, 40u, 200u, 200u}) {
        const std::string word = random_word(random, max_size);
        workspace.window_bytes = 1 + random() % 64;
        encoder.encode(word, workspace);
        Tokens got;
        for (const int32_t id : workspace.ids) {
          got.push_back(vocabulary.tokens()[static_cast<size_t>(id)]);
        }
        ASSERT_EQ(got, encode_plainly(word, ranks, order)) << word << ", trial " << trial << ", window of " << workspace.window_bytes;
        const size_t num_ids = random() % 20;
        encoder.encode(word, workspace, num_ids);
        got.resize(std::min(got.size(), num_ids));
        Tokens first;
        for (size_t i = 0; i < got.size(); ++i) {
          first.push_back(vocabulary.tokens()[static_cast<size_t>(workspace.ids.at(i))]);
        }
        ASSERT_EQ(first, got) << word << ", trial " << trial << ", window of " << workspace.window_bytes;
      }
    }
  }
}

TEST(BytePairEncoder, a_pass_over_all_pairs_goes_on_across_the_end_of_a_window) {
  const Vocabulary vocabulary = Vocabulary::create({"a", "b", "c", "a</w>", "b</w>", "c</w>", "ab", "aba"}, {"ab a", "a b"}).value();
  const std::string word = std::string(28, 'c') + "abab" + std::string(20, 'c');
  BytePairEncoder::Workspace workspace;
  workspace.window_bytes = 31;
  const auto pair_at = [&](MergeOrder order) {
    BytePairEncoder(vocabulary, 0, order).encode(word, workspace);
    return std::vector<int32_t>(workspace.ids.begin() + 28, workspace.ids.begin() + 30);
  };
  EXPECT_EQ(pair_at(MergeOrder::kAllOccurrences), (std::vector<int32_t>{6, 6}));
  EXPECT_EQ(pair_at(MergeOrder::kOneAtATime), (std::vector<int32_t>{7, 1}));
}

// Words of tokens of CLIP's vocabulary and of single letters, some of them the same part again and again.
std::string word_of_tokens(std::mt19937& random, const Vocabulary& vocabulary, size_t num_bytes) {
  std::string part;
  const size_t num_parts = 1 + random() % 30;
  for (size_t i = 0; i < num_parts; ++i) {
    std::string_view token = vocabulary.tokens()[random() % vocabulary.tokens().size()];
    token.remove_suffix(token.ends_with(kEndOfWord) ? kEndOfWord.size() : 0);
    part += token_bytes(token).value_or("e");
  }
  std::string word = part;
  while (word.size() < num_bytes) {
    word += random() % 2 == 0 ? part : std::string(1, static_cast<char>('a' + random() % 26));
  }
  return word;
}

TEST(BytePairEncoder, a_long_word_is_merged_a_window_at_a_time) {
  const Vocabulary vocabulary = read_tokenizer_folder(local_files(), source_path("models/tiny/tokenizer")).value().vocabulary;
  std::mt19937 random(4);
  BytePairEncoder::Workspace workspace;
  for (const MergeOrder order : {MergeOrder::kOneAtATime, MergeOrder::kAllOccurrences}) {
    const BytePairEncoder encoder(vocabulary, 0, order);
    for (int64_t trial = 0; trial < few_rounds(300); ++trial) {
      const std::string word = word_of_tokens(random, vocabulary, 200 + random() % 2000);
      workspace.window_bytes = word.size();
      encoder.encode(word, workspace);
      const std::vector<int32_t> want = workspace.ids;
      workspace.window_bytes = 33 + random() % 500;
      encoder.encode(word, workspace);
      ASSERT_EQ(workspace.ids, want) << word << ", window of " << workspace.window_bytes;
    }
    std::string word;
    while (word.size() < 1 << 20) {
      word += "international";
    }
    workspace = {};
    encoder.encode(word, workspace);
    EXPECT_LE(workspace.symbols.capacity(), 2 * workspace.window_bytes) << "the whole word was held";
  }
}

TEST(RankQueue, gives_the_leftmost_of_the_lowest_rank) {
  std::mt19937 random(2);
  RankQueue queue;
  for (const size_t num_ranks : {1u, 63u, 64u, 65u, 1000u, 3u}) {
    queue.reset(num_ranks);
    std::vector<std::pair<int32_t, int32_t>> want;  // Rank and position.
    for (int step = 0; step < 3000; ++step) {
      if (want.empty() || random() % 3 != 0) {
        want.emplace_back(random() % num_ranks, random() % 500);
        queue.push(want.back().first, want.back().second);
      } else {
        const auto least = std::ranges::min_element(want);
        ASSERT_EQ(queue.lowest_rank(), least->first);
        ASSERT_EQ(queue.pop(least->first), least->second);
        want.erase(least);
      }
      ASSERT_EQ(queue.is_empty(), want.empty());
    }
  }
}

TEST(RankQueue, forgets_what_was_left_in_it) {
  RankQueue queue;
  queue.reset(100);
  queue.push(70, 1);
  queue.reset(100);
  EXPECT_TRUE(queue.is_empty());
  EXPECT_FALSE(queue.has(70));
  queue.push(80, 2);
  EXPECT_EQ(queue.lowest_rank(), 80);
}

}  // namespace
}  // namespace darkroom
