#include "lock_down.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace darkroom {
namespace {

// Newer than the header of Debian 12, which knows version 2 of Landlock (Documentation/userspace-api/landlock.rst).
constexpr uint64_t kAccessFsTruncate = 1 << 14;     // From version 3.
constexpr uint64_t kAccessFsIoctlDevice = 1 << 15;  // 5
constexpr uint64_t kAccessNetBindTcp = 1 << 0;      // 4
constexpr uint64_t kAccessNetConnectTcp = 1 << 1;
constexpr uint64_t kScopeAbstractUnixSocket = 1 << 0;  // 6
constexpr uint64_t kScopeSignal = 1 << 1;

struct LandlockRuleset {  // struct landlock_ruleset_attr of version 6; older kernels take it while what they do not know is 0.
  uint64_t handled_access_fs;
  uint64_t handled_access_net;
  uint64_t scoped;
};

constexpr uint64_t kAddressSpaceWithoutProc = uint64_t{256} << 20;  // What a process has already, where nobody says.

uint64_t address_space_in_use() {
  unsigned long pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  const bool is_known = file != nullptr && std::fscanf(file, "%lu", &pages) == 1;
  if (file != nullptr) {
    std::fclose(file);
  }
  return is_known ? pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : kAddressSpaceWithoutProc;
}

// The first of the two is the soft limit. What an outer limit holds lower stays lower.
bool limit(__rlimit_resource resource, uint64_t soft, uint64_t hard) {
  rlimit bounds{};
  if (getrlimit(resource, &bounds) != 0) {
    return false;
  }
  bounds.rlim_max = std::min<rlim_t>(bounds.rlim_max, hard);
  bounds.rlim_cur = std::min<rlim_t>(bounds.rlim_max, soft);
  return setrlimit(resource, &bounds) == 0;
}

int set_limits(uint64_t address_space, uint64_t cpu_seconds) {
  const bool is_done = limit(RLIMIT_AS, address_space, address_space) && limit(RLIMIT_CPU, cpu_seconds, cpu_seconds + 1) &&
                       limit(RLIMIT_CORE, 0, 0) && limit(RLIMIT_FSIZE, 0, 0) && limit(RLIMIT_NOFILE, 0, 0) && limit(RLIMIT_NPROC, 0, 0);
  return is_done ? 0 : errno;
}

// Root could lift its limits again.
void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  syscall(SYS_capset, &header, none.data());  // Giving up rights fails only where an outer filter forbids the call.
}

LandlockRuleset ruleset_of(int abi) {
  LandlockRuleset rules{.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1, .handled_access_net = 0, .scoped = 0};
  rules.handled_access_fs |= abi >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0;
  rules.handled_access_fs |= abi >= 3 ? kAccessFsTruncate : 0;
  rules.handled_access_fs |= abi >= 5 ? kAccessFsIoctlDevice : 0;
  rules.handled_access_net = abi >= 4 ? kAccessNetBindTcp | kAccessNetConnectTcp : 0;
  rules.scoped = abi >= 6 ? kScopeAbstractUnixSocket | kScopeSignal : 0;
  return rules;
}

// A ruleset that handles every access and allows none.
void enforce_landlock(LockDownReport& report) {
  const auto abi = static_cast<int>(syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
  const LandlockRuleset rules = ruleset_of(abi);
  const auto ruleset = abi < 1 ? -1 : static_cast<int>(syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0));
  if (ruleset >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0) {
    report.landlock_abi = abi;
  } else {
    report.landlock_error = errno;
  }
  if (ruleset >= 0) {
    close(ruleset);
  }
}

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;  // None: there is no filter for this processor.
#endif

constexpr std::array kAllowedCalls = {SYS_futex,         SYS_brk,          SYS_munmap, SYS_madvise,
                                      SYS_clock_gettime, SYS_rt_sigreturn, SYS_exit,   SYS_exit_group};
constexpr std::array kAllowedWithoutExecution = {SYS_mmap, SYS_mprotect};  // Their third argument is the protection.

constexpr uint32_t kDeny = SECCOMP_RET_ERRNO | EPERM;

constexpr sock_filter load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
constexpr sock_filter answer(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
// Goes on with the next instruction where the word is `value`, else behind `otherwise` of them.
constexpr sock_filter unless_equal(uint32_t value, uint8_t otherwise) { return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise); }
constexpr sock_filter unless_set(uint32_t bits, uint8_t otherwise) { return BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, otherwise); }

// Numbers of the x32 mode have bit 30 set, so they equal none of the list.
std::vector<sock_filter> call_filter() {
  std::vector<sock_filter> filter = {load(offsetof(seccomp_data, arch)), unless_equal(kArchitecture, 1),
                                     BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), answer(SECCOMP_RET_KILL_PROCESS),
                                     load(offsetof(seccomp_data, nr))};
  for (const auto call : kAllowedCalls) {
    filter.insert(filter.end(), {unless_equal(static_cast<uint32_t>(call), 1), answer(SECCOMP_RET_ALLOW)});
  }
  for (const auto call : kAllowedWithoutExecution) {
    filter.insert(filter.end(), {unless_equal(static_cast<uint32_t>(call), 4), load(offsetof(seccomp_data, args) + 2 * sizeof(uint64_t)),
                                 unless_set(PROT_EXEC, 1), answer(kDeny), answer(SECCOMP_RET_ALLOW)});
  }
  filter.push_back(answer(kDeny));
  return filter;
}

int enforce_seccomp() {
  if (kArchitecture == 0) {
    return ENOSYS;
  }
  std::vector<sock_filter> filter = call_filter();
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  // The child has no secret that a side channel could give away, and on older kernels the guard against it costs a tenth of the speed.
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0) {
    return 0;
  }
  if (errno == EINVAL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0) {  // A kernel before 4.17.
    return 0;
  }
  return errno;
}

}  // namespace

LockDownReport lock_down(const LockDownLimits& limits) {
  LockDownReport report;
  const uint64_t address_space = address_space_in_use() + limits.memory_bytes;  // Asked while files can be read.
  closefrom(0);
  prctl(PR_SET_DUMPABLE, 0);  // No dump, also where core_pattern is a program, which a limit of 0 does not stop.
  const int privileges_error = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno;
  enforce_landlock(report);
  report.limits_error = set_limits(address_space, limits.cpu_seconds);
  drop_capabilities();
  report.seccomp_error = privileges_error != 0 ? privileges_error : enforce_seccomp();
  return report;
}

}  // namespace darkroom
