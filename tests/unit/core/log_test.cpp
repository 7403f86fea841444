#include "darkroom/core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(said, MatchesRegex("[0-2][0-9]:[0-5][0-9]:[0-6][0-9] 5 rows\n"
                                 "[0-2][0-9]:[0-5][0-9]:[0-6][0-9] warning: slow\n"
                                 "[0-2][0-9]:[0-5][0-9]:[0-6][0-9] error: broken\n"));
}

TEST(Log, progress_is_shown_on_a_terminal_only) {
  const std::string said = said_by_child(ChildStderr::kPipe, [] {
    show_progress("5 of 7");
    log_info("{}", stderr_is_terminal() ? "terminal" : "no terminal");
  });
  EXPECT_THAT(said, MatchesRegex("[0-9:]+ no terminal\n"));
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
