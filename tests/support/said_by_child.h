#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <string>

namespace darkroom {

enum class ChildStderr { kTerminal, kPipe };

/// Everything that `work` writes to stderr in a child process whose stderr is a terminal or a pipe. A terminal's newlines stay as written;
/// one that is given no size does not say how large it is.
template <typename Work>
std::string said_by_child(ChildStderr kind, Work work, winsize size = {}) {
  std::array<int, 2> ends{-1, -1};  // Read, write.
  const bool opened =
      kind == ChildStderr::kTerminal ? openpty(ends.data(), &ends[1], nullptr, nullptr, &size) == 0 : pipe(ends.data()) == 0;
  EXPECT_TRUE(opened) << "no terminal or pipe can be opened";
  if (kind == ChildStderr::kTerminal) {
    termios settings{};
    tcgetattr(ends[1], &settings);
    cfmakeraw(&settings);
    tcsetattr(ends[1], TCSANOW, &settings);
  }
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    try {
      work();
    } catch (const std::exception& thrown) {  // Whose catcher in the parent would go on with the parent's tests.
      std::fprintf(stderr, "%s", thrown.what());
      std::fflush(stderr);
      _exit(1);
    }
    std::fflush(stderr);
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 4096> piece{};
  for (ssize_t size = 0; (size = read(ends[0], piece.data(), piece.size())) > 0;) {
    said.append(piece.data(), static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the child died";
  return said;
}

}  // namespace darkroom
