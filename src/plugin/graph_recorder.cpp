#include "graph_recorder.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

namespace darkroom {
namespace {

// A stream of the pool, not the default one, which cannot be captured.
class CudaGraphRecorder final : public GraphRecorder {
 public:
  explicit CudaGraphRecorder(int gpu)
      : gpu_(static_cast<c10::DeviceIndex>(gpu)), stream_(at::cuda::getStreamFromPool(/*isHighPriority=*/false, gpu_)) {}

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
    graph->capture_begin();
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

 private:
  static void order(const at::cuda::CUDAStream& first, const at::cuda::CUDAStream& second) {
    at::cuda::CUDAEvent done;
    done.record(first);
    done.block(second);
  }

  // The capture is void already; ending it gives the stream back.
  static void leave_capture(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
    }
  }

  c10::DeviceIndex gpu_;
  at::cuda::CUDAStream stream_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::unique_ptr<GraphRecorder> make_cuda_graph_recorder(int gpu) { return std::make_unique<CudaGraphRecorder>(gpu); }

}  // namespace darkroom
