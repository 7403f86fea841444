#include "darkroom/optim/flat_parameters.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr int64_t kGpuAlignment = 64;
constexpr size_t kConvolutionDimensions = 4;

std::vector<std::pair<std::string, torch::Tensor>> sorted_parameters(const torch::nn::Module& module) {
  const auto named = module.named_parameters();
  std::vector<std::pair<std::string, torch::Tensor>> sorted;
  for (const auto& item : named) {
    sorted.emplace_back(item.key(), item.value());
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) { return left.first < right.first; });
  return sorted;
}

}  // namespace

FlatRange FlatRange::overlap(const FlatRange& other) const {
  const int64_t begin = std::max(first, other.first), end = std::min(first + count, other.first + other.count);
  return {begin, std::max<int64_t>(0, end - begin)};
}

FlatParametersOptions FlatParametersOptions::for_gpu(const torch::Device& device, torch::ScalarType compute_type) {
  return {.device = device, .compute_type = compute_type, .channels_last = true, .alignment = kGpuAlignment};
}

Status FlatParametersOptions::validate() const {
  if (compute_type != torch::kFloat32 && compute_type != torch::kBFloat16) {
    return Status::invalid_argument("flat parameters: the compute type must be float32 or bfloat16, got:", c10::toString(compute_type));
  }
  if (alignment < 1) {
    return Status::invalid_argument("flat parameters: alignment must be at least 1, got:", alignment);
  }
  return Status::ok();
}

FlatParameters::FlatParameters(torch::nn::Module& module, const FlatParametersOptions& options) : options_(options) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
  int64_t total = 0;
  for (const auto& [name, parameter] : sorted_parameters(module)) {
    DARKROOM_CHECK(parameter.is_floating_point() && parameter.device().is_cpu(), "a flat parameter must be float on the CPU:", name);
    entries_.push_back({name, parameter.sizes().vec(), total, parameter.numel()});
    parameters_.push_back(parameter);
    num_elements_ += parameter.numel();
    total += (parameter.numel() + options.alignment - 1) / options.alignment * options.alignment;
  }
  const torch::NoGradGuard no_grad;
  values_ = torch::zeros({total}, torch::dtype(torch::kFloat32).device(options.device));
  gradients_ = torch::zeros_like(values_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    view_of(values_, entries_[i]).copy_(parameters_[i]);
  }
  if (options.compute_type != torch::kFloat32) {
    compute_copy_ = values_.to(options.compute_type);
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].set_data(view_of(compute_copy_.defined() ? compute_copy_ : values_, entries_[i]));
    parameters_[i].requires_grad_(true);
    if (compute_copy_.defined()) {
      parameters_[i].set_grad_dtype(std::nullopt);  // The gradient may have another type than the parameter.
    }
    parameters_[i].mutable_grad() = view_of(gradients_, entries_[i]);
  }
}

void FlatParameters::refresh_compute_copy() {
  if (compute_copy_.defined()) {
    compute_copy_.copy_(values_);
  }
}

void FlatParameters::add_gradients(const std::vector<torch::Tensor>& gradients) {
  const torch::NoGradGuard no_grad;
  DARKROOM_CHECK(gradients.size() == parameters_.size(), "a gradient a parameter (parameters, gradients):", parameters_.size(),
                 gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) {
      parameters_[i].mutable_grad().add_(gradients[i]);
    }
  }
}

void FlatParameters::check_bound() const {
  const torch::Tensor& weights = compute_copy_.defined() ? compute_copy_ : values_;
  const auto* first_weight = static_cast<const char*>(weights.const_data_ptr());
  const auto* first_gradient = static_cast<const char*>(gradients_.const_data_ptr());
  const auto weight_bytes = static_cast<int64_t>(weights.element_size()), gradient_bytes = static_cast<int64_t>(gradients_.element_size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t first = entries_[i].first;
    DARKROOM_CHECK(parameters_[i].const_data_ptr() == first_weight + first * weight_bytes,
                   "a flat parameter was replaced:", entries_[i].name);
    DARKROOM_CHECK(parameters_[i].grad().defined() && parameters_[i].grad().const_data_ptr() == first_gradient + first * gradient_bytes,
                   "a flat gradient was replaced:", entries_[i].name);
  }
}

torch::Tensor FlatParameters::view_of(const torch::Tensor& flat, const Entry& entry) const {
  const torch::Tensor own = flat.narrow(0, entry.first, entry.count);
  if (!options_.channels_last || entry.shape.size() != kConvolutionDimensions) {
    return own.view(entry.shape);
  }
  return own.view({entry.shape[0], entry.shape[2], entry.shape[3], entry.shape[1]}).permute({0, 3, 1, 2});
}

bool FlatParameters::is_canonical() const {
  return options_.device.is_cpu() && !options_.channels_last && num_elements_ == values_.numel();
}

torch::Tensor FlatParameters::canonical_range(const torch::Tensor& flat, const FlatRange& range) const {
  const torch::NoGradGuard no_grad;
  if (is_canonical()) {
    return range.of(flat);
  }
  torch::Tensor values = torch::empty({range.count}, flat.options().device(torch::kCPU));
  int64_t first = 0;
  for (const Entry& entry : entries_) {
    const FlatRange own{first, entry.count}, shared = own.overlap(range);
    if (shared.count > 0) {
      const torch::Tensor plain = view_of(flat, entry).contiguous().view({-1}).narrow(0, shared.first - own.first, shared.count);
      values.narrow(0, shared.first - range.first, shared.count).copy_(plain);
    }
    first += entry.count;
  }
  return values;
}

void FlatParameters::set_canonical_range(const torch::Tensor& flat, const FlatRange& range, const torch::Tensor& values) const {
  const torch::NoGradGuard no_grad;
  if (is_canonical()) {
    range.of(flat).copy_(values);
    return;
  }
  int64_t first = 0;
  for (const Entry& entry : entries_) {
    const FlatRange own{first, entry.count}, shared = own.overlap(range);
    if (shared.count > 0) {
      // A copy where the layout is another; of a convolution of one pixel or channel it is not, and is written through.
      const torch::Tensor plain = view_of(flat, entry).contiguous().view({-1});
      plain.narrow(0, shared.first - own.first, shared.count).copy_(values.narrow(0, shared.first - range.first, shared.count));
      if (!plain.is_alias_of(flat)) {
        view_of(flat, entry).copy_(plain.view(entry.shape));
      }
    }
    first += entry.count;
  }
}

std::vector<std::pair<std::string, torch::Tensor>> FlatParameters::named_views(const torch::Tensor& flat) const {
  std::vector<std::pair<std::string, torch::Tensor>> views;
  views.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    views.emplace_back(entry.name, view_of(flat, entry));
  }
  return views;
}

}  // namespace darkroom
