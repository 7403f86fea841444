#include "gradient_overlap.h"

#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {

// Called by autograd when it has added a parameter's gradient.
class GradientOverlap::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientOverlap& overlap, size_t bucket) : overlap_(overlap), bucket_(bucket) {}
  void operator()(const torch::autograd::Variable& /*tensor*/) override { overlap_.count_gradient(bucket_); }

 private:
  GradientOverlap& overlap_;
  const size_t bucket_;
};

GradientOverlap::GradientOverlap(FlatParameters& parameters, GradientSum& sum, Communicator& ranks, int64_t bucket_elements)
    : parameters_(parameters), sum_(sum), ranks_(ranks) {
  cut_buckets(bucket_elements);
  if (const torch::Device& device = parameters.options().device; !device.is_cpu()) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      ready_.emplace_back(device);
    }
    stream_ = new_stream(device);
  }
  for (size_t i = 0; i < bucket_of_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_.parameters()[i], std::make_unique<Hook>(*this, bucket_of_[i]));
  }
}

GradientOverlap::~GradientOverlap() {
  for (const torch::Tensor& parameter : parameters_.parameters()) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
  {
    const std::lock_guard lock(mutex_);
    is_given_up_ = true;
  }
  changed_.notify_all();
  if (summing_.valid()) {
    summing_.wait();  // An exchange under way ends with the other ranks' part of it, or with them.
  }
}

// A parameter is in one bucket; what alignment leaves behind it is, too.
void GradientOverlap::cut_buckets(int64_t bucket_elements) {
  const auto& entries = parameters_.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (ranges_.empty() || entries[i].first - ranges_.back().first >= bucket_elements) {
      ranges_.push_back({entries[i].first, 0});
      num_parameters_.push_back(0);
    }
    const int64_t end = i + 1 < entries.size() ? entries[i + 1].first : parameters_.size();
    ranges_.back().count = end - ranges_.back().first;
    num_parameters_.back() += 1;
    bucket_of_.push_back(ranges_.size() - 1);
  }
}

void GradientOverlap::begin_last_pass() {
  {
    const std::lock_guard lock(mutex_);
    is_last_pass_ = true;
    missing_ = num_parameters_;
    completed_.clear();
  }
  if (!order_.empty()) {
    summing_ = std::async(std::launch::async, [this, threads = at::get_num_threads()] {
      at::set_num_threads(threads);  // OpenMP's setting is each thread's own.
      return sum_on_own_stream();
    });
  }
}

void GradientOverlap::count_gradient(size_t bucket) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_last_pass_) {
      return;
    }
    missing_[bucket] -= 1;
    if (missing_[bucket] > 0) {
      return;
    }
    mark_ready(bucket);
    completed_.push_back(static_cast<int64_t>(bucket));
  }
  changed_.notify_all();
}

// Of what the loss does not depend on no gradient comes, and none of passes side by side.
void GradientOverlap::complete_all() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_last_pass_) {
      missing_ = num_parameters_;
      completed_.clear();
    }
    is_last_pass_ = false;
    for (size_t bucket = missing_.size(); bucket-- > 0;) {
      if (missing_[bucket] > 0) {
        missing_[bucket] = 0;
        mark_ready(bucket);
        completed_.push_back(static_cast<int64_t>(bucket));
      }
    }
  }
  changed_.notify_all();
}

// What has been asked of the stream of the pass, whose thread this is, comes before the bucket's sum.
void GradientOverlap::mark_ready(size_t bucket) {
  if (stream_.has_value()) {
    ready_[bucket].record();
  }
}

bool GradientOverlap::wait_for(size_t bucket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_given_up_ || missing_[bucket] <= 0; });
  return !is_given_up_;
}

Status GradientOverlap::sum_on_own_stream() {
  if (!stream_.has_value()) {
    return sum_buckets();
  }
  const c10::StreamGuard guard(*stream_);
  return sum_buckets();
}

Status GradientOverlap::sum_buckets() {
  for (const int64_t bucket : order_) {
    if (!wait_for(static_cast<size_t>(bucket))) {
      return Status::cancelled("the backward pass of a step has not come to its end; the piece of its gradients:", bucket);
    }
    if (stream_.has_value()) {
      ready_[static_cast<size_t>(bucket)].block(*stream_);
    }
    DARKROOM_RETURN_IF_ERROR(sum_.finish(ranges_[static_cast<size_t>(bucket)]));
  }
  return {};
}

Status GradientOverlap::finish() {
  complete_all();
  if (!order_.empty()) {
    const Status summed = summing_.valid() ? summing_.get() : sum_on_own_stream();
    if (stream_.has_value()) {
      DeviceEvent done(stream_->device());
      done.record(*stream_);
      done.block();
    }
    return summed;
  }
  DARKROOM_RETURN_IF_ERROR(sum_.finish());
  return learn_order();
}

// That of rank 0.
Status GradientOverlap::learn_order() {
  const torch::Tensor order = torch::tensor(completed_, torch::kInt64);
  DARKROOM_RETURN_IF_ERROR(broadcast(ranks_, 0, order));
  order_.assign(order.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>() + order.numel());
  return {};
}

}  // namespace darkroom
