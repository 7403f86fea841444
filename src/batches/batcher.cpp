#include "darkroom/batches/batcher.h"

#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/used_up_memory.h"

namespace darkroom {

Batcher::Batcher(std::unique_ptr<CanonicalOrder> order, std::unique_ptr<SampleSource> source, const BatcherOptions& options)
    : order_(std::move(order)),
      source_(std::move(source)),
      options_(options),
      next_batch_(options.first_batch),
      queue_(static_cast<size_t>(std::max<int64_t>(options.num_ahead, 1))) {
  if (options_.num_ahead > 0) {
    thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
  }
}

Batcher::~Batcher() {
  thread_.request_stop();
  source_->stop_waiting();
  queue_.close();
}

// The samples of the batch, and as many more as the source is to know of.
Status Batcher::expect_more(int64_t number) {
  const int64_t count = options_.num_samples > 0 ? options_.num_samples : order_->batch_size() - options_.first_sample;
  while (static_cast<int64_t>(coming_.size()) <= options_.num_expected) {
    const int64_t next = number + static_cast<int64_t>(coming_.size());
    if (!coming_.empty() && options_.end_batch > 0 && next >= options_.end_batch) {
      break;
    }
    DARKROOM_ASSIGN_OR_RETURN(coming_.emplace_back(), order_->slice(next, options_.first_sample, count));
    if (options_.num_expected > 0) {
      source_->expect(coming_.back());
    }
  }
  return {};
}

Result<Batch> Batcher::make(int64_t number) try {
  DARKROOM_RETURN_IF_ERROR(expect_more(number));
  std::vector<SampleRef> samples = std::move(coming_.front());
  coming_.pop_front();
  DARKROOM_ASSIGN_OR_RETURN(Batch batch, source_->read(samples));
  batch.number = number;
  batch.samples = std::move(samples);
  return batch;
} catch (const std::exception& error) {
  return caught_failure("making a training batch failed:", error);
}

void Batcher::run(std::stop_token stop) {
  // Copies of this thread must not take cores from the training step.
  const c10::ParallelGuard serial(true);
  while (!stop.stop_requested()) {
    Result<Batch> batch = make(next_batch_++);
    const bool is_last = !batch.is_ok();
    if (!queue_.push(std::move(batch), stop) || is_last) {
      break;
    }
  }
}

Result<Batch> Batcher::next(const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(failure_);
  auto batch = [&]() -> Result<Batch> {
    if (options_.num_ahead == 0) {
      return make(next_batch_++);
    }
    auto ready = queue_.pop(stop);
    if (!ready.has_value() && stop.stop_requested()) {
      return Status::cancelled("stopped while a training batch was waited for");
    }
    DARKROOM_CHECK(ready.has_value(), "the batcher's thread ended without a word");
    return std::move(*ready);
  }();
  failure_ = batch.status();
  return batch;
}

}  // namespace darkroom
