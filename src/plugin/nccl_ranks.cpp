#include "nccl_ranks.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {
namespace {

using Clock = std::chrono::steady_clock;

// How often a call looks whether NCCL has begun its work: all the time at first, for that takes microseconds.
constexpr std::chrono::microseconds kBusy{500};
constexpr std::chrono::milliseconds kPause{1};
// One call's work on the host: connections to peers that were not talked to before.
// The peer may be as late as in any exchange: whether it lives is not seen here.
constexpr std::chrono::seconds kLongestCall{7200};

Status nccl_failure(ncclResult_t result, ncclComm_t group) {
  std::string reason = ncclGetErrorString(result);
  if (const char* detail = ncclGetLastError(group); detail != nullptr && *detail != '\0') {
    reason += std::string("; ") + detail;
  }
  if (result == ncclInvalidUsage || result == ncclInvalidArgument) {  // Two ranks with one GPU, say: it would be so again.
    return Status::failed_precondition("NCCL refuses these ranks:", reason);
  }
  return Status::unavailable("NCCL says:", reason);
}

// A group whose calls do not block: what they began goes on in NCCL's own threads until ncclCommGetAsyncError says that it is done.
class NcclRanks final : public GpuRanks {
 public:
  explicit NcclRanks(int gpu) : gpu_(static_cast<c10::DeviceIndex>(gpu)) {}
  ~NcclRanks() override { abort(); }

  Status join(const GpuMeeting& meeting) {
    const c10::cuda::CUDAGuard guard(gpu_);
    ncclUniqueId id;
    if (meeting.id.size() != sizeof id) {
      return Status::unavailable("rank 0 speaks of another NCCL (bytes of its name, want):", meeting.id.size(), sizeof id);
    }
    std::memcpy(&id, meeting.id.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun = ncclCommInitRankConfig(&group_, static_cast<int>(meeting.size), id, static_cast<int>(meeting.rank), &config);
    const Status joined = complete(begun, meeting.patience);
    if (!joined.is_ok()) {
      abort();
    }
    return joined;
  }

  Status exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) override {
    const c10::cuda::CUDAGuard guard(gpu_);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(gpu_).stream();
    return group_call([&] {
      ncclResult_t result = ncclSuccess;
      const auto add = [&](ncclResult_t added) { result = result == ncclSuccess && added != ncclInProgress ? added : result; };
      for (const auto& [peer, tensor] : receives) {
        if (tensor.numel() > 0) {
          add(ncclRecv(tensor.data_ptr(), tensor.nbytes(), ncclInt8, static_cast<int>(peer), group_, stream));
        }
      }
      for (const auto& [peer, tensor] : sends) {
        if (tensor.numel() > 0) {
          add(ncclSend(tensor.const_data_ptr(), tensor.nbytes(), ncclInt8, static_cast<int>(peer), group_, stream));
        }
      }
      return result;
    });
  }

  Status all_reduce(const at::Tensor& tensor) override {
    DARKROOM_CHECK(tensor.scalar_type() == at::kFloat && tensor.is_contiguous(), "what ranks sum is contiguous float32:", tensor.numel());
    if (tensor.numel() == 0) {
      return health();
    }
    const c10::cuda::CUDAGuard guard(gpu_);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(gpu_).stream();
    return group_call([&] {
      return ncclAllReduce(tensor.const_data_ptr(), tensor.data_ptr(), static_cast<size_t>(tensor.numel()), ncclFloat, ncclSum, group_,
                           stream);
    });
  }

  Status health() override {
    const std::lock_guard lock(mutex_);
    if (group_ == nullptr) {
      return given_up();
    }
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(group_, &state);
    const ncclResult_t result = asked != ncclSuccess ? asked : state;
    return result == ncclSuccess || result == ncclInProgress ? Status::ok() : nccl_failure(result, group_);
  }

  void abort() override {
    const std::lock_guard lock(mutex_);
    if (group_ == nullptr) {
      return;
    }
    try {
      const c10::cuda::CUDAGuard guard(gpu_);
      ncclCommAbort(std::exchange(group_, nullptr));
    } catch (const c10::Error&) {
      // The GPU answers nothing any more: whatever waits for it has heard that.
    }
  }

 private:
  static Status given_up() { return Status::unavailable("the GPUs' connections have been given up"); }

  // Waits until NCCL has begun what a call asked for; what the GPU does with it is another matter.
  Status complete(ncclResult_t begun, std::chrono::milliseconds patience) {
    ncclResult_t state = begun;
    const auto start = Clock::now(), end = start + patience;
    while (state == ncclInProgress) {
      {
        const std::lock_guard lock(mutex_);
        if (group_ == nullptr) {
          return given_up();
        }
        if (const ncclResult_t asked = ncclCommGetAsyncError(group_, &state); asked != ncclSuccess) {
          state = asked;
        }
      }
      if (state == ncclInProgress) {
        const auto now = Clock::now();
        if (now > end) {
          return Status::unavailable("the other GPUs do not answer (milliseconds):", patience.count());
        }
        now < start + kBusy ? std::this_thread::yield() : std::this_thread::sleep_for(kPause);
      }
    }
    const std::lock_guard lock(mutex_);
    return state == ncclSuccess ? Status::ok() : nccl_failure(state, group_);
  }

  template <typename Calls>
  Status group_call(const Calls& calls) {
    ncclResult_t result = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (group_ == nullptr) {
        return given_up();
      }
      result = ncclGroupStart();
      const ncclResult_t called = calls();
      const ncclResult_t ended = ncclGroupEnd();
      for (const ncclResult_t next : {called, ended}) {
        result = result == ncclSuccess ? next : result;
      }
    }
    return complete(result, kLongestCall);
  }

  const c10::DeviceIndex gpu_;
  std::mutex mutex_;  // Of the group: the watch looks and gives up meanwhile.
  ncclComm_t group_ = nullptr;
};

// Before NCCL's first call in a process. Who has named an interface keeps it.
void listen_to(bool is_loopback) {
  if (is_loopback) {
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  }
}

}  // namespace

Status make_nccl_id(bool is_loopback, std::string& id) {
  listen_to(is_loopback);
  ncclUniqueId unique;
  if (const ncclResult_t result = ncclGetUniqueId(&unique); result != ncclSuccess) {
    return nccl_failure(result, nullptr);
  }
  id.assign(reinterpret_cast<const char*>(&unique), sizeof unique);
  return Status::ok();
}

Status join_nccl_ranks(const GpuMeeting& meeting, std::unique_ptr<GpuRanks>& ranks) {
  listen_to(meeting.is_loopback);
  if (std::getenv(kShareGpuVariable) != nullptr) {
    // Of two ranks with one GPU of one machine NCCL says that it is a mistake.
    setenv("NCCL_HOSTID", ("rank " + std::to_string(meeting.rank)).c_str(), 0);
  }
  auto joined = std::make_unique<NcclRanks>(meeting.gpu);
  DARKROOM_RETURN_IF_ERROR(joined->join(meeting));
  ranks = std::move(joined);
  return Status::ok();
}

}  // namespace darkroom
