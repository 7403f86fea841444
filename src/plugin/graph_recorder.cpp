#include "graph_recorder.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <mutex>

namespace darkroom {
namespace {

// Not the default stream, which cannot be captured. One a GPU for all recorders: cuBLAS keeps a workspace for every stream that it has
// seen.
at::cuda::CUDAStream recording_stream(c10::DeviceIndex gpu) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, at::cuda::CUDAStream> streams;
  const std::lock_guard lock(mutex);
  return streams.try_emplace(gpu, at::cuda::getStreamFromPool(/*isHighPriority=*/false, gpu)).first->second;
}

class CudaGraphRecorder final : public GraphRecorder {
 public:
  CudaGraphRecorder(c10::DeviceIndex gpu, const c10::MempoolId_t& pool) : gpu_(gpu), stream_(recording_stream(gpu_)), pool_(pool) {}

  void run(const std::function<void()>& run) override {
    const at::cuda::CUDAStream callers = at::cuda::getCurrentCUDAStream(gpu_);
    order(callers, stream_);
    {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      run();
    }
    order(stream_, callers);
  }

  void record(const std::function<void()>& run) override {
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // What warm-up calls left in the allocator is free again for the graph's own memory; a captured stream could not wait for it.
    at::cuda::getCurrentCUDAStream(gpu_).synchronize();
    stream_.synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::cuda::CUDAStreamGuard guard(stream_);
    // What other threads ask of the GPU meanwhile is no part of it, and does not spoil it.
    graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      run();
    } catch (...) {
      leave_capture(*graph);
      throw;
    }
    graph->capture_end();
    graph_ = std::move(graph);
  }

  void replay() override {
    run([&] { graph_->replay(); });
  }

  std::unique_ptr<GraphRecorder> beside() const override { return std::make_unique<CudaGraphRecorder>(gpu_, pool_); }

 private:
  static void order(const at::cuda::CUDAStream& first, const at::cuda::CUDAStream& second) {
    at::cuda::CUDAEvent done;
    done.record(first);
    done.block(second);
  }

  // The capture is void already; ending it gives the stream back, and may fail before it has told the allocator.
  void leave_capture(at::cuda::CUDAGraph& graph) const {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
      try {
        c10::cuda::CUDACachingAllocator::endAllocateToPool(gpu_, pool_);
        c10::cuda::CUDACachingAllocator::releasePool(gpu_, pool_);
      } catch (const c10::Error&) {
        // It knew.
      }
    }
  }

  c10::DeviceIndex gpu_;
  at::cuda::CUDAStream stream_;
  c10::MempoolId_t pool_;  // Of the allocator, which keeps it as long as a graph uses it.
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::unique_ptr<GraphRecorder> make_cuda_graph_recorder(int gpu) {
  return std::make_unique<CudaGraphRecorder>(static_cast<c10::DeviceIndex>(gpu), at::cuda::graph_pool_handle());
}

}  // namespace darkroom
