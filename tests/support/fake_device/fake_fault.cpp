#include "fake_fault.h"

#include <cstdlib>

#include "fake_device.h"

namespace darkroom::fake {

const Fault& asked_fault() {
  static const Fault fault = [] {
    const char* variable = std::getenv(kFakeDeviceFaultVariable);
    const std::string text = variable == nullptr ? "" : variable;
    const size_t colon = text.find(':');
    return Fault{.name = text.substr(0, colon), .detail = colon == std::string::npos ? "" : text.substr(colon + 1)};
  }();
  return fault;
}

int64_t number_of_fault(std::string_view name) {
  const Fault& fault = asked_fault();
  return fault.name == name && !fault.detail.empty() ? std::atoll(fault.detail.c_str()) : -1;
}

}  // namespace darkroom::fake
