#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/tensor/communicator.h"
#include "darkroom/tensor/cuda_plugin.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};

// Looks whether what the GPUs exchange goes well: who waits for a GPU does not see that its peer is gone.
class GpuWatch {
 public:
  GpuWatch(GpuRanks& gpus, const GpuJoinOptions& options)
      : gpus_(gpus),
        on_lost_(options.on_lost),
        longest_(options.longest),
        thread_([this](const std::stop_token& stop) { look_until(stop); }) {}

  /// The GPU has been asked for something that another rank has a part in.
  void begin() {
    const std::lock_guard lock(mutex_);
    asked_ = asked_.value_or(Clock::now());
  }
  /// All that it was asked for is done.
  void end() {
    const std::lock_guard lock(mutex_);
    asked_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Ends the process, or else whatever waits: a group that is given up leaves garbage, which nobody must take for a result.
  void lose(const std::string& what) {
    if (on_lost_) {
      on_lost_(what);
    } else {
      gpus_.abort();
    }
  }

  void look_until(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      const bool is_late = asked_.has_value() && Clock::now() - *asked_ > longest_;
      const Status health = is_late ? Status::unavailable("the other GPUs give no answer (seconds):", longest_.count()) : gpus_.health();
      if (!health.is_ok()) {
        lock.unlock();
        lose(health.message());
        return;
      }
      changed_.wait_for(lock, stop, kLookEvery, [] { return false; });
    }
  }

  GpuRanks& gpus_;
  const std::function<void(const std::string&)> on_lost_;
  const std::chrono::seconds longest_;
  std::mutex mutex_;
  std::optional<Clock::time_point> asked_;  // Since when an answer is awaited.
  std::condition_variable_any changed_;
  std::jthread thread_;  // The last member: it uses the others.
};

class GpuCommunicator final : public Communicator {
 public:
  GpuCommunicator(std::unique_ptr<Communicator> ranks, std::unique_ptr<GpuRanks> gpus, const GpuJoinOptions& options)
      : ranks_(std::move(ranks)),
        gpus_(std::move(gpus)),
        device_(torch::kCUDA, static_cast<c10::DeviceIndex>(options.gpu)),
        watch_(std::make_unique<GpuWatch>(*gpus_, options)) {}

  int64_t rank() const override { return ranks_->rank(); }
  int64_t size() const override { return ranks_->size(); }

  Status exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) override {
    DARKROOM_RETURN_IF_ERROR(failure_);
    if (sends.empty() && receives.empty()) {  // Whoever asks has waited for the GPU.
      end();
      return keep(gpus_->health());
    }
    if (!are_on_gpu(sends, receives)) {
      return keep(ranks_->exchange(sends, receives));
    }
    begin();
    for (const Transfer& transfer : sends) {
      gpu_bytes_sent_ += static_cast<int64_t>(transfer.tensor.nbytes());
    }
    return keep(gpus_->exchange(sends, receives));
  }

  Status all_reduce(const torch::Tensor& tensor) override {
    DARKROOM_RETURN_IF_ERROR(failure_);
    if (!tensor.is_cuda()) {
      return keep(ranks_->all_reduce(tensor));
    }
    begin();
    return keep(gpus_->all_reduce(tensor));
  }

  int64_t bytes_sent() const override { return ranks_->bytes_sent() + gpu_bytes_sent_; }
  ProgressMark* progress() override { return ranks_->progress(); }

  Result<std::unique_ptr<Communicator>> twin(const std::string& name) override { return ranks_->twin(name); }

  Status finish() override {
    synchronize(device_);
    DARKROOM_RETURN_IF_ERROR(exchange({}, {}));
    watch_.reset();  // The first rank that ends closes its connections.
    return keep(ranks_->finish());
  }

 private:
  bool are_on_gpu(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) const {
    size_t on_gpu = 0;
    for (const auto* transfers : {&sends, &receives}) {
      for (const Transfer& transfer : *transfers) {
        DARKROOM_CHECK(transfer.peer >= 0 && transfer.peer < size() && transfer.peer != rank(),
                       "a transfer goes to another rank:", transfer.peer);
        DARKROOM_CHECK(transfer.tensor.is_contiguous(), "what ranks exchange is contiguous (peer):", transfer.peer);
        on_gpu += transfer.tensor.device() == device_ ? 1 : 0;
      }
    }
    DARKROOM_CHECK(on_gpu == 0 || on_gpu == sends.size() + receives.size(),
                   "what ranks exchange at once is on CPUs or on GPUs (on GPUs):", on_gpu);
    return on_gpu > 0;
  }

  // Whoever waits for the GPU from here to end() waits for other ranks.
  void begin() {
    watch_->begin();
    if (!std::exchange(is_awaited_, true) && progress() != nullptr) {
      progress()->begin_wait();
    }
  }
  void end() {
    watch_->end();
    if (std::exchange(is_awaited_, false) && progress() != nullptr) {
      progress()->end_wait();
    }
  }

  Status keep(Status status) {
    failure_ = std::move(status);
    return failure_;
  }

  std::unique_ptr<Communicator> ranks_;
  std::unique_ptr<GpuRanks> gpus_;
  const torch::Device device_;
  int64_t gpu_bytes_sent_ = 0;
  bool is_awaited_ = false;  // What a GPU was asked for with others.
  Status failure_;
  std::unique_ptr<GpuWatch> watch_;  // It uses gpus_.
};

// The one that rank 0 made.
Result<std::string> share_id(Communicator& ranks, const CudaPlugin& plugin, bool is_loopback) {
  std::string id;
  const Status made = ranks.rank() == 0 ? plugin.make_gpu_ranks_id(is_loopback, id) : Status::ok();
  DARKROOM_ASSIGN_OR_RETURN(const std::string told, broadcast_text(ranks, 0, id));  // An empty one ends the others, too.
  DARKROOM_RETURN_IF_ERROR(made);
  if (told.empty()) {
    return Status::unavailable("rank 0 cannot open a group of GPUs, as it says itself; this rank:", ranks.rank());
  }
  return told;
}

}  // namespace

Result<std::unique_ptr<Communicator>> join_gpus(std::unique_ptr<Communicator> ranks, const GpuJoinOptions& options) {
  const CudaPlugin* plugin = loaded_cuda_plugin();
  DARKROOM_CHECK(plugin != nullptr && ranks->size() > 1, "GPUs are joined of several ranks with a plugin (ranks):", ranks->size());
  DARKROOM_ASSIGN_OR_RETURN(const std::string id, share_id(*ranks, *plugin, options.is_loopback));
  const GpuMeeting meeting{.id = id,
                           .gpu = options.gpu,
                           .rank = ranks->rank(),
                           .size = ranks->size(),
                           .patience = options.arrival,
                           .is_loopback = options.is_loopback};
  std::unique_ptr<GpuRanks> gpus;
  const Status joined = plugin->join_gpu_ranks(meeting, gpus);
  DARKROOM_RETURN_IF_ERROR(joined.with_context("the ranks' GPUs"));
  return std::unique_ptr<Communicator>(std::make_unique<GpuCommunicator>(std::move(ranks), std::move(gpus), options));
}

}  // namespace darkroom
