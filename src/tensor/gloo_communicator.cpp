// torch's wheel has Gloo within libtorch_cpu, but not its headers: third_party/gloo_declarations stands in for them.
#define USE_C10D_GLOO 1
#define USE_DISTRIBUTED 1
#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;
using Clock = std::chrono::steady_clock;

// Exceptions of c10d carry a backtrace after their first line.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

bool is_loopback(const std::string& host) {
  constexpr int kLoopbackNetwork = 127;
  in_addr address{};
  return host == "localhost" || host == "::1" ||
         (inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24U == kLoopbackNetwork);
}

constexpr auto kLook = std::chrono::milliseconds(50);  // How late a stop request may be seen while others are waited for,
constexpr auto kAttempt = std::chrono::seconds(2);     // and while there is no store yet.
constexpr auto kFarewell = std::chrono::seconds(10);   // How long rank 0 keeps the store for others to read why the ranks part.

/// A listening socket that this machine alone can reach: TCPStore's own listens on every address.
Result<int> listen_on_loopback(int64_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener, SOMAXCONN) != 0) {
    const std::string reason = std::strerror(errno);
    close(listener);
    return Status::unavailable("rank 0 cannot listen for the other ranks; set another MASTER_PORT (port, reason):", port, reason);
  }
  return listener;
}

// A store that is not there yet is tried again and again: an attempt sees no stop request.
Result<StorePointer> connect_to_store(const RankPlace& place, const std::string& host, const c10d::TCPStoreOptions& options,
                                      std::chrono::seconds patience, const std::stop_token& stop) {
  const auto end = Clock::now() + patience;
  c10d::TCPStoreOptions attempt = options;
  attempt.timeout = options.isServer ? options.timeout : std::min<std::chrono::milliseconds>(options.timeout, kAttempt);
  for (;;) {
    try {
      StorePointer store = c10::make_intrusive<c10d::TCPStore>(host, attempt);
      store->setTimeout(options.timeout);
      return store;
    } catch (const std::exception& error) {
      if (options.isServer || Clock::now() >= end) {
        return Status::unavailable("no connection to the store where the ranks meet (rank, host, port, reason):", place.rank, place.host,
                                   place.port, first_line(error));
      }
    }
    if (stop.stop_requested()) {
      return Status::cancelled("stopped on request while there was no rank 0 yet (this rank, host, port):", place.rank, place.host,
                               place.port);
    }
    std::this_thread::sleep_for(kLook);
  }
}

Result<StorePointer> open_store(const RankPlace& place, bool may_host, std::chrono::seconds patience, const std::stop_token& stop) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = may_host && place.rank == 0 && place.hosts_store;
  options.numWorkers = static_cast<size_t>(place.size);
  options.waitWorkers = false;
  options.timeout = patience;
  const bool is_local = is_loopback(place.host);
  if (options.isServer && is_local) {
    DARKROOM_ASSIGN_OR_RETURN(options.masterListenFd, listen_on_loopback(place.port));
  }
  return connect_to_store(place, is_local ? "127.0.0.1" : place.host, options, patience, stop);
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// Names the first field in which two agreements differ.
Status compare_agreements(int64_t rank, const std::string& ours, int64_t other, const std::string& theirs) {
  if (ours == theirs) {
    return {};
  }
  const auto mine = parse_json(ours), yours = parse_json(theirs);
  if (mine.is_object() && yours.is_object()) {
    for (const auto& [field, value] : mine.items()) {
      if (!yours.contains(field) || yours[field] != value) {
        return Status::failed_precondition(
            "the ranks do not want the same run; they differ in (field, this rank, its value, other rank, its value):", field, rank,
            value.dump(), other, yours.value(field, nlohmann::json()).dump());
      }
    }
  }
  return Status::failed_precondition("what joins the ranks here is no rank of this run (this rank, other rank):", rank, other);
}

/// What the ranks say in the store before they know each other. Errors of all: also exceptions of c10d, when the store is gone.
class Meeting {
 public:
  Meeting(c10d::Store& store, const GlooOptions& options, std::string agreement)
      : store_(store), place_(options.place), patience_(options.arrival), stop_(options.stop), agreement_(std::move(agreement)) {}

  /// Rank 0 compares all with itself and tells them what it found, so that all ranks end alike.
  Status agree() {
    store_.set(agreement_of(place_.rank), bytes_of(agreement_));
    return place_.rank == 0 ? judge() : take_verdict();
  }

 private:
  static constexpr const char* kVerdict = "verdict";
  static constexpr const char* kStop = "stop";
  static std::string agreement_of(int64_t rank) { return "agreement/" + std::to_string(rank); }
  static std::string told(int64_t rank) { return "told/" + std::to_string(rank); }

  Status judge() {
    const Status verdict = compare_all();
    store_.set(kVerdict, bytes_of(nlohmann::json({{"code", static_cast<int>(verdict.code())}, {"message", verdict.message()}}).dump()));
    if (!verdict.is_ok()) {
      wait_until_told();
    }
    return verdict;
  }

  Status compare_all() {
    Status first_difference;
    auto end = Clock::now() + patience_;
    for (int64_t other = 1; other < place_.size; ++other) {
      const auto theirs = wait_for(agreement_of(other), end);
      if (!theirs.is_ok() && !first_difference.is_ok()) {
        return first_difference;
      }
      if (!theirs.is_ok() && theirs.status().code() == StatusCode::kUnavailable) {
        return Status::unavailable("a rank did not come in time (this rank, missing rank, seconds):", place_.rank, other,
                                   patience_.count());
      }
      DARKROOM_RETURN_IF_ERROR(theirs.status());
      const Status compared = compare_agreements(0, agreement_, other, *theirs);
      if (first_difference.is_ok() && !compared.is_ok()) {
        first_difference = compared;
        end = std::min(end, Clock::now() + kFarewell);  // Who comes a little later is told, too.
      }
    }
    return first_difference;
  }

  // The store goes with rank 0: those who came have to read the verdict first.
  void wait_until_told() {
    const auto end = Clock::now() + kFarewell;
    for (int64_t other = 1; other < place_.size; ++other) {
      while (store_.check({agreement_of(other)}) && !store_.check({told(other)}) && Clock::now() < end) {
        std::this_thread::sleep_for(kLook);
      }
    }
  }

  Status take_verdict() {
    const auto text = wait_for(kVerdict, Clock::now() + 2 * patience_);  // Rank 0 may have come late and wait for others.
    if (!text.is_ok()) {
      return text.status();
    }
    const auto json = parse_json(*text);
    const auto code = static_cast<StatusCode>(json.value("code", static_cast<int>(StatusCode::kInternal)));
    const std::string message = json.value("message", std::string());
    const Status verdict = code == StatusCode::kOk            ? Status()
                           : code == StatusCode::kUnavailable ? Status::unavailable(message)
                           : code == StatusCode::kCancelled   ? Status::cancelled(message)
                                                              : Status::failed_precondition(message);
    const Status own = compare_agreements(place_.rank, agreement_, 0, text_of(store_.get(agreement_of(0))));
    store_.set(told(place_.rank), bytes_of("yes"));
    return own.is_ok() ? verdict : own;
  }

  // Looks instead of waiting within the store, which would see no stop request. One rank's stop is everybody's.
  Result<std::string> wait_for(const std::string& key, Clock::time_point end) {
    while (!store_.check({key})) {
      if (stop_.stop_requested()) {
        store_.set(kStop, bytes_of("yes"));
      }
      if (store_.check({kStop})) {
        return Status::cancelled("stopped on request while the ranks were still coming; this rank:", place_.rank);
      }
      if (Clock::now() >= end) {
        return Status::unavailable("rank 0 said nothing in time; this rank:", place_.rank);
      }
      std::this_thread::sleep_for(kLook);
    }
    return text_of(store_.get(key));
  }

  c10d::Store& store_;
  const RankPlace& place_;
  const std::chrono::seconds patience_;
  const std::stop_token stop_;
  const std::string agreement_;
};

/// Looks whether the next rank and the store still give signs of life. A connection of its own, because a store call waits for its answer:
/// one thread asks, another sees when no answer came.
class RankWatch {
 public:
  RankWatch(StorePointer store, const RankPlace& place, std::chrono::seconds period, std::function<void(const std::string&)> on_lost)
      : store_(std::move(store)), place_(place), period_(period), on_lost_(std::move(on_lost)), last_round_(Clock::now()) {
    asking_ = std::thread([this] { ask(); });
    waiting_ = std::thread([this] { wait(); });
  }
  ~RankWatch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    asking_.join();  // A store that hangs is still watched.
    waiting_.join();
  }
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  // Whether this process itself stood still between two looks (SIGSTOP of all, a suspended machine): nobody else's silence.
  bool was_away(Clock::time_point before, Clock::time_point now) const { return now - before > std::chrono::milliseconds(period_) / 2; }
  // Four looks a period. False: the watch has ended.
  bool pause() {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, std::chrono::milliseconds(period_) / 4, [this] { return ended_; });
  }
  void lose(const std::string& what) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) {
        return;
      }
    }
    on_lost_(what);
  }
  void ask() {
    ask_until_end();
    {
      const std::lock_guard lock(mutex_);
      asked_ = true;
    }
    changed_.notify_all();
  }
  void ask_until_end() {
    const int64_t next = (place_.rank + 1) % place_.size;
    int64_t seen = -1;
    Clock::time_point since = Clock::now(), looked = since;
    while (pause()) {
      try {
        store_->add("alive/" + std::to_string(place_.rank), 1);
        const int64_t count = store_->add("alive/" + std::to_string(next), 0);
        const auto now = Clock::now();
        if (count != seen || was_away(looked, now)) {
          seen = count;
          since = now;
        }
        looked = now;
        {
          const std::lock_guard lock(mutex_);
          last_round_ = now;
        }
        if (now - since > period_) {
          lose("rank " + std::to_string(next) + " gives no sign of life");
          return;
        }
      } catch (const std::exception&) {
        return;  // The other thread sees that no round was finished.
      }
    }
  }
  void wait() {
    std::unique_lock lock(mutex_);
    Clock::time_point looked = Clock::now();
    while (!changed_.wait_for(lock, std::chrono::milliseconds(period_) / 4, [this] { return ended_ && asked_; })) {
      const auto now = Clock::now();
      last_round_ = was_away(looked, now) ? now : last_round_;
      looked = now;
      if (now - last_round_ > period_) {
        lock.unlock();
        on_lost_("the store at " + place_.host + " gives no answer");
        return;
      }
    }
  }

  StorePointer store_;
  const RankPlace place_;
  const std::chrono::seconds period_;
  const std::function<void(const std::string&)> on_lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  bool asked_ = false;  // The asking thread is done.
  Clock::time_point last_round_;
  std::thread asking_;
  std::thread waiting_;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(StorePointer store, c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const GlooOptions& options)
      : store_(std::move(store)), group_(std::move(group)), options_(options) {}

  Status watch(StorePointer store) {
    watch_ = std::make_unique<RankWatch>(std::move(store), options_.place, options_.watchdog, options_.on_lost);
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

  Status finish() override {
    const torch::Tensor nothing = torch::zeros({1});
    DARKROOM_RETURN_IF_ERROR(all_reduce(nothing));
    watch_.reset();
    return {};
  }

 private:
  static constexpr int kTag = 0;  // Gloo keeps the order between two ranks.

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
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  GlooOptions options_;
  Status failure_;
  std::unique_ptr<RankWatch> watch_;
};

// What fails is an error of ours; torch would print the same as pages of backtrace. Asking for its log brings them back.
void silence_torch_log() {
  constexpr int kFatal = 3;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = kFatal;
  }
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect(const StorePointer& store, const GlooOptions& options) {
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

}  // namespace

Result<std::unique_ptr<Communicator>> join_gloo(const GlooOptions& options) {
  const RankPlace& place = options.place;
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size) {
    return Status::invalid_argument("a rank is outside its world (rank, ranks):", place.rank, place.size);
  }
  if (options.watchdog < std::chrono::seconds(1)) {
    return Status::invalid_argument("the watchdog must be at least 1 second, got:", options.watchdog.count());
  }
  silence_torch_log();
  DARKROOM_ASSIGN_OR_RETURN(const StorePointer base, open_store(place, /*may_host=*/true, options.arrival, options.stop));
  try {
    const std::string prefix = "darkroom/" + place.attempt;
    const StorePointer store = c10::make_intrusive<c10d::PrefixStore>(prefix, base);
    auto agreement = parse_json(options.agreement);
    if (!agreement.is_object()) {
      agreement = nlohmann::json::object();
    }
    agreement["number of ranks"] = place.size;
    DARKROOM_RETURN_IF_ERROR(Meeting(*store, options, agreement.dump()).agree());
    auto communicator = std::make_unique<GlooCommunicator>(base, connect(store, options), options);
    if (options.on_lost) {
      DARKROOM_ASSIGN_OR_RETURN(const StorePointer second, open_store(place, /*may_host=*/false, options.arrival, options.stop));
      DARKROOM_RETURN_IF_ERROR(communicator->watch(c10::make_intrusive<c10d::PrefixStore>(prefix, second)));
    }
    return std::unique_ptr<Communicator>(std::move(communicator));
  } catch (const std::exception& error) {
    return Status::unavailable("the ranks cannot connect to each other (this rank, ranks, reason):", place.rank, place.size,
                               first_line(error));
  }
}

}  // namespace darkroom
