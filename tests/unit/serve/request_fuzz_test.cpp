#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fuzz/fuzz_targets.h"
#include "support/fuzz_replay.h"

namespace darkroom {
namespace {

TEST(RequestBytes, of_any_kind_are_read_in_one_way_however_they_come) {
  const std::vector<std::string> corpus = read_corpus(kRequestTarget.name);
  ASSERT_GE(corpus.size(), 20u);
  EXPECT_EQ(replay(kRequestTarget, corpus, num_mutations()), std::nullopt);
}

}  // namespace
}  // namespace darkroom
