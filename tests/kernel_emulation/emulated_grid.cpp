#include "emulated_grid.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "stack_switch.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

#ifdef __x86_64__
// The registers that a function keeps for its caller go onto the stack that is left, and come from the one that goes on.
asm(R"(
  .pushsection .text
  .type emulation_switch_stack, @function
  .hidden emulation_switch_stack
  .globl emulation_switch_stack
emulation_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size emulation_switch_stack, . - emulation_switch_stack
  .popsection
)");
#endif

namespace emulation {
namespace {

constexpr unsigned kMostThreads = 1024;             // Of a block.
constexpr unsigned kMostBlocksAcross = 2147483647;  // 2^31 - 1, along x.
constexpr unsigned kMostBlocksDown = 65535;         // Along y and z.
constexpr size_t kSharedBytes = size_t{48} << 10;   // Static, of a block.
constexpr size_t kStackBytes = size_t{256} << 10;   // An exception is thrown and caught on it, under AddressSanitizer as well.
constexpr size_t kGuardBytes = 4096;                // Below it.

/// What a kernel must not do.
struct Fault : std::runtime_error {
  Fault(cudaError_t error, const std::string& what) : std::runtime_error(what), code(error) {}
  cudaError_t code;
};

std::string text_of(dim3 size) { return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z); }

/// Numbers that a seed gives (splitmix64).
class Shuffler {
 public:
  explicit Shuffler(uint64_t seed) : state_(seed) {}

  template <typename Value>
  void shuffle(std::vector<Value>& values) {
    for (size_t left = values.size(); left > 1; --left) {
      std::swap(values[left - 1], values[next() % left]);
    }
  }

 private:
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

/// A stack of its own with what runs on it.
class Fiber {
 public:
  explicit Fiber(void (*entry)()) {
    memory_ = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED || mprotect(memory_, kGuardBytes, PROT_NONE) != 0) {
      throw std::bad_alloc();
    }
    prepare_stack(place_, bottom(), kStackBytes, entry);
  }
  ~Fiber() {
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(bottom(), kStackBytes);  // What a fault left in the middle of a function.
#endif
    munmap(memory_, kGuardBytes + kStackBytes);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// From the scheduler: runs the fiber until it leaves.
  void enter(StackPlace& scheduler) {
#ifdef __SANITIZE_ADDRESS__
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, bottom(), kStackBytes);
#endif
    switch_stack(scheduler, place_);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  /// On the fiber, once, first of all.
  void arrive() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom_, &scheduler_bytes_);
#endif
  }

  /// On the fiber: goes back to the scheduler until it is entered again.
  void leave(StackPlace& scheduler) {
#ifdef __SANITIZE_ADDRESS__
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, scheduler_bottom_, scheduler_bytes_);
#endif
    switch_stack(place_, scheduler);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, &scheduler_bottom_, &scheduler_bytes_);
#endif
  }

 private:
  std::byte* bottom() const { return static_cast<std::byte*>(memory_) + kGuardBytes; }

  void* memory_;
  StackPlace place_;
#ifdef __SANITIZE_ADDRESS__
  const void* scheduler_bottom_ = nullptr;
  size_t scheduler_bytes_ = 0;
#endif
};

/// A thread that stands at a barrier.
struct Waiting {
  Fiber* fiber;
  unsigned thread;
  const char* file;
  int line;
};

struct SharedArray {
  std::unique_ptr<std::byte[]> memory;
  size_t bytes = 0;
  bool is_of_this_block = false;
};

/// Runs blocks. A fiber runs threads one after the other until one waits at a barrier; only then the next thread gets another fiber.
class Device {
 public:
  void set_order(uint64_t seed) { shuffler_ = Shuffler(seed); }

  void run_grid(dim3 grid, int threads, const std::function<void()>& thread) {
    if (error_ != cudaSuccess) {
      return;
    }
    try {
      require_launchable(grid, threads);
      thread_ = &thread;
      gridDim = grid;
      blockDim = dim3(static_cast<unsigned>(threads));
      run_blocks();
    } catch (const Fault& fault) {
      error_ = fault.code;
      fault_ = fault.what();
      free_.clear();
      fibers_.clear();  // Threads that the fault caught at a barrier.
    }
  }

  cudaError_t take_error() { return std::exchange(error_, cudaSuccess); }
  std::string take_fault() { return std::exchange(fault_, {}); }

  void wait_for_block(const char* file, int line) {
    Fiber* fiber = running_;
    waiting_.push_back({fiber, threadIdx.x, file, line});
    fiber->leave(scheduler_);
  }

  void* shared_array(const char* place, size_t bytes) {
    SharedArray& array = shared_[place];
    if (!array.is_of_this_block) {
      if (array.bytes != bytes) {
        array.memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
        array.bytes = bytes;
      }
      std::memset(array.memory.get(), 0xFF, bytes);
      array.is_of_this_block = true;
      shared_bytes_ += bytes;
      if (shared_bytes_ > kSharedBytes) {
        throw Fault(cudaErrorInvalidConfiguration, "a block's static shared memory is " + std::to_string(shared_bytes_) + " bytes");
      }
    }
    return array.memory.get();
  }

  /// What a fiber does: threads, until none is left to start.
  void run_fiber() {
    Fiber* fiber = running_;
    fiber->arrive();
    for (;;) {
      try {
        while (num_started_ < order_.size()) {
          threadIdx.x = order_[num_started_++];
          (*thread_)();
        }
      } catch (const Fault& fault) {
        fault_of_thread_ = std::make_unique<Fault>(fault);
      }
      free_.push_back(fiber);
      fiber->leave(scheduler_);
    }
  }

 private:
  static void require_launchable(dim3 grid, int threads) {
    if (threads < 1 || threads > static_cast<int>(kMostThreads)) {
      throw Fault(cudaErrorInvalidConfiguration, "a block has 1 to 1024 threads, not " + std::to_string(threads));
    }
    const auto is_within = [](unsigned blocks, unsigned most) { return blocks >= 1 && blocks <= most; };
    if (!is_within(grid.x, kMostBlocksAcross) || !is_within(grid.y, kMostBlocksDown) || !is_within(grid.z, kMostBlocksDown)) {
      throw Fault(cudaErrorInvalidConfiguration, "no grid can have " + text_of(grid) + " blocks");
    }
  }

  void run_blocks() {
    std::vector<uint64_t> blocks(uint64_t{gridDim.x} * gridDim.y * gridDim.z);
    std::iota(blocks.begin(), blocks.end(), uint64_t{0});
    shuffler_.shuffle(blocks);
    for (const uint64_t block : blocks) {
      blockIdx = {static_cast<unsigned>(block % gridDim.x), static_cast<unsigned>(block / gridDim.x % gridDim.y),
                  static_cast<unsigned>(block / gridDim.x / gridDim.y)};
      run_block();
    }
  }

  void run_block() {
    shared_bytes_ = 0;
    for (auto& [place, array] : shared_) {
      array.is_of_this_block = false;
    }
    waiting_.clear();
    order_.resize(blockDim.x);
    std::iota(order_.begin(), order_.end(), 0U);
    shuffler_.shuffle(order_);
    num_started_ = 0;
    while (num_started_ < order_.size()) {
      enter(free_fiber());
    }
    while (!waiting_.empty()) {
      require_whole_block();
      std::vector<Waiting> released = std::exchange(waiting_, {});
      shuffler_.shuffle(released);
      for (const Waiting& thread : released) {
        threadIdx.x = thread.thread;
        enter(thread.fiber);
      }
    }
  }

  void enter(Fiber* fiber) {
    running_ = fiber;
    fiber->enter(scheduler_);
    if (fault_of_thread_ != nullptr) {
      const auto fault = std::move(fault_of_thread_);
      throw Fault(*fault);
    }
  }

  void require_whole_block() const {
    const Waiting& first = waiting_.front();
    const std::string where = std::string(first.file) + ":" + std::to_string(first.line);
    if (waiting_.size() != blockDim.x) {
      throw Fault(cudaErrorLaunchFailure, "only " + std::to_string(waiting_.size()) + " of " + std::to_string(blockDim.x) +
                                              " threads come to the barrier at " + where);
    }
    for (const Waiting& other : waiting_) {
      if (other.line != first.line || std::strcmp(other.file, first.file) != 0) {
        throw Fault(cudaErrorLaunchFailure,
                    "threads of one block wait at several barriers: " + where + " and " + other.file + ":" + std::to_string(other.line));
      }
    }
  }

  Fiber* free_fiber();

  Shuffler shuffler_{0};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  std::map<const char*, SharedArray> shared_;
  cudaError_t error_ = cudaSuccess;
  std::string fault_;

  // Of the block that runs.
  StackPlace scheduler_;
  const std::function<void()>* thread_ = nullptr;
  Fiber* running_ = nullptr;
  std::vector<unsigned> order_;
  size_t num_started_ = 0;
  std::vector<Waiting> waiting_;
  std::unique_ptr<Fault> fault_of_thread_;
  size_t shared_bytes_ = 0;
};

Device& device() {
  static Device only;
  return only;
}

Fiber* Device::free_fiber() {
  if (free_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>([] { device().run_fiber(); }));
    return fibers_.back().get();
  }
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

}  // namespace

void set_order(uint64_t seed) { device().set_order(seed); }

void run_grid(dim3 grid, int threads, const std::function<void()>& thread) { device().run_grid(grid, threads, thread); }

std::string take_fault() { return device().take_fault(); }

void* shared_array(const char* place, size_t bytes) { return device().shared_array(place, bytes); }

void require_aligned(const void* address, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) {
    throw Fault(cudaErrorLaunchFailure, "an access of " + std::to_string(alignment) + " bytes is misaligned, in thread " +
                                            std::to_string(threadIdx.x) + " of block (" + std::to_string(blockIdx.x) + ", " +
                                            std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z) + ")");
  }
}

void wait_for_block(const char* file, int line) { device().wait_for_block(file, line); }

}  // namespace emulation

cudaError_t cudaGetLastError() { return emulation::device().take_error(); }
