#include "fake_runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "fake_memory.h"
#include "fake_stream.h"

namespace darkroom::fake {
namespace {

// One device with one stream. An event is a place in it.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return the_stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return the_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return the_stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return the_stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new int64_t(0);
    }
    *static_cast<int64_t*>(*event) = present_position();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<int64_t*>(event); }
  void block(void*, const c10::Stream&) const override {
    const std::lock_guard lock(device_lock());
    ++counts().stream_waits;
  }
  bool queryEvent(void* event) const override { return event == nullptr || has_reached(*static_cast<int64_t*>(event)); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      wait_for(*static_cast<int64_t*>(event));
    }
  }
  bool queryStream(const c10::Stream&) const override { return has_reached(present_position()); }
  void synchronizeStream(const c10::Stream&) const override { synchronize("stream"); }
  void synchronizeDevice(c10::DeviceIndex) const override { synchronize("device"); }

 private:
  static c10::Stream the_stream() { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
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
