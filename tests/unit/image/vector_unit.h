#pragma once

#include <hwy/highway.h>

#include <cstdint>

namespace darkroom {

/// The vector units that the whole test program is held to; 0: those that the processor has.
inline int64_t held_vector_units = 0;

inline void hold_to(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  held_vector_units = targets;
}

/// Holds the program to one unit while it lives.
class HeldVectorUnit {
 public:
  explicit HeldVectorUnit(int64_t target) : before_(held_vector_units) { hold_to(target); }
  ~HeldVectorUnit() { hold_to(before_); }
  HeldVectorUnit(const HeldVectorUnit&) = delete;
  HeldVectorUnit& operator=(const HeldVectorUnit&) = delete;

 private:
  int64_t before_;
};

}  // namespace darkroom
