#include "checks.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom::plugin_checks {
namespace {

void check_graph(Findings& findings, const torch::Device& device) {
  const torch::Tensor input = torch::zeros({1000}, torch::device(device)), sum = torch::zeros({1000}, torch::device(device));
  int64_t calls = 0;
  DeviceGraph graph(device, [&] {
    ++calls;
    sum.add_((input * 2).exp());
  });
  torch::Tensor want = torch::zeros({1000});
  for (int64_t run = 1; run <= DeviceGraph::kWarmUpCalls + 4; ++run) {
    const torch::Tensor value = torch::randn({1000});
    input.copy_(value);
    graph.run();
    want += (value * 2).exp();
    findings.close(c10::str("after run ", run), sum, want, 1e-5);
  }
  findings.holds("the function was recorded once", calls == DeviceGraph::kWarmUpCalls + 1 && graph.is_recorded());
}

void check_graph_with_gradients(Findings& findings, const torch::Device& device) {
  const auto weight = torch::randn({64, 64}, torch::device(device)).requires_grad_();
  weight.mutable_grad() = torch::zeros_like(weight);
  const auto input = torch::zeros({8, 64}, torch::device(device));
  DeviceGraph graph(device, [&] {
    weight.mutable_grad().zero_();
    at::linear(input, weight).square().sum().backward();
  });
  for (int64_t run = 1; run <= DeviceGraph::kWarmUpCalls + 3; ++run) {
    const auto value = torch::randn({8, 64});
    input.copy_(value);
    graph.run();
    const auto leaf = weight.detach().to(torch::kCPU, torch::kFloat64).requires_grad_();
    at::linear(value.to(torch::kFloat64), leaf).square().sum().backward();
    findings.close(c10::str("gradient of run ", run), weight.grad(), leaf.grad(), 1e-5);
  }
}

// In turns, with what the function makes copied before the other's run; one goes first.
void check_graphs_beside(Findings& findings, const torch::Device& device) {
  const auto input = torch::zeros({1000}, torch::device(device));
  torch::Tensor doubled, squared;
  auto first = std::make_unique<DeviceGraph>(device, [&] { doubled = (input * 2).exp(); });
  DeviceGraph second(*first, [&] { squared = (input * input).exp(); });
  for (int64_t run = 1; run <= DeviceGraph::kWarmUpCalls + 4; ++run) {
    const auto value = torch::randn({1000});
    input.copy_(value);
    if (first != nullptr) {
      first->run();
      findings.close(c10::str("first of run ", run), doubled.clone(), (value * 2).exp(), 1e-5);
    }
    second.run();
    findings.close(c10::str("second of run ", run), squared.clone(), (value * value).exp(), 1e-5);
    if (run == DeviceGraph::kWarmUpCalls + 2) {
      first.reset();
    }
  }
}

// What a graph does is timed anew in each replay, from within it; nothing takes longer than the whole.
void check_marks(Findings& findings, const torch::Device& device) {
  const auto small = torch::randn({256, 256}, torch::device(device)), large = torch::randn({4096, 4096}, torch::device(device));
  TimeMark before(device), begin(device), middle(device), end(device), after(device);
  DeviceGraph graph(device, [&] {
    begin.record();
    (void)at::mm(small, small);
    middle.record();
    (void)at::mm(large, large);
    end.record();
  });
  for (int64_t run = 1; run <= DeviceGraph::kWarmUpCalls + 4; ++run) {
    before.record();
    graph.run();
    after.record();
    synchronize(device);
    const double first = middle.ms_since(begin), second = end.ms_since(middle), whole = after.ms_since(before);
    const std::string what = c10::str("run ", run, ", ms: ", first, ", ", second, " of ", whole);
    findings.holds("no part is longer than the whole: " + what, first >= 0 && second > 0 && first + second <= whole);
    if (graph.is_recorded()) {
      findings.holds("a product of 4096 is longer than one of 256: " + what, second > first);
    }
  }
}

void check_failing_record(Findings& findings, const torch::Device& device) {
  const auto value = torch::ones({4}, torch::device(device));
  bool looks = false;
  DeviceGraph graph(device, [&] {
    if (looks) {
      (void)value.sum().item<float>();  // Waits for the device, which a recording forbids.
    }
  });
  for (int64_t run = 0; run < DeviceGraph::kWarmUpCalls; ++run) {
    graph.run();
  }
  looks = true;
  bool threw = false;
  try {
    graph.run();
  } catch (const std::exception&) {
    threw = true;
  }
  findings.holds("a function that waits cannot be recorded", threw);
  findings.holds("the device still works", (value + 1).sum().item<float>() == 8.0F);
}

void check_untouched_memory(Findings& findings, const torch::Device& device) {
  reset_peak_memory(device);
  findings.holds("no tensor was held yet", peak_memory_bytes(device) == 0);
}

void check_memory(Findings& findings, const torch::Device& device) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  reset_peak_memory(device);
  const int64_t before = peak_memory_bytes(device);
  { const auto held = torch::zeros({kBytes / 4}, torch::device(device)); }
  findings.holds("a tensor counts", peak_memory_bytes(device) >= before + kBytes);
  reset_peak_memory(device);
  findings.holds("a reset forgets it", peak_memory_bytes(device) < before + kBytes);
  const auto staging = empty_staging({16}, torch::kFloat32, device);
  findings.holds("staging is pinned", staging.is_pinned());
  staging.copy_(torch::full({16}, 3.0F, torch::device(device)), /*non_blocking=*/true);
  synchronize(device);
  findings.same_bits("a copy has arrived", staging, torch::full({16}, 3.0F));
}

}  // namespace

std::vector<Check> first_checks() { return {{"runtime: memory can be asked before anything is allocated", check_untouched_memory}}; }

std::vector<Check> runtime_checks() {
  // The failing record comes last: what it leaves behind on a stream shall disturb nobody.
  return {{"runtime: a graph replays what was recorded", check_graph},
          {"runtime: a graph holds a backward pass", check_graph_with_gradients},
          {"runtime: two graphs share memory", check_graphs_beside},
          {"runtime: each replay is timed from within it", check_marks},
          {"runtime: memory is counted and staging is pinned", check_memory},
          {"runtime: a function that waits is refused", check_failing_record}};
}

}  // namespace darkroom::plugin_checks
