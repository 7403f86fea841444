// torch's wheel has Gloo within libtorch_cpu, but not its headers: third_party/gloo_declarations stands in for them.
#define USE_C10D_GLOO 1
#define USE_DISTRIBUTED 1
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/tensor/communicator.h"
#include "gloo_meeting.h"
#include "rank_watch.h"

namespace darkroom {
namespace {

constexpr const char* kPrefix = "darkroom/";  // Of the keys in the store.

using GroupPointer = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

GroupPointer connect(const StorePointer& store, const GlooOptions& options) {
  auto group_options = c10d::ProcessGroupGloo::Options::create_default(options.longest);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");  // As in PyTorch.
  if (is_loopback(options.place.host)) {
    group_options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  } else if (interface != nullptr) {
    group_options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface(interface)};
  }
  group_options->timeout = options.arrival;  // Of connecting.
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(options.place.rank),
                                                           static_cast<int>(options.place.size), group_options);
  group->setTimeout(options.longest);
  return group;
}

Status no_connection(const RankPlace& place, const std::exception& reason) {
  return Status::unavailable("the ranks cannot connect to each other (this rank, ranks, reason):", place.rank, place.size,
                             first_line(reason));
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(StorePointer store, GroupPointer group, const GlooOptions& options, std::shared_ptr<ProgressMark> progress)
      : store_(std::move(store)), group_(std::move(group)), options_(options), progress_(std::move(progress)) {}

  Status watch(StorePointer store) {
    watch_ = std::make_unique<RankWatch>(std::move(store), options_.place, options_.watchdog, progress_, options_.on_lost);
    return {};
  }

  int64_t rank() const override { return options_.place.rank; }
  int64_t size() const override { return options_.place.size; }

  Status exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) override {
    return guarded([&] {
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      for (const auto* transfers : {&receives, &sends}) {
        for (const Transfer& transfer : *transfers) {
          check(transfer);
          if (transfer.tensor.numel() == 0) {
            continue;
          }
          std::vector<torch::Tensor> tensors = {transfer.tensor};
          const int peer = static_cast<int>(transfer.peer);
          bytes_sent_ += transfers == &sends ? static_cast<int64_t>(transfer.tensor.nbytes()) : 0;
          works.push_back(transfers == &sends ? group_->send(tensors, peer, kTag) : group_->recv(tensors, peer, kTag));
        }
      }
      for (const auto& work : works) {
        work->wait(options_.longest);
      }
    });
  }

  Status all_reduce(const torch::Tensor& tensor) override {
    return guarded([&] {
      std::vector<torch::Tensor> tensors = {tensor};
      group_->allreduce(tensors)->wait(options_.longest);
    });
  }

  int64_t bytes_sent() const override { return bytes_sent_; }
  ProgressMark* progress() override { return progress_.get(); }

  // Without a watch: the first one's ends the process, and with it the twin.
  Result<std::unique_ptr<Communicator>> twin(const std::string& name) override {
    try {
      const StorePointer store = c10::make_intrusive<c10d::PrefixStore>(kPrefix + options_.place.attempt + "/" + name, store_);
      return std::unique_ptr<Communicator>(std::make_unique<GlooCommunicator>(store_, connect(store, options_), options_, progress_));
    } catch (const std::exception& error) {
      return no_connection(options_.place, error);
    }
  }

  Status finish() override {
    const torch::Tensor nothing = torch::zeros({1});
    DARKROOM_RETURN_IF_ERROR(all_reduce(nothing));
    watch_.reset();
    return {};
  }

 private:
  static constexpr int kTag = 0;  // Gloo keeps the order between two ranks.

  // While it lives, this thread may wait for other ranks.
  class Waiting {
   public:
    explicit Waiting(ProgressMark& progress) : progress_(progress) { progress_.begin_wait(); }
    ~Waiting() { progress_.end_wait(); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    ProgressMark& progress_;
  };

  void check(const Transfer& transfer) const {
    DARKROOM_CHECK(transfer.peer >= 0 && transfer.peer < size() && transfer.peer != rank(),
                   "a transfer goes to another rank:", transfer.peer);
    DARKROOM_CHECK(transfer.tensor.is_contiguous() && transfer.tensor.device().is_cpu(), "what ranks exchange is contiguous on the CPU");
  }

  template <typename Action>
  Status guarded(const Action& action) {
    if (!failure_.is_ok()) {
      return failure_;
    }
    const Waiting waiting(*progress_);
    try {
      action();
    } catch (const CheckFailure&) {
      throw;
    } catch (const std::exception& error) {
      failure_ =
          Status::unavailable("another rank has ended or gives no answer (this rank, ranks, reason):", rank(), size(), first_line(error));
    }
    return failure_;
  }

  StorePointer store_;  // Rank 0's is the server: it goes last.
  GroupPointer group_;
  GlooOptions options_;
  std::shared_ptr<ProgressMark> progress_;  // With the watch and the twins: one rank, whichever thread waits.
  int64_t bytes_sent_ = 0;
  Status failure_;
  std::unique_ptr<RankWatch> watch_;
};

std::string whole_agreement(const GlooOptions& options) {
  auto agreement = parse_json(options.agreement);
  if (!agreement.is_object()) {
    agreement = nlohmann::json::object();
  }
  agreement["number of ranks"] = options.place.size;
  return agreement.dump();
}

// What fails is an error of ours; torch would print the same as pages of backtrace. Asking for its log brings them back.
void silence_torch_log() {
  constexpr int kFatal = 3;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = kFatal;
  }
}

}  // namespace

Result<std::unique_ptr<Communicator>> join_gloo(const GlooOptions& options) {
  const RankPlace& place = options.place;
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size) {
    return Status::invalid_argument("a rank is outside its world (rank, ranks):", place.rank, place.size);
  }
  if (options.watchdog < std::chrono::seconds(1)) {
    return Status::invalid_argument("the watchdog must be at least 1 second, got:", options.watchdog.count());
  }
  if (options.progress < std::chrono::seconds(1)) {
    return Status::invalid_argument("the limit of progress must be at least 1 second, got:", options.progress.count());
  }
  silence_torch_log();
  const std::string agreement = whole_agreement(options);
  DARKROOM_ASSIGN_OR_RETURN(const StorePointer base, open_current_store(options, agreement));
  try {
    const StorePointer store = store_of_start(place, base);
    DARKROOM_RETURN_IF_ERROR(meet_ranks(*base, *store, options, agreement));
    auto communicator =
        std::make_unique<GlooCommunicator>(base, connect(store, options), options, std::make_shared<ProgressMark>(options.progress));
    if (options.on_lost) {
      DARKROOM_ASSIGN_OR_RETURN(const StorePointer second, open_store(place, /*may_host=*/false, options.arrival, options.stop));
      DARKROOM_RETURN_IF_ERROR(communicator->watch(store_of_start(place, second)));
    }
    return std::unique_ptr<Communicator>(std::move(communicator));
  } catch (const std::exception& error) {
    return no_connection(place, error);
  }
}

}  // namespace darkroom
