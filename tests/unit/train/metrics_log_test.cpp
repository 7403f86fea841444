#include "darkroom/train/metrics_log.h"

#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

void append(FileSystem& files, int64_t steps_done, int64_t first, int64_t last) {
  auto log = MetricsLog::open(files, "metrics.jsonl", steps_done);
  ASSERT_TRUE(log.is_ok()) << log.status().to_string();
  for (int64_t step = first; step <= last; ++step) {
    ASSERT_TRUE((*log)->append({{"step", step}, {"loss", 0.1 * static_cast<double>(step)}}).is_ok());
  }
  ASSERT_TRUE((*log)->sync().is_ok());
}

TEST(metrics_log, a_resumed_run_leaves_the_lines_of_an_undisturbed_one) {
  MemoryFileSystem undisturbed;
  append(undisturbed, 0, 1, 9);
  MemoryFileSystem resumed;
  append(resumed, 0, 1, 7);
  append(resumed, 4, 5, 9);
  EXPECT_EQ(*read_file(resumed, "metrics.jsonl"), *read_file(undisturbed, "metrics.jsonl"));
}

TEST(metrics_log, cuts_a_torn_last_line_and_what_is_no_line) {
  MemoryFileSystem files;
  ASSERT_TRUE(write_file_atomic(files, "metrics.jsonl", "{\"step\":1,\"loss\":2.0}\nnonsense\n{\"loss\":1}\n{\"step\":2,\"lo").is_ok());
  ASSERT_TRUE(MetricsLog::open(files, "metrics.jsonl", 5).is_ok());
  EXPECT_EQ(*read_file(files, "metrics.jsonl"), "{\"step\":1,\"loss\":2.0}\n");
}

TEST(metrics_log, numbers_come_back_bit_for_bit) {
  MemoryFileSystem files;
  const double loss = 0.1 + 0.2;
  {
    auto log = MetricsLog::open(files, "metrics.jsonl", 0);
    ASSERT_TRUE((*log)->append({{"step", 1}, {"loss", loss}}).is_ok());
  }
  const auto line = nlohmann::json::parse(*read_file(files, "metrics.jsonl"));
  EXPECT_EQ(line["loss"].get<double>(), loss);
}

TEST(metrics_log, means_of_the_first_and_last_fifty) {
  std::string text;
  for (int step = 1; step <= 120; ++step) {
    text += "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(step) + "}\n";
  }
  EXPECT_EQ(first_and_last_loss(text), std::pair(25.5, 95.5));
  EXPECT_EQ(first_and_last_loss(""), std::pair(0.0, 0.0));
  EXPECT_EQ(first_and_last_loss("{\"step\":1,\"loss\":3}\n"), std::pair(3.0, 3.0));
  EXPECT_EQ(first_and_last_loss("{\"step\":1,\"loss\":null}\n{\"step\":2,\"loss\":\"3\"}\n{\"step\":3,\"loss\":4}\n"), std::pair(4.0, 4.0));
  const std::string four = text.substr(0, text.find("{\"step\":5,"));
  EXPECT_EQ(first_and_last_loss(four), std::pair(1.5, 3.5));  // Halves: the same lines twice would show no progress.
}

}  // namespace
}  // namespace darkroom
