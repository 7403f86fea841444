#include "darkroom/core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "support/said_by_child.h"
#include "support/terminal_screen.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
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

TEST(Log, what_others_wrote_steers_no_terminal) {
  const std::string said = said_by_child(ChildStderr::kPipe, [] {
    log_warning("{}",
                "a\x1b[31mb\x1b]0;c\x07\td\ne\xC2\x9B"
                "2Jf");
  });
  EXPECT_THAT(said, EndsWith("warning: a?[31mb?]0;c?\td\ne?2Jf\n"));
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

/// The rows of a terminal of such a size after `work`, "time" in the place of each time.
template <typename Work>
std::vector<std::string> rows_after(unsigned short rows, unsigned short columns, Work work) {
  TerminalScreen screen(rows, columns);
  screen.write(said_by_child(ChildStderr::kTerminal, work, {.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0}));
  std::vector<std::string> shown = screen.rows();
  for (std::string& row : shown) {
    if (row.size() > 9 && row[2] == ':' && row[5] == ':') {
      row = "time" + row.substr(8);
    }
  }
  return shown;
}

TEST(Log, several_lines_of_progress_stay_below_the_log) {
  EXPECT_THAT(rows_after(24, 80,
                         [] {
                           log_info("first");
                           show_progress("read 1\nwrite 0\njob 0 of 7");
                           log_info("second");
                           show_progress("read 2\nwrite 1\njob 1 of 7");
                           log_info("third");
                         }),
              ElementsAre("time first", "time second", "time third", "read 2", "write 1", "job 1 of 7"));
}

TEST(Log, progress_that_loses_lines_or_all_of_them_leaves_no_remains) {
  const auto shrink = [] {
    show_progress("read 1\nwrite 0\njob 0 of 7");
    show_progress("a\nb");
    log_info("between");
    show_progress("c");
  };
  EXPECT_THAT(rows_after(24, 80, shrink), ElementsAre("time between", "c"));
  EXPECT_THAT(rows_after(24, 80,
                         [&] {
                           shrink();
                           show_progress("read 1\nwrite 0\njob 0 of 7");
                           show_progress("");
                           log_info("done");
                         }),
              ElementsAre("time between", "time done"));
}

TEST(Log, a_terminal_of_few_rows_shows_the_last_lines_of_progress) {
  for (const int rows : {1, 2, 3, 4}) {
    const auto shown = rows_after(static_cast<unsigned short>(rows), 80, [] {
      show_progress("a\nb\nc\nd 0");
      log_info("said");
      show_progress("a\nb\nc\nd 1");
    });
    std::vector<std::string> want = {"time said", "a", "b", "c", "d 1"};
    want.erase(want.begin() + 1, want.end() - std::max(1, rows - 1));
    EXPECT_EQ(shown, want) << rows;
  }
}

TEST(Log, progress_is_cut_to_the_columns_between_characters) {
  for (const unsigned short columns : {1, 2, 7, 8, 10, 11, 13, 30}) {
    const auto shown = rows_after(24, columns, [] {
      show_progress("\u00e4bcdefgh\n\u00e4bcdefghij");
      show_progress("\u00e4bcdefgh\n\u00e4bcdefghij");
    });
    const auto cut = [](const std::string& text, int num_characters) {  // All but the first character have one byte.
      return num_characters <= 0 ? "" : text.substr(0, static_cast<size_t>(num_characters) + 1);
    };
    std::vector<std::string> want = {cut("\u00e4bcdefgh", columns - 1), cut("\u00e4bcdefghij", columns - 3)};
    while (!want.empty() && want.back().empty()) {
      want.pop_back();
    }
    EXPECT_EQ(shown, want) << columns;
  }
}

TEST(Log, what_a_terminal_echoes_at_the_cursor_moves_no_progress) {
  const auto shown = rows_after(24, 10, [] {
    show_progress("stage stage stage\njob job job job");
    static_cast<void>(!::write(STDERR_FILENO, "^C", 2));
    show_progress("stage stage stage\njob job job job");
    log_info("x");
    show_progress("");
  });
  EXPECT_THAT(shown, ElementsAre("time x"));
}

// The terminal wraps what is on it anew: two lines of nine and eight characters take three rows of seven.
TEST(Log, lines_that_a_narrowed_terminal_has_wrapped_are_erased) {
  const std::string said = said_by_child(ChildStderr::kTerminal,
                                         [] {
                                           show_progress("123456789\n12345");
                                           const winsize narrow{.ws_row = 24, .ws_col = 7, .ws_xpixel = 0, .ws_ypixel = 0};
                                           ioctl(STDERR_FILENO, TIOCSWINSZ, &narrow);
                                           show_progress("1\n2");
                                         },
                                         {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0});
  TerminalScreen screen(24, 7);
  screen.write(said);
  EXPECT_THAT(screen.rows(), ElementsAre("1", "2"));
}

}  // namespace
}  // namespace darkroom
