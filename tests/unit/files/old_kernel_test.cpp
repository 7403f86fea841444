// What LocalFileSystem does where the kernel or a file system cannot rename without replacing.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "darkroom/files/file_system.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

/// From here on renameat2 fails with `error` in this process.
bool refuse_renameat2(int error) {
  const auto refusal = static_cast<uint32_t>(SECCOMP_RET_ERRNO | (static_cast<uint32_t>(error) & SECCOMP_RET_DATA));
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, refusal),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program = {.len = filter.size(), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// The code of rename_no_replace() in a child process without renameat2; -1 when the filter cannot be set.
int code_without_renameat2(int error, const std::string& from, const std::string& to) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(refuse_renameat2(error) ? static_cast<int>(local_files().rename_no_replace(from, to).code()) : 255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) != 255 ? WEXITSTATUS(status) : -1;
}

int code(StatusCode code) { return static_cast<int>(code); }

class OldKernel : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Errors, OldKernel, testing::Values(ENOSYS, EINVAL, EOPNOTSUPP));

TEST_P(OldKernel, a_file_takes_a_free_name_and_loses_its_old_one) {
  const TemporaryFolder folder;
  FileSystem& files = local_files();
  ASSERT_TRUE(write_file_atomic(files, folder.path() + "/from", "text").is_ok());
  ASSERT_EQ(code_without_renameat2(GetParam(), folder.path() + "/from", folder.path() + "/to"), code(StatusCode::kOk));
  EXPECT_EQ(read_file(files, folder.path() + "/to").value(), "text");
  EXPECT_EQ(files.stat(folder.path() + "/from").status().code(), StatusCode::kNotFound);
}

TEST_P(OldKernel, a_file_never_takes_a_name_that_is_taken) {
  const TemporaryFolder folder;
  FileSystem& files = local_files();
  ASSERT_TRUE(write_file_atomic(files, folder.path() + "/from", "new").is_ok());
  ASSERT_TRUE(write_file_atomic(files, folder.path() + "/to", "old").is_ok());
  EXPECT_EQ(code_without_renameat2(GetParam(), folder.path() + "/from", folder.path() + "/to"), code(StatusCode::kAlreadyExists));
  EXPECT_EQ(read_file(files, folder.path() + "/to").value(), "old");
  EXPECT_EQ(read_file(files, folder.path() + "/from").value(), "new");
}

TEST_P(OldKernel, a_folder_takes_a_free_name_but_none_that_holds_something) {
  const TemporaryFolder folder;
  FileSystem& files = local_files();
  ASSERT_TRUE(files.create_folders(folder.path() + "/from").is_ok());
  ASSERT_TRUE(files.create_folders(folder.path() + "/taken/inner").is_ok());
  EXPECT_EQ(code_without_renameat2(GetParam(), folder.path() + "/from", folder.path() + "/taken"), code(StatusCode::kAlreadyExists));
  EXPECT_EQ(code_without_renameat2(GetParam(), folder.path() + "/from", folder.path() + "/to"), code(StatusCode::kOk));
  EXPECT_TRUE(files.stat(folder.path() + "/to").value().is_folder);
}

TEST_P(OldKernel, what_is_missing_is_not_found) {
  const TemporaryFolder folder;
  EXPECT_EQ(code_without_renameat2(GetParam(), folder.path() + "/from", folder.path() + "/to"), code(StatusCode::kNotFound));
}

}  // namespace
}  // namespace darkroom
