#include "child_process/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace darkroom {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

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

TEST(ChildProcess, an_exit_code_that_is_lost_is_no_success) {
  const auto before = signal(SIGCHLD, SIG_IGN);  // The system then forgets how children ended.
  const auto output = run_child({"/bin/sh", "-c", "exit 7"}, {});
  signal(SIGCHLD, before);
  EXPECT_EQ(output.status().code(), StatusCode::kUnavailable);
}

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
  EXPECT_EQ(run_child({"/bin/sh", "-c", "exec sleep 600"}, source.get_token()).status().code(), StatusCode::kCancelled);
}

class ChildOutputFile : public ::testing::Test {
 protected:
  ChildOutputFile() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~ChildOutputFile() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/log"; }
  int run(const std::string& script, bool merges_errors) {
    const auto child = start_child({"sh", "-c", script}, {.merges_errors = merges_errors, .output_path = path()});
    EXPECT_TRUE(child.is_ok()) << child.status().message();
    EXPECT_EQ(child->output, -1);
    return wait_for_child(child->pid).value();
  }

  std::string folder_ = "/tmp/darkroom-child-XXXXXX";
};

TEST_F(ChildOutputFile, gets_what_several_programs_wrote_one_after_the_other) {
  EXPECT_EQ(run("echo one; echo more >&2; exit 3", true), 3);
  EXPECT_EQ(run("echo two", true), 0);
  std::ifstream file(path());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "one\nmore\ntwo\n");
}

TEST_F(ChildOutputFile, that_cannot_be_opened_starts_nothing) {
  const auto child = start_child({"sh", "-c", "exit 0"}, {.output_path = folder_ + "/no/folder"});
  EXPECT_EQ(child.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(child.status().message(), HasSubstr("/no/folder"));
}

TEST(ChildProcess, tells_its_end_and_the_memory_that_it_took) {
  const auto child = start_child({"sh", "-c", "exit 4"}, {.shares_output = true});
  ASSERT_TRUE(child.is_ok());
  const int watched = watch_child(child->pid);
  pollfd source{watched, POLLIN, 0};
  EXPECT_EQ(poll(&source, 1, -1), 1);
  close(watched);
  const auto end = wait_for_child_end(child->pid);
  ASSERT_TRUE(end.is_ok());
  EXPECT_EQ(end->exit_code, 4);
  EXPECT_GT(end->peak_bytes, 0);
  EXPECT_EQ(wait_for_child_end(child->pid).status().code(), StatusCode::kUnavailable);
}

// What the shell does with a line of its stdin, as its exit code says; its stdin is a pipe from here.
int run_with_input(const std::string& script, const std::string& line, std::string& answer) {
  const auto child = start_child({"sh", "-c", script}, {.has_input = true});  // Found in PATH.
  EXPECT_TRUE(child.is_ok()) << child.status().message();
  EXPECT_EQ(write(child->input, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  close(child->input);
  std::array<char, 100> buffer;
  for (ssize_t count = 1; count > 0; answer.append(buffer.data(), static_cast<size_t>(count))) {
    count = std::max<ssize_t>(0, read(child->output, buffer.data(), buffer.size()));
  }
  close(child->output);
  return wait_for_child(child->pid).value();
}

TEST(ChildProcess, reads_what_is_written_to_its_input_and_sees_the_end_of_it) {
  std::string answer;
  EXPECT_EQ(run_with_input("while read -r line; do echo \"got $line\"; done; exit 5", "a b\n", answer), 5);
  EXPECT_EQ(answer, "got a b\n");
}

TEST(ChildProcess, without_a_pipe_its_input_is_empty) { EXPECT_EQ(run_child({"sh", "-c", "read -r line; echo \"$?\""}, {})->text, "1\n"); }

TEST(ChildProcess, says_which_program_is_missing) {
  const auto output = run_child({"/nowhere/python"}, {});
  EXPECT_EQ(output.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(output.status().message(), ::testing::HasSubstr("/nowhere/python"));
  EXPECT_EQ(start_child({"no-such-program-anywhere"}, {.has_input = true}).status().code(), StatusCode::kNotFound);
}

TEST(ChildProcess, tells_a_machine_that_has_no_memory_from_a_program_that_is_missing) {
  const std::vector<std::string> command = {"true"};
  static_cast<void>(std::vector<std::string>(100, std::string(500, 'x')));  // Freed again: what the call needs of the heap is there.
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_AS, &none);
  const auto child = start_child(command, {.shares_output = true});  // The stack of the new process has no place.
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(child.status().code(), StatusCode::kResourceExhausted) << child.status().to_string();
}

}  // namespace
}  // namespace darkroom
