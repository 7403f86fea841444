#include <algorithm>
#include <cmath>

#include "darkroom/nn/placement.h"
#include "darkroom/nn/unet.h"
#include "parity.h"
#include "support/network_golden.h"

namespace darkroom {
namespace {

// float32: the bounds that the CPU has to keep against the reference packages.
constexpr double kOutputBound = 1e-5;
constexpr double kGradientBound = 1e-4;
constexpr double kLeastShareOfMedian = 1e-3;
constexpr double kRoundingsBackward = 4 * kRoundingsForward;  // There and back, twice as many on each way as values come from both.

struct GradientPair {
  torch::Tensor got, want;  // float64 on the CPU, flat.
};

std::vector<GradientPair> gradients(const UNet2DConditionModel& unet, const NetworkGolden& golden) {
  std::vector<GradientPair> pairs;
  for (const auto& item : unet->named_parameters()) {
    if (!golden.file->contains("grad." + item.key())) {
      continue;  // The reference does not reach it.
    }
    pairs.push_back({.got = thinned(item.value().grad().to(torch::kCPU, torch::kFloat64)).flatten(),
                     .want = golden.tensor("grad." + item.key()).to(torch::kFloat64).flatten()});
  }
  return pairs;
}

// The largest error of a gradient over what it is measured by: its largest value, at least a share of the median of these.
double worst_gradient(const std::vector<GradientPair>& pairs) {
  std::vector<double> largest;
  for (const auto& [got, want] : pairs) {
    largest.push_back(want.abs().max().item<double>());
  }
  std::vector<double> sorted = largest;
  std::sort(sorted.begin(), sorted.end());
  const double least = kLeastShareOfMedian * sorted[sorted.size() / 2];
  double worst = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    worst = std::max(worst, (pairs[i].got - pairs[i].want).abs().max().item<double>() / std::max(largest[i], least));
  }
  return worst;
}

double norm_error(const torch::Tensor& got, const torch::Tensor& want) { return ((got - want).norm() / want.norm()).item<double>(); }

double norm_error_of_all(const std::vector<GradientPair>& pairs) {
  std::vector<torch::Tensor> got, want;
  for (const auto& pair : pairs) {
    got.push_back(pair.got);
    want.push_back(pair.want);
  }
  return norm_error(torch::cat(got), torch::cat(want));
}

Result<std::vector<Comparison>> compare_with(const std::string& source, const std::string& name, const torch::Device& device,
                                             torch::ScalarType type) {
  DARKROOM_ASSIGN_OR_RETURN(const NetworkGolden golden, NetworkGolden::open(source + "/tests/golden/nn/" + name + ".safetensors"));
  DARKROOM_ASSIGN_OR_RETURN(const UNetConfig config, UNetConfig::from_json(golden.config));
  UNet2DConditionModel unet(config);
  fill_parameters(*unet);
  place_network(*unet, device, type);
  const auto given = [&](const char* tensor) { return golden.tensor(tensor).to(device); };
  const auto output = unet(given("sample"), given("timestep"), given("encoder_hidden_states"));
  output.backward(given("cotangent.output").to(type));
  const auto got = output.detach().to(torch::kCPU, torch::kFloat64), want = golden.tensor("output").to(torch::kFloat64);
  const auto pairs = gradients(unet, golden);
  if (type == torch::kFloat32) {
    const double error = ((got - want).abs().max() / want.abs().max()).item<double>();
    return std::vector<Comparison>{{name + ": output, largest", "float32", error, kOutputBound},
                                   {name + ": gradients, largest", "float32", worst_gradient(pairs), kGradientBound}};
  }
  return std::vector<Comparison>{{name + ": output, norm", "bfloat16", norm_error(got, want), bfloat16_bound(kRoundingsForward)},
                                 {name + ": gradients, norm", "bfloat16", norm_error_of_all(pairs), bfloat16_bound(kRoundingsBackward)}};
}

}  // namespace

double bfloat16_bound(double num_roundings) { return 2 * 0x1p-8 * std::sqrt(num_roundings); }

Result<std::vector<Comparison>> compare_with_golden_files(const std::string& source, const torch::Device& device) {
  std::vector<Comparison> all;
  for (const char* name : {"unet_conv", "unet_linear"}) {
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      DARKROOM_ASSIGN_OR_RETURN(const auto some, compare_with(source, name, device, type));
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

}  // namespace darkroom
