#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace darkroom::fake {

/// The fault that kFakeDeviceFaultVariable asks for, as NAME or NAME:DETAIL; empty: none.
struct Fault {
  std::string name;
  std::string detail;
};
const Fault& asked_fault();

/// N of the fault NAME:N. Negative: another one is asked for, or none.
int64_t number_of_fault(std::string_view name);

}  // namespace darkroom::fake
