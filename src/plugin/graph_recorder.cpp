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
  explicit CudaGraphRecorder(int gpu) : gpu_(static_cast<c10::DeviceIndex>(gpu)), stream_(recording_stream(gpu_)) {}

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
    const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
    // What other threads ask of the GPU meanwhile is no part of it, and does not spoil it.
    graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      run();
    } catch (...) {
      leave_capture(*graph, pool);
      throw;
    }
    graph->capture_end();
    graph_ = std::move(graph);
  }

  void replay() override {
    run([&] { graph_->replay(); });
  }

 private:
  static void order(const at::cuda::CUDAStream& first, const at::cuda::CUDAStream& second) {
    at::cuda::CUDAEvent done;
    done.record(first);
    done.block(second);
  }

  // The capture is void already; ending it gives the stream back, and may fail before it has told the allocator.
  void leave_capture(at::cuda::CUDAGraph& graph, const c10::MempoolId_t& pool) const {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
      try {
        c10::cuda::CUDACachingAllocator::endAllocateToPool(gpu_, pool);
        c10::cuda::CUDACachingAllocator::releasePool(gpu_, pool);
      } catch (const c10::Error&) {
        // It knew.
      }
    }
  }

  c10::DeviceIndex gpu_;
  at::cuda::CUDAStream stream_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::unique_ptr<GraphRecorder> make_cuda_graph_recorder(int gpu) { return std::make_unique<CudaGraphRecorder>(gpu); }

}  // namespace darkroom
