#include "stores/key_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stop_token>
#include <string>
#include <thread>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr milliseconds kLongEnough{60'000};

Result<std::string> run_shell(const std::string& script, milliseconds timeout = kLongEnough) {
  return run_key_process({"sh", "-c", script}, timeout);
}

TEST(KeyProcess, splits_its_command_as_the_aws_tools_do) {
  EXPECT_THAT(split_key_command("/opt/bin/keys --for  me\t").value(), ElementsAre("/opt/bin/keys", "--for", "me"));
  EXPECT_THAT(split_key_command(R"("/a b/keys" --user="a \"b\" \x" '' 'c\d "e"' f\ g)").value(),
              ElementsAre("/a b/keys", R"(--user=a "b" \x)", "", R"(c\d "e")", "f g"));
  EXPECT_THAT(split_key_command("a $HOME * | b").value(), ElementsAre("a", "$HOME", "*", "|", "b"));
  EXPECT_EQ(split_key_command("").status().to_string(), "invalid_argument: credential_process is empty");
  EXPECT_EQ(split_key_command("  \n").status().to_string(), "invalid_argument: credential_process is empty");
  EXPECT_EQ(split_key_command("a 'CANARY").status().to_string(), "invalid_argument: a quote in credential_process does not end");
  EXPECT_EQ(split_key_command("a \"CANARY").status().to_string(), "invalid_argument: a quote in credential_process does not end");
}

TEST(KeyProcess, gives_what_the_program_writes) {
  EXPECT_EQ(run_key_process({"/bin/echo", "a", "b c"}, kLongEnough).value(), "a b c\n");
  EXPECT_EQ(run_shell("cat; printf x; exec 1>&-; true").value(), "x");  // An empty stdin; stdout closed early.
  EXPECT_EQ(run_shell("head -c 65536 /dev/zero").value().size(), 65'536u);
}

TEST(KeyProcess, sees_what_aws_is_told_and_no_secret_of_others) {
  for (const char* name : {"AWS_PROFILE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "DARKROOM_ENCODER_TOKEN"}) {
    ASSERT_EQ(setenv(name, "CANARY", 1), 0);
  }
  EXPECT_EQ(run_shell("env | grep CANARY").value(), "AWS_PROFILE=CANARY\n");
  for (const char* name : {"AWS_PROFILE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "DARKROOM_ENCODER_TOKEN"}) {
    unsetenv(name);
  }
}

TEST(KeyProcess, fails_without_showing_output_or_arguments) {
  const Status failed = run_shell("echo CANARY; echo CANARY >&2; exit 3").status();
  EXPECT_EQ(failed.to_string(), "failed_precondition: credential_process gave no keys: it ended with code 3 (program): sh");
  EXPECT_THAT(run_shell("kill -9 $$ # CANARY").status().to_string(), HasSubstr("it was ended by signal 9 (program): sh"));
  EXPECT_THAT(run_shell("yes CANARY").status().to_string(), HasSubstr("it writes too much (program): sh"));
  const Status missing = run_key_process({"/no/such/program", "CANARY"}, kLongEnough).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), Not(HasSubstr("CANARY")));
}

/// Whether nobody reads a fifo any more, sooner or later.
bool is_left(const std::string& fifo) {
  for (int i = 0; i < 6'000; ++i) {
    const int writer = open(fifo.c_str(), O_WRONLY | O_NONBLOCK);
    if (writer < 0) {
      return errno == ENXIO;
    }
    close(writer);
    poll(nullptr, 0, 10);
  }
  return false;
}

TEST(KeyProcess, is_killed_with_what_it_started_when_its_time_is_over) {
  const TemporaryFolder folder;
  const std::string fifo = folder.path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  // The grandchild holds the fifo open for reading: a writer finds nobody once it is dead.
  const Status hung = run_shell(fmt::format("(exec 9<>'{0}'; sleep 600) & wait", fifo), milliseconds(2'000)).status();
  EXPECT_EQ(hung.to_string(), "unavailable: credential_process gave no keys: it does not end in time (program): sh");
  EXPECT_TRUE(is_left(fifo));
}

TEST(KeyProcess, does_not_wait_for_what_it_left_behind) {
  EXPECT_EQ(run_shell("printf keys; sleep 30 >/dev/null &").value(), "keys");
  EXPECT_EQ(run_shell("printf keys; sleep 30 &").value(), "keys");  // Which holds its stdout.
}

TEST(KeyProcess, is_killed_at_a_stop) {
  const TemporaryFolder folder;
  const std::string fifo = folder.path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::stop_source stop;
  const std::jthread stops([&] {
    close(open(fifo.c_str(), O_WRONLY));  // Which waits until the child reads.
    stop.request_stop();
  });
  const auto stopped = run_key_process({"sh", "-c", fmt::format("exec 9<>'{}'; sleep 600", fifo)}, kLongEnough, stop.get_token());
  close(open(fifo.c_str(), O_RDONLY | O_NONBLOCK));  // Where no child came, the thread waits for one still.
  EXPECT_EQ(stopped.status().to_string(), "cancelled: credential_process gave no keys: it was stopped (program): sh");
  EXPECT_TRUE(is_left(fifo));
}

}  // namespace
}  // namespace darkroom
