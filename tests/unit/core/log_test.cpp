#include "darkroom/core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "support/said_by_child.h"

namespace darkroom {
namespace {

using ::testing::MatchesRegex;

TEST(Log, a_line_has_its_time_and_its_level) {
  const std::string said = said_by_child(ChildStderr::kPipe, [] {
    log_info("{} rows", 5);
    log_warning("slow");
    log_error("broken");
  });
  const std::string time = "[0-9]+-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z ";
  EXPECT_THAT(said, MatchesRegex(time + "5 rows\n" + time + "warning: slow\n" + time + "error: broken\n"));
}

TEST(Log, a_line_for_a_file_has_its_date_and_time_in_utc_wherever_the_machine_is) {
  const std::time_t before = std::time(nullptr);
  const std::string said = said_by_child(ChildStderr::kPipe, [] {
    setenv("TZ", "XYZ-13:45", 1);
    tzset();
    log_info("here");
  });
  std::tm parts{};
  ASSERT_NE(strptime(said.c_str(), "%Y-%m-%dT%H:%M:%SZ here", &parts), nullptr) << said;
  const std::time_t said_at = timegm(&parts);
  EXPECT_GE(said_at, before);
  EXPECT_LE(said_at, std::time(nullptr));
}

TEST(Log, progress_is_shown_on_a_terminal_only) {
  const std::string said = said_by_child(ChildStderr::kPipe, [] {
    show_progress("5 of 7");
    log_info("{}", stderr_is_terminal() ? "terminal" : "no terminal");
  });
  EXPECT_THAT(said, MatchesRegex("[0-9TZ:-]+ no terminal\n"));
}

TEST(Log, lines_scroll_above_a_terminals_progress) {
  const std::string said = said_by_child(ChildStderr::kTerminal, [] {
    show_progress("5 of 7");
    log_info("{}", stderr_is_terminal() ? "terminal" : "no terminal");
    show_progress("");
    log_info("done");
  });
  EXPECT_THAT(said, MatchesRegex("\r\x1b\\[2K5 of 7"
                                 "\r\x1b\\[2K[0-9:]+ terminal\n5 of 7"
                                 "\r\x1b\\[2K[0-9:]+ done\n"));
}

}  // namespace
}  // namespace darkroom
