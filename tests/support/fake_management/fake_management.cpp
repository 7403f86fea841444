// Stands in for NVIDIA's management library: two GPUs, of which the second does not say how busy it is.

namespace {
struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;
};
int devices[2];
constexpr int kNotSupported = 3;
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  *memory = device == &devices[0] ? Memory{80'000, 50'000, 30'000} : Memory{40'000, 40'000, 0};
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
  *utilization = {75, 10};
  return device == &devices[0] ? 0 : kNotSupported;
}
}
