#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/tensor/device_event.h"
#include "darkroom/tensor/device_runtime.h"
#include "on_fake_device.h"
#include "small_trainer.h"
#include "support/rank_threads.h"

// Work on several streams of the fake device: what is not ordered is found, whenever it really ran; and a training step that sums on a
// stream of its own is ordered.

namespace darkroom {
namespace {

using testing::HasSubstr;

class Streams : public OnFakeDevice {
 protected:
  template <typename Function>
  void beside(const Function& function) const {
    const c10::StreamGuard guard(stream_);
    function();
  }
  // The other stream goes on behind what the default one was asked for, or the other way round.
  void other_waits() const {
    DeviceEvent event(device_);
    event.record();
    event.block(stream_);
  }
  void default_waits() const {
    DeviceEvent event(device_);
    event.record(stream_);
    event.block();
  }
  // What the device finds wrong with it; empty: nothing.
  template <typename Function>
  static std::string complaint_about(const Function& function) {
    try {
      function();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return {};
  }

  const c10::Stream stream_ = new_stream(device_);
};

TEST_F(Streams, accesses_that_no_event_orders_are_found) {
  const torch::Tensor x = torch::zeros({4}, there_);
  EXPECT_THAT(complaint_about([&] { beside([&] { (void)(x + 1); }); }), HasSubstr("aten::add"));
  other_waits();
  beside([&] { (void)(x + 1); });
  EXPECT_THAT(complaint_about([&] { x.add_(1); }), HasSubstr("reads, and has not waited for it")) << "a write behind a read";
  default_waits();
  x.add_(1);
  EXPECT_THAT(complaint_about([&] { beside([&] { x.add_(1); }); }), HasSubstr("changes, and has not waited for it"));
  EXPECT_THAT(complaint_about([&] { beside([&] { x.copy_(torch::ones({4}), true); }); }), HasSubstr("copy_"));
}

TEST_F(Streams, what_only_reads_or_touches_other_bytes_needs_no_order) {
  const torch::Tensor x = torch::zeros({4}, there_);
  other_waits();
  beside([&] { x.narrow(0, 0, 2).add_(1); });
  x.narrow(0, 2, 2).add_(1);
  EXPECT_THAT(complaint_about([&] { x.narrow(0, 1, 2).add_(1); }), HasSubstr("has not waited"));
  default_waits();
  other_waits();
  (void)(x + 1);
  beside([&] { (void)(x + 1); });
  synchronize(device_);
}

TEST_F(Streams, an_event_orders_what_came_before_it_alone_and_what_that_had_waited_for) {
  const torch::Tensor x = torch::zeros({4}, there_), y = torch::zeros({4}, there_);
  DeviceEvent event(device_);
  event.record();
  x.add_(1);
  event.block(stream_);
  beside([&] { y.add_(1); });
  EXPECT_THAT(complaint_about([&] { beside([&] { x.add_(1); }); }), HasSubstr("has not waited"));

  const c10::Stream third = new_stream(device_);
  DeviceEvent of_second(device_);
  of_second.record(stream_);
  of_second.block(third);
  {
    const c10::StreamGuard guard(third);
    y.add_(1);
  }
  synchronize(device_);
}

TEST_F(Streams, what_the_host_waited_for_is_done_for_all) {
  const torch::Tensor x = torch::ones({4}, there_);
  EXPECT_EQ(x.sum().item<float>(), 4);
  beside([&] { x.add_(1); });
  EXPECT_THAT(complaint_about([&] { x.add_(1); }), HasSubstr("has not waited")) << "the host waited for the default stream";
  DeviceEvent event(device_);
  event.record(stream_);
  event.synchronize();
  x.add_(1);
}

TEST_F(Streams, memory_that_another_stream_still_uses_is_not_given_back) {
  torch::Tensor x = torch::ones({4}, there_);
  other_waits();
  const torch::Tensor kept = [&] {
    const c10::StreamGuard guard(stream_);
    return x + 1;
  }();
  x.reset();
  EXPECT_THAT(complaint_about([&] { torch::empty({1}, there_); }), HasSubstr("takes memory that was given back while aten::add of stream"));

  torch::Tensor y = torch::ones({4}, there_);
  other_waits();
  beside([&] { kept.add_(y); });
  y.reset();
  default_waits();
  torch::empty({1}, there_);
}

TEST_F(Streams, a_wait_for_one_stream_ends_no_copy_of_another) {
  const torch::Tensor x = torch::ones({2}, there_), host = torch::zeros({2}, torch::TensorOptions().pinned_memory(true));
  other_waits();
  beside([&] { host.copy_(x, true); });
  DeviceEvent of_default(device_), of_other(device_);
  of_default.record();
  of_other.record(stream_);
  EXPECT_TRUE(of_default.is_reached());
  EXPECT_FALSE(of_other.is_reached());
  of_default.synchronize();
  EXPECT_TRUE(host.isnan().all().item<bool>());
  of_other.synchronize();
  EXPECT_TRUE(torch::equal(host, torch::ones({2})));
}

TEST_F(Streams, a_run_of_one_graph_spoils_what_another_in_its_memory_has_made) {
  const torch::Tensor x = torch::ones({2}, there_);
  torch::Tensor of_first, of_second;
  DeviceGraph first(device_, [&] { of_first = x + 1; });
  DeviceGraph second(first, [&] { of_second = x + 2; });
  DeviceGraph elsewhere(device_, [&] { (void)(x + 3); });
  for (int64_t i = 0; i <= DeviceGraph::kWarmUpCalls; ++i) {
    first.run();
    second.run();
    elsewhere.run();
  }
  EXPECT_TRUE(torch::equal(of_second.cpu(), torch::full({2}, 3.0F)));
  EXPECT_TRUE(of_first.cpu().isnan().all().item<bool>());
  first.run();
  EXPECT_TRUE(torch::equal(of_first.cpu(), torch::full({2}, 2.0F)));
  EXPECT_TRUE(of_second.cpu().isnan().all().item<bool>());
}

TEST_F(Streams, what_another_thread_asks_for_meanwhile_is_not_recorded) {
  const torch::Tensor x = torch::zeros({1}, there_), y = torch::zeros({1}, there_);
  DeviceGraph graph(device_, [&] {
    x.add_(1);
    std::thread([&] { y.add_(1); }).join();
  });
  for (int64_t i = 0; i < DeviceGraph::kWarmUpCalls + 3; ++i) {
    graph.run();
  }
  EXPECT_EQ(x.item<float>(), static_cast<float>(DeviceGraph::kWarmUpCalls + 3));
  EXPECT_EQ(y.item<float>(), static_cast<float>(DeviceGraph::kWarmUpCalls + 1));  // The calls of the function.
}

// Seven chunks of parameters, so that ranks' slices differ and gradients are sent in several pieces.
struct ChunkNetImpl : torch::nn::Module {
  ChunkNetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
  }
  torch::Tensor forward(const torch::Tensor& x) { return third(torch::silu(second(torch::silu(first(x))))); }
  torch::nn::Linear first{16, 64};
  torch::nn::Linear second{64, 64};
  torch::nn::Linear third{64, 24};
};

// What the ranks' slices of the weights are after some steps, one after the other.
torch::Tensor weights_of_ranks(int64_t num_ranks, const torch::Device& device, const TrainStepOptions& options) {
  std::vector<ChunkNetImpl> networks;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    torch::manual_seed(5);
    networks.emplace_back();
  }
  std::vector<torch::Tensor> slices(static_cast<size_t>(num_ranks));
  const auto train = [&](Communicator& ranks) {
    ChunkNetImpl& network = networks[static_cast<size_t>(ranks.rank())];
    FlatParametersOptions flat_options = like_gpu(device, torch::kFloat32);
    flat_options.rank = ranks.rank();
    flat_options.num_ranks = ranks.size();
    FlatParameters flat(network, flat_options);
    const FlatRange slice = slice_of_rank(flat.size(), ranks.rank(), ranks.size());
    AdamW adamw(flat, {}, slice);
    TrainStep step(flat, adamw, nullptr, options, ranks);
    for (int64_t i = 0; i < 5; ++i) {
      const auto report = step.run(i, 8, [&](int64_t first, int64_t count) {
        const torch::Tensor numbers = torch::arange(first, first + count, torch::kFloat32).view({-1, 1}) + 0.1 * static_cast<double>(i);
        return network.forward((numbers * torch::linspace(0.3, 1.7, 16)).sin().to(device)).square().mean(1);
      });
      ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    }
    slices[static_cast<size_t>(ranks.rank())] = flat.values_of(slice).cpu();
  };
  run_rank_threads(num_ranks, train,
                   [](std::unique_ptr<Communicator> ranks) { return join_gpus(std::move(ranks), {.is_loopback = true, .on_lost = {}}); });
  return torch::cat(slices);
}

TEST_F(Streams, gradients_that_are_sent_in_pieces_beside_the_pass_are_ordered) {
  TrainStepOptions options{.micro_batch = 1, .gradient_groups = 4, .schedule = {.peak = 1e-2}};
  for (const torch::ScalarType wire : {torch::kFloat32, torch::kBFloat16}) {
    options.gradient_wire = wire;
    options.overlaps = false;
    const torch::Tensor want = weights_of_ranks(1, device_, options);
    options.overlaps = true;
    options.bucket_elements = 1;  // A piece for each parameter.
    for (const int64_t num_ranks : {2, 3}) {
      const int64_t waits = fake_device_counts()->stream_waits;
      EXPECT_TRUE(torch::equal(weights_of_ranks(num_ranks, device_, options), want)) << wire << " " << num_ranks;
      // In each step but the first, of each rank: the sum of each piece for the pass, and what follows for the sums.
      EXPECT_EQ(fake_device_counts()->stream_waits - waits, num_ranks * (4 * 6 + 4));
    }
  }
}

}  // namespace
}  // namespace darkroom
