#pragma once

#include <torch/torch.h>

namespace darkroom {

/// Moves a network that is only run, not trained, to a device and a float type, and on a GPU its convolution weights to channels-last,
/// which convolutions there take without a copy; features then flow through the network in that layout, too. Names and shapes stay.
/// (Trained networks are placed by optim's FlatParameters.) Thread safety: nobody may use the network meanwhile.
void place_network(torch::nn::Module& network, const torch::Device& device, torch::ScalarType type);

}  // namespace darkroom
