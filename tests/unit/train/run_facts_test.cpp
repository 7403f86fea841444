#include "train/run_facts.h"

#include <gtest/gtest.h>

#include <limits>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

TEST(run_facts, tell_the_step_of_the_newest_checkpoint) {
  MemoryFileSystem files;
  EXPECT_EQ(recorded_checkpoint_step(files, "run.json").value(), 0);
  for (const int64_t step : {int64_t{0}, int64_t{12}, std::numeric_limits<int64_t>::max()}) {
    const nlohmann::json facts = {{"step", step}, {"seconds", 1.5}, {"starts", nlohmann::json::array()}};
    ASSERT_TRUE(write_file_atomic(files, "run.json", facts.dump()).is_ok());
    EXPECT_EQ(recorded_checkpoint_step(files, "run.json").value(), step);
  }
}

TEST(run_facts, refuse_a_step_that_is_none) {
  MemoryFileSystem files;
  for (const char* step : {"-1", "0.5", "1e300", "1.0", "18446744073709551615", "\"1\"", "null"}) {
    const std::string text = std::string("{\"step\":") + step + ",\"seconds\":1.5,\"starts\":[]}";
    ASSERT_TRUE(write_file_atomic(files, "run.json", text).is_ok());
    EXPECT_EQ(recorded_checkpoint_step(files, "run.json").status().code(), StatusCode::kCorruptData) << step;
  }
}

}  // namespace
}  // namespace darkroom
