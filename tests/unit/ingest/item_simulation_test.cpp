#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "item_world.h"
#include "support/rounds.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

// More than the test run has time for: DARKROOM_SEEDS=100000.
uint64_t num_seeds() {
  const char* asked = std::getenv("DARKROOM_SEEDS");
  return asked == nullptr ? static_cast<uint64_t>(few_rounds(2000)) : std::stoull(asked);
}

TEST(ItemSimulation, every_piece_is_written_once_in_order_within_memory_whatever_happens) {
  const TemporaryFolder scratch;
  int64_t num_spilled = 0, num_pauses = 0, num_given_back = 0, num_over = 0;
  for (uint64_t seed = 0; seed < num_seeds(); ++seed) {
    World world(seed, scratch.path());
    ASSERT_NO_THROW(world.run()) << "seed " << seed;
    num_spilled += world.num_spilled();
    num_pauses += world.num_pauses();
    num_given_back += world.num_given_back();
    num_over += world.went_over() ? 1 : 0;
  }
  // The seeds reach what they are for.
  EXPECT_GT(num_spilled, 0);
  EXPECT_GT(num_pauses, 0);
  EXPECT_GT(num_given_back, 0);
  EXPECT_GT(num_over, 0);
  RecordProperty("spilled", std::to_string(num_spilled));
  RecordProperty("pauses", std::to_string(num_pauses));
  RecordProperty("given_back", std::to_string(num_given_back));
  RecordProperty("over_the_limit", std::to_string(num_over));
}

// What the first of `seeds` that meets the mistake says about it; "" if none does.
std::string found_by(World::Fault fault, uint64_t seeds) {
  const TemporaryFolder scratch;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    try {
      World(seed, scratch.path(), fault).run();
    } catch (const std::runtime_error& failure) {
      const std::string message = failure.what();
      const size_t from = message.find(": ") + 2;
      return message.substr(from, message.find(" (") - from);
    }
  }
  return "";
}

TEST(ItemSimulation, finds_mistakes_that_were_planted) {
  constexpr uint64_t kSeeds = 2000;
  EXPECT_EQ(found_by(World::Fault::kWaitsForEver, kSeeds), "nothing can move");
  EXPECT_EQ(found_by(World::Fault::kHoldsItsPlace, kSeeds), "nothing can move");
  EXPECT_EQ(found_by(World::Fault::kSleepsThrough, kSeeds), "nothing can move");
  EXPECT_EQ(found_by(World::Fault::kLosesPiece, kSeeds), "nothing can move");
  EXPECT_EQ(found_by(World::Fault::kMixesUpBodies, kSeeds), "another body than was fetched");
  EXPECT_EQ(found_by(World::Fault::kGrantsToItself, kSeeds), "bytes that nobody granted");
}

}  // namespace
}  // namespace darkroom
