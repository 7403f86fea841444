#pragma once

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fuzz/fuzz_targets.h"
#include "support/byte_mutations.h"
#include "support/rounds.h"
#include "support/source_path.h"

namespace darkroom {

inline constexpr uint64_t kMutationSeed = 20261123;

// More than the test run has time for: DARKROOM_MUTATIONS=1000000. DARKROOM_KEEP_MUTATION=PATH: each is written there before it is tried,
// so that one that ends the program is left.
inline uint64_t num_mutations() {
  const char* asked = std::getenv("DARKROOM_MUTATIONS");
  return asked == nullptr ? static_cast<uint64_t>(rounds(2000)) : std::stoull(asked);
}

inline void keep_mutation(const std::string& bytes) {
  if (const char* path = std::getenv("DARKROOM_KEEP_MUTATION")) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
}

/// In the order of their names.
inline std::vector<std::string> read_corpus(const std::string& name) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/fuzz/corpus/" + name))) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::vector<std::string> corpus;
  for (auto& [path, bytes] : files) {
    corpus.push_back(std::move(bytes));
  }
  return corpus;
}

inline std::optional<std::string> failure_with(const FuzzTarget& target, const std::string& bytes) {
  keep_mutation(bytes);
  try {
    target.take(bytes);
    return std::nullopt;
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

/// The first that a target does not take: which one, and why.
inline std::optional<std::string> replay(const FuzzTarget& target, const std::vector<std::string>& corpus, uint64_t count) {
  for (size_t i = 0; i < corpus.size(); ++i) {
    if (const auto failure = failure_with(target, corpus[i])) {
      return fmt::format("original {}: {}", i, *failure);
    }
  }
  for (uint64_t number = 0; number < count; ++number) {
    if (const auto failure = failure_with(target, mutate_bytes(corpus, kMutationSeed, number))) {
      return fmt::format("mutation {}: {}", number, *failure);
    }
  }
  return std::nullopt;
}

}  // namespace darkroom
