#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace darkroom {

/// A system call that fails from now on, as on another kernel or a poorer file system.
struct RefusedCall {
  int call = 0;
  int error = 0;
  int argument = -1;     ///< Only where this argument has ...
  uint32_t any_bit = 0;  ///< ... one of these bits.
};

/// For this process and its children, for good. False when the kernel takes no filter.
inline bool refuse_calls(const std::vector<RefusedCall>& refused) {
  std::vector<sock_filter> filter;
  for (const RefusedCall& one : refused) {
    const auto refusal = static_cast<uint32_t>(SECCOMP_RET_ERRNO | (static_cast<uint32_t>(one.error) & SECCOMP_RET_DATA));
    const bool looks_at_bits = one.argument >= 0;
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(one.call), 0, static_cast<uint8_t>(looks_at_bits ? 3 : 1)));
    if (looks_at_bits) {
      const auto low_half = static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(one.argument));
      filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_half));
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, one.any_bit, 0, 1));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, refusal));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// What `work` returns (0 to 100) in a child process that begins with refusals; 101 when they cannot be set, 102 after a death.
inline int result_with_refused_calls(const std::vector<RefusedCall>& refused, const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(refuse_calls(refused) ? work() : 101);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 102;
}

}  // namespace darkroom
