#include "darkroom/optim/flat_parameters.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {

FlatParameters::FlatParameters(torch::nn::Module& module) {
  const auto named = module.named_parameters();
  std::vector<std::pair<std::string, torch::Tensor>> sorted;
  for (const auto& item : named) {
    sorted.emplace_back(item.key(), item.value());
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) { return left.first < right.first; });
  int64_t total = 0;
  for (const auto& [name, parameter] : sorted) {
    DARKROOM_CHECK(parameter.is_floating_point() && parameter.device().is_cpu(), "a flat parameter must be float on the CPU:", name);
    entries_.push_back({name, parameter.sizes().vec(), total, parameter.numel()});
    parameters_.push_back(parameter);
    total += parameter.numel();
  }
  values_ = torch::zeros({total}, torch::kFloat32);
  gradients_ = torch::zeros({total}, torch::kFloat32);
  const torch::NoGradGuard no_grad;
  const auto values = named_views(values_);
  const auto gradients = named_views(gradients_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& value = values[i].second;
    value.copy_(parameters_[i]);
    parameters_[i].set_data(value);
    parameters_[i].requires_grad_(true);
    parameters_[i].mutable_grad() = gradients[i].second;
  }
}

void FlatParameters::check_bound() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const float* value = values_.data_ptr<float>() + entries_[i].first;
    const float* gradient = gradients_.data_ptr<float>() + entries_[i].first;
    DARKROOM_CHECK(parameters_[i].data_ptr() == value, "a flat parameter was replaced:", entries_[i].name);
    DARKROOM_CHECK(parameters_[i].grad().defined() && parameters_[i].grad().data_ptr() == gradient,
                   "a flat gradient was replaced:", entries_[i].name);
  }
}

std::vector<std::pair<std::string, torch::Tensor>> FlatParameters::named_views(const torch::Tensor& flat) const {
  std::vector<std::pair<std::string, torch::Tensor>> views;
  views.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    views.emplace_back(entry.name, flat.narrow(0, entry.first, entry.count).view(entry.shape));
  }
  return views;
}

}  // namespace darkroom
