#include "darkroom/tensor/device_event.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace darkroom {

namespace {

c10::Stream current_stream(const torch::Device& device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

DeviceEvent::~DeviceEvent() {
  if (event_.has_value()) {
    const c10::DeviceGuard guard(device_);
    event_.reset();
  }
}

void DeviceEvent::record() { record(current_stream(device_)); }

void DeviceEvent::record(const c10::Stream& stream) {
  const c10::DeviceGuard guard(device_);
  if (!event_.has_value()) {
    event_.emplace(device_.type());
  }
  event_->record(stream);
}

void DeviceEvent::block() { block(current_stream(device_)); }

void DeviceEvent::block(const c10::Stream& stream) {
  const c10::DeviceGuard guard(device_);
  event_->block(stream);
}

bool DeviceEvent::is_reached() const {
  const c10::DeviceGuard guard(device_);
  return !event_.has_value() || event_->query();
}

void DeviceEvent::synchronize() const {
  if (event_.has_value()) {
    const c10::DeviceGuard guard(device_);
    event_->synchronize();
  }
}

c10::Stream new_stream(const torch::Device& device) {
  const c10::DeviceGuard guard(device);
  return c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
}

}  // namespace darkroom
