#pragma once

#include <cstdint>

namespace darkroom {

struct LockDownLimits {
  uint64_t memory_bytes = 0;  ///< Address space beyond what the process has already.
  uint64_t cpu_seconds = 0;   ///< Processor time, with what is used already; the kernel then sends SIGXCPU.
};

/// What holds now; each error is an errno, 0 where the protection is in force. Lies in memory that processes share.
struct LockDownReport {
  int32_t limits_error = 0;
  int32_t landlock_error = 0;
  int32_t landlock_abi = 0;
  int32_t seccomp_error = 0;
};

/// Leaves this process no right but to compute, for ever: drops capabilities, denies itself new ones, core dumps, files, processes and
/// all but a few system calls (docs/sandbox.md lists them), and closes every descriptor. What the kernel refuses is left out and
/// reported; the rest is done all the same. REQUIRES: one thread.
LockDownReport lock_down(const LockDownLimits& limits);

}  // namespace darkroom
