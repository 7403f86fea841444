#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/batches/batcher.h"

namespace darkroom {

/// A training batch that is put together row by row: float32, from whatever type the rows are stored in.
class EncodedBatch {
 public:
  EncodedBatch(std::vector<int64_t> latents_shape, std::vector<int64_t> states_shape, size_t num_rows) {
    for (std::vector<int64_t>* shape : {&latents_shape, &states_shape}) {
      shape->insert(shape->begin(), static_cast<int64_t>(num_rows));
    }
    batch_.latents_nchw = torch::empty(latents_shape, torch::kFloat32);
    batch_.states_btc = torch::empty(states_shape, torch::kFloat32);
  }

  void add(const std::string& key, const torch::Tensor& latents_chw, const torch::Tensor& states_tw) {
    const auto at = static_cast<int64_t>(batch_.keys.size());
    batch_.latents_nchw[at].copy_(latents_chw);
    batch_.states_btc[at].copy_(states_tw);
    batch_.keys.push_back(key);
  }
  Batch finish() && { return std::move(batch_); }

 private:
  Batch batch_;
};

}  // namespace darkroom
