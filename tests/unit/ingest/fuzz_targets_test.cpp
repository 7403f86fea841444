#include "fuzz/fuzz_targets.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/fuzz_replay.h"

namespace darkroom {
namespace {

class FuzzTargets : public testing::TestWithParam<FuzzTarget> {};

INSTANTIATE_TEST_SUITE_P(Targets, FuzzTargets, testing::ValuesIn(kFuzzTargets), [](const auto& info) { return info.param.name; });

TEST_P(FuzzTargets, take_their_corpus_and_what_is_made_of_it) {
  const std::vector<std::string> corpus = read_corpus(GetParam().name);
  ASSERT_GE(corpus.size(), 5u);
  EXPECT_EQ(replay(GetParam(), corpus, num_mutations()), std::nullopt);
}

TEST(FuzzReplay, finds_a_planted_fault) {
  const FuzzTarget target{"planted", [](std::string_view bytes) {
                            if (bytes.find('\xFF') != std::string_view::npos) {
                              throw std::runtime_error("planted");
                            }
                          }};
  const std::optional<std::string> found = replay(target, {"abcdefgh", "ijkl"}, 2000);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->starts_with("mutation ") && found->ends_with(": planted")) << *found;
  EXPECT_EQ(replay(target, {"abcdefgh", "ijkl"}, 0), std::nullopt);
}

}  // namespace
}  // namespace darkroom
