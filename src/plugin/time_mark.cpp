#include "time_mark.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

namespace darkroom {
namespace {

class CudaMark final : public GpuMark {
 public:
  explicit CudaMark(c10::DeviceIndex gpu) : gpu_(gpu) {
    const c10::cuda::CUDAGuard guard(gpu_);
    C10_CUDA_CHECK(cudaEventCreate(&event_));  // With times, which torch's own leave out unless asked.
  }
  ~CudaMark() override {
    // At the process's end the driver may be gone, which is no matter any more.
    C10_CUDA_IGNORE_ERROR(cudaEventDestroy(event_));
  }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;

  void record() override {
    const c10::cuda::CUDAGuard guard(gpu_);
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream(gpu_).stream();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    // Else a captured event orders the graph's own streams, and has no time.
    const unsigned int flags = status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    C10_CUDA_CHECK(cudaEventRecordWithFlags(event_, stream, flags));
  }

  double ms_since(const GpuMark& earlier) const override {
    const c10::cuda::CUDAGuard guard(gpu_);
    float ms = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, dynamic_cast<const CudaMark&>(earlier).event_, event_));
    return static_cast<double>(ms);
  }

 private:
  c10::DeviceIndex gpu_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuMark> make_cuda_mark(int gpu) { return std::make_unique<CudaMark>(static_cast<c10::DeviceIndex>(gpu)); }

}  // namespace darkroom
