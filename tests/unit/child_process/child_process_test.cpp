#include "demo/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>
#include <thread>

namespace darkroom {
namespace {

using ::testing::EndsWith;

TEST(ChildProcess, hands_back_exit_code_and_both_outputs) {
  const auto output = run_child({"/bin/sh", "-c", "echo out; echo err >&2; exit 7"}, {});
  ASSERT_TRUE(output.is_ok()) << output.status().to_string();
  EXPECT_EQ(output->exit_code, 7);
  EXPECT_EQ(output->text, "out\nerr\n");
}

TEST(ChildProcess, keeps_the_end_of_a_long_output) {
  const auto output = run_child({"/bin/sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; echo last"}, {});
  ASSERT_TRUE(output.is_ok());
  EXPECT_LE(output->text.size(), 8192U);
  EXPECT_THAT(output->text, EndsWith("xlast\n"));
}

TEST(ChildProcess, tells_which_signal_ended_it) { EXPECT_EQ(run_child({"/bin/sh", "-c", "kill -9 $$"}, {})->exit_code, 128 + SIGKILL); }

TEST(ChildProcess, starts_with_unblocked_signals) {
  int exit_code = 0;
  std::thread([&exit_code] {  // As in the program, where every thread blocks them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    exit_code = run_child({"/bin/sh", "-c", "kill -15 $$; sleep 10"}, {})->exit_code;
  })
      .join();
  EXPECT_EQ(exit_code, 128 + SIGTERM);
}

TEST(ChildProcess, a_stop_request_ends_it_at_once) {
  std::stop_source source;
  source.request_stop();
  EXPECT_EQ(run_child({"/bin/sh", "-c", "sleep 600"}, source.get_token()).status().code(), StatusCode::kCancelled);
}

TEST(ChildProcess, says_which_program_is_missing) {
  const auto output = run_child({"/nowhere/python"}, {});
  EXPECT_EQ(output.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(output.status().message(), ::testing::HasSubstr("/nowhere/python"));
}

}  // namespace
}  // namespace darkroom
