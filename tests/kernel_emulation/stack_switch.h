#pragma once

#include <cstddef>
#include <cstdint>

#ifndef __x86_64__
#include <ucontext.h>
#endif

// Leaves one stack for another. glibc's swapcontext asks the system for a signal mask every time, and AddressSanitizer forgets its marks on
// a stack that it leaves; so x86-64 has a switch of its own.

namespace emulation {

#ifdef __x86_64__

/// Where a stack was left.
struct StackPlace {
  void* pointer = nullptr;
};

extern "C" void emulation_switch_stack(void** left_at, void* go_on_at);

/// `entry` starts on the stack of `size` bytes at `bottom` when it is switched to first; it never returns. REQUIRES: both are
/// multiples of 16.
inline void prepare_stack(StackPlace& place, std::byte* bottom, size_t size, void (*entry)()) {
  constexpr int kSavedRegisters = 6;
  auto** top = reinterpret_cast<void**>(bottom + size);
  *--top = nullptr;  // Where a caller's address would be: the end of every stack trace.
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) {
    *--top = nullptr;
  }
  place.pointer = top;
}

inline void switch_stack(StackPlace& left, StackPlace& next) { emulation_switch_stack(&left.pointer, next.pointer); }

#else

struct StackPlace {
  ucontext_t context;
};

inline void prepare_stack(StackPlace& place, std::byte* bottom, size_t size, void (*entry)()) {
  getcontext(&place.context);
  place.context.uc_stack.ss_sp = bottom;
  place.context.uc_stack.ss_size = size;
  place.context.uc_link = nullptr;
  makecontext(&place.context, entry, 0);
}

inline void switch_stack(StackPlace& left, StackPlace& next) { swapcontext(&left.context, &next.context); }

#endif

}  // namespace emulation
