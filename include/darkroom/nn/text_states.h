#pragma once

#include <torch/torch.h>

#include <functional>
#include <unordered_map>

namespace darkroom {

/// What a cross-attention makes of text states, (N, T, C) each.
struct KeysAndValues {
  torch::Tensor keys_ntc;
  torch::Tensor values_ntc;
};

/// Text states (N, T, W) as the cross-attentions of a U-Net read them. Those that remember serve many passes of one network with the same
/// weights: each layer's keys and values are worked out in the first pass, to the same bits. Thread safety: none where they remember.
class TextStates {
 public:
  enum class Memory { kNone, kKeysAndValues };

  explicit TextStates(torch::Tensor states_ntw, Memory memory = Memory::kNone) : states_ntw_(std::move(states_ntw)), memory_(memory) {}

  const torch::Tensor& states_ntw() const { return states_ntw_; }
  /// What `make` makes of the states for `layer`.
  KeysAndValues of(const torch::nn::Module& layer, const std::function<KeysAndValues(const torch::Tensor&)>& make) const {
    if (memory_ == Memory::kNone) {
      return make(states_ntw_);
    }
    auto found = known_.find(&layer);
    if (found == known_.end()) {
      found = known_.emplace(&layer, make(states_ntw_)).first;
    }
    return found->second;
  }

 private:
  torch::Tensor states_ntw_;
  Memory memory_;
  mutable std::unordered_map<const torch::nn::Module*, KeysAndValues> known_;
};

}  // namespace darkroom
