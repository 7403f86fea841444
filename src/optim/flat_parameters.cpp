#include "darkroom/optim/flat_parameters.h"

#include <algorithm>

#include "darkroom/core/check.h"
#include "darkroom/optim/gradient_groups.h"

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
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks) {
    return Status::invalid_argument("flat parameters: the rank must be one of the ranks (rank, ranks):", rank, num_ranks);
  }
  return Status::ok();
}

FlatParameters::FlatParameters(torch::nn::Module& module, const FlatParametersOptions& options) : options_(options) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
  for (const auto& [name, parameter] : sorted_parameters(module)) {
    DARKROOM_CHECK(parameter.is_floating_point() && parameter.device().is_cpu(), "a flat parameter must be float on the CPU:", name);
    entries_.push_back({name, parameter.sizes().vec(), size_, parameter.numel()});
    parameters_.push_back(parameter);
    num_elements_ += parameter.numel();
    size_ += (parameter.numel() + options.alignment - 1) / options.alignment * options.alignment;
  }
  const torch::NoGradGuard no_grad;
  const bool has_copy = options.compute_type != torch::kFloat32;
  master_range_ = has_copy ? slice_of_rank(size_, options.rank, options.num_ranks) : whole();
  take_weights();
  gradients_ = torch::zeros({size_}, torch::dtype(torch::kFloat32).device(options.device));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (has_copy) {
      parameters_[i].set_grad_dtype(std::nullopt);  // The gradient may have another type than the parameter.
    }
    parameters_[i].mutable_grad() = view_of(gradients_, entries_[i]);
  }
}

// Makes the weights' buffers of the module's tensors, and the module's tensors views of these.
void FlatParameters::take_weights() {
  const auto of_type = [&](torch::ScalarType type) { return torch::dtype(type).device(options_.device); };
  values_ = torch::zeros({master_range_.count}, of_type(torch::kFloat32));
  if (options_.compute_type != torch::kFloat32) {
    compute_copy_ = torch::zeros({size_}, of_type(options_.compute_type));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Entry& entry = entries_[i];
    const FlatRange place{entry.first, entry.count}, held = place.overlap(master_range_);
    if (held == place) {
      shaped(values_of(place), entry).copy_(parameters_[i]);
    } else if (held.count > 0) {  // A slice begins or ends within it.
      torch::Tensor laid_out = torch::empty({entry.count}, values_.options());
      shaped(laid_out, entry).copy_(parameters_[i]);
      values_of(held).copy_(laid_out.narrow(0, held.first - place.first, held.count));
    }
    const torch::Tensor computed_with = view_of(compute_copy_.defined() ? compute_copy_ : values_, entry);
    if (compute_copy_.defined()) {
      computed_with.copy_(parameters_[i]);
    }
    parameters_[i].set_data(computed_with);
    parameters_[i].requires_grad_(true);
  }
}

torch::Tensor FlatParameters::values_of(const FlatRange& range) const {
  const int64_t first = range.first - master_range_.first;
  DARKROOM_CHECK(range.count == 0 || (first >= 0 && first + range.count <= master_range_.count),
                 "a rank has the master weights of its own slice (first, count):", range.first, range.count);
  return range == master_range_ ? values_ : values_.narrow(0, range.count == 0 ? 0 : first, range.count);
}

void FlatParameters::refresh_compute_copy() {
  if (compute_copy_.defined()) {
    master_range_.of(compute_copy_).copy_(values_);
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
  return shaped(flat.narrow(0, entry.first, entry.count), entry);
}

torch::Tensor FlatParameters::shaped(const torch::Tensor& own, const Entry& entry) const {
  if (!options_.channels_last || entry.shape.size() != kConvolutionDimensions) {
    return own.view(entry.shape);
  }
  return own.view({entry.shape[0], entry.shape[2], entry.shape[3], entry.shape[1]}).permute({0, 3, 1, 2});
}

bool FlatParameters::is_canonical() const { return options_.device.is_cpu() && !options_.channels_last && num_elements_ == size_; }

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
