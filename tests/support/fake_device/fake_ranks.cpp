#include "fake_ranks.h"

#include <unistd.h>

#include <atomic>

#include "cpu_views.h"
#include "darkroom/tensor/communicator.h"
#include "fake_device.h"
#include "fake_fault.h"
#include "fake_memory.h"
#include "fake_order.h"
#include "support/free_loopback_port.h"

namespace darkroom::fake {
namespace {

class FakeRanks final : public GpuRanks {
 public:
  explicit FakeRanks(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  Status exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) override {
    ++num_exchanges_;
    CpuViews views;
    const auto on_cpu = [&](const std::vector<Transfer>& transfers, const auto& note) {
      const std::lock_guard lock(device_lock());
      std::vector<Transfer> seen;
      for (const auto& [peer, tensor] : transfers) {
        note(tensor, "exchange");
        seen.push_back({peer, views.view(tensor, "exchange")});
      }
      return seen;
    };
    return ranks_->exchange(on_cpu(sends, note_read), on_cpu(receives, note_write));
  }

  Status all_reduce(const at::Tensor& tensor) override {
    CpuViews views;
    note_write(tensor, "all_reduce");
    return ranks_->all_reduce(views.view(tensor, "all_reduce"));
  }

  Status health() override {
    return is_lost() ? Status::unavailable("the fake device's connection to another rank is lost, as was asked for") : Status::ok();
  }
  void abort() override {}

 private:
  // As it was asked for: after so many exchanges.
  bool is_lost() const {
    const int64_t most = number_of_fault("lost_rank");
    return most >= 0 && num_exchanges_ >= most;
  }

  std::unique_ptr<Communicator> ranks_;
  std::atomic<int> num_exchanges_ = 0;
};

}  // namespace

// A port of the loopback, and a name: another group may come to that port.
Status make_ranks_id(bool /*is_loopback*/, std::string& id) {
  const int64_t port = free_loopback_port();
  id = std::to_string(port) + " " + std::to_string(getpid());
  return port > 0 ? Status::ok() : Status::unavailable("the fake device finds no port");
}

Status join_ranks(const GpuMeeting& meeting, std::unique_ptr<GpuRanks>& ranks) {
  GlooOptions options;
  options.place = {.rank = meeting.rank, .size = meeting.size, .port = std::stoll(meeting.id)};
  options.agreement = R"({"group": ")" + meeting.id + R"("})";
  DARKROOM_ASSIGN_OR_RETURN(auto joined, join_gloo(options));
  ranks = std::make_unique<FakeRanks>(std::move(joined));
  return Status::ok();
}

}  // namespace darkroom::fake
