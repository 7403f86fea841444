#include "darkroom/tensor/multiply_adds.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <memory>
#include <string_view>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

struct Tally {
  int64_t multiply_adds = 0;
  int open_attentions = 0;  // Products inside an attention are counted with it.
  bool counting = false;
};

thread_local Tally tally;

// What an operation will cost: fixed, and so much an element of its output. torch shows inputs only before it runs.
struct Cost : at::ObserverContext {
  int64_t fixed = 0;
  int64_t per_output = 0;
  bool is_attention = false;
};

Cost cost_of(const at::RecordFunction& function) {
  Cost cost;
  const std::string_view name = function.name();
  const auto input = [&](size_t i) -> const torch::Tensor& { return function.inputs()[i].toTensor(); };
  if (name == "aten::scaled_dot_product_attention") {
    cost.is_attention = true;
    cost.per_output = input(1).size(-2);              // Weights x values.
    cost.fixed = input(0).numel() * cost.per_output;  // Query x keys.
  } else if (name == "aten::convolution") {
    const int64_t taps = input(1).numel() / input(1).size(0);
    const bool transposed = function.inputs()[6].toBool();
    (transposed ? cost.fixed : cost.per_output) = transposed ? input(0).numel() * taps : taps;
  } else if (name == "aten::mm" || name == "aten::bmm") {
    cost.per_output = input(0).size(-1);
  } else if (name == "aten::addmm" || name == "aten::baddbmm") {
    cost.per_output = input(1).size(-1);
  }
  return cost;
}

std::unique_ptr<at::ObserverContext> on_enter(const at::RecordFunction& function) {
  const Cost cost = cost_of(function);
  tally.open_attentions += cost.is_attention ? 1 : 0;
  return cost.per_output > 0 || cost.fixed > 0 ? std::make_unique<Cost>(cost) : nullptr;
}

void on_leave(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) {
    return;
  }
  const auto& cost = static_cast<const Cost&>(*context);
  tally.open_attentions -= cost.is_attention ? 1 : 0;
  if (tally.open_attentions == 0) {
    tally.multiply_adds += cost.fixed + cost.per_output * function.outputs()[0].toTensor().numel();
  }
}

// Counts on this thread for its lifetime.
class Counting {
 public:
  Counting() {
    tally = {.counting = true};
    const auto callback =
        at::RecordFunctionCallback(on_enter, on_leave).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION});
    handle_ = at::addThreadLocalCallback(callback);
  }
  ~Counting() {
    at::removeCallback(handle_);
    tally.counting = false;
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace

int64_t count_multiply_adds(const std::function<void()>& run) {
  DARKROOM_CHECK(!tally.counting, "counts of multiply-adds do not nest");
  const Counting counting;
  run();
  return tally.multiply_adds;
}

}  // namespace darkroom
