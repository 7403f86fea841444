#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "darkroom/core/random.h"
#include "darkroom/nn/placement.h"
#include "darkroom/nn/unet.h"
#include "darkroom/tensor/safetensors.h"
#include "parity.h"

namespace darkroom {
namespace {

// tools/make_nn_goldens.py made the files and says what is in them.
constexpr uint64_t kSeed = 1;
constexpr double kScale = 0.2;
constexpr int64_t kStride = 16;
constexpr int64_t kStrideFrom = 32;

// float32: the bounds that the CPU has to keep against the reference packages.
constexpr double kOutputBound = 1e-5;
constexpr double kGradientBound = 1e-4;
constexpr double kLeastShareOfMedian = 1e-3;
constexpr double kRoundingsForward = 64;
constexpr double kRoundingsBackward = 4 * kRoundingsForward;  // There and back, twice as many on each way as values come from both.

void fill_parameters(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    const CounterRandom random(kSeed, Purpose::kInit, 0, item.key());
    const bool is_norm_weight = item.value().dim() == 1 && item.key().ends_with("weight");
    float* values = item.value().data_ptr<float>();
    for (int64_t i = 0; i < item.value().numel(); ++i) {
      const auto value = static_cast<float>((2 * random.uniform(static_cast<uint64_t>(i)) - 1) * kScale);
      values[i] = is_norm_weight ? value + 1 : value;
    }
  }
}

struct GradientPair {
  torch::Tensor got, want;  // float64 on the CPU, flat.
};

std::vector<GradientPair> gradients(const UNet2DConditionModel& unet, const SafetensorsFile& golden) {
  std::vector<GradientPair> pairs;
  for (const auto& item : unet->named_parameters()) {
    if (!golden.contains("grad." + item.key())) {
      continue;  // The reference does not reach it.
    }
    const auto want = golden.tensor("grad." + item.key()).value().to(torch::kFloat64).flatten();
    auto got = item.value().grad().to(torch::kCPU, torch::kFloat64).contiguous().flatten();
    if (got.numel() > kStrideFrom) {
      got = got.slice(0, 0, std::nullopt, kStride);
    }
    pairs.push_back({got, want});
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
  DARKROOM_ASSIGN_OR_RETURN(const auto golden, SafetensorsFile::open(source + "/tests/golden/nn/" + name + ".safetensors"));
  DARKROOM_ASSIGN_OR_RETURN(const UNetConfig config, UNetConfig::from_json(nlohmann::json::parse(golden->metadata().at("config"))));
  UNet2DConditionModel unet(config);
  fill_parameters(*unet);
  place_network(*unet, device, type);
  const auto given = [&](const char* tensor) { return golden->tensor(tensor).value().to(device); };
  const auto output = unet(given("sample"), given("timestep"), given("encoder_hidden_states"));
  output.backward(given("cotangent.output").to(type));
  const auto got = output.detach().to(torch::kCPU, torch::kFloat64), want = golden->tensor("output").value().to(torch::kFloat64);
  const auto pairs = gradients(unet, *golden);
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
