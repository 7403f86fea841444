#include "fake_runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>

#include "fake_fault.h"
#include "fake_memory.h"
#include "fake_order.h"
#include "fake_stream.h"

namespace darkroom::fake {
namespace {

// One device. An event is a place in a stream.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return numbered(current_stream()); }
  c10::Stream getDefaultStream(c10::Device) const override { return numbered(0); }
  c10::Stream getNewStream(c10::Device, int) const override { return numbered(new_stream()); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return numbered(exchange_stream(stream.id())); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Place;
    }
    place_of(*event) = present_place(stream.id());
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Place*>(event); }
  void block(void* event, const c10::Stream& stream) const override {
    const std::lock_guard lock(device_lock());
    ++counts().stream_waits;
    if (event != nullptr && number_of_fault("unordered_stream") != std::min<int64_t>(stream.id(), 1)) {
      stream_waits(stream.id(), place_of(event).clock);
    }
  }
  bool queryEvent(void* event) const override { return event == nullptr || has_reached(place_of(event).clock); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      wait_for(place_of(event));
    }
  }
  bool queryStream(const c10::Stream& stream) const override { return has_reached(present_place(stream.id()).clock); }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize("stream", present_place(stream.id()).clock); }
  void synchronizeDevice(c10::DeviceIndex) const override { synchronize("device", whole_clock()); }

 private:
  static Place& place_of(void* event) { return *static_cast<Place*>(event); }
  static c10::Stream numbered(int64_t stream) {
    return stream == 0 ? c10::Stream(c10::Stream::DEFAULT, kDevice) : c10::Stream(c10::Stream::UNSAFE, kDevice, stream);
  }
};

}  // namespace

void register_runtime() {
  c10::SetAllocator(kDeviceType, &device_allocator());
  c10::impl::registerDeviceGuard(kDeviceType, new Guard);
}

}  // namespace darkroom::fake

namespace at {

// Torch looks for hooks of this name.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  const Generator& getDefaultGenerator(c10::DeviceIndex) const override { return detail::getDefaultCPUGenerator(); }  // manual_seed asks.
  bool isPinnedPtr(const void* pointer) const override { return darkroom::fake::is_pinned(pointer); }
  Allocator* getPinnedMemoryAllocator() const override { return &darkroom::fake::pinned_allocator(); }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at
