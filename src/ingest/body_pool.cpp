#include "darkroom/ingest/body_pool.h"

#include <cstddef>
#include <span>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"

namespace darkroom {

SpilledBody::SpilledBody(SpilledBody&& other) noexcept : scratch_(std::exchange(other.scratch_, nullptr)), place_(other.place_) {}

SpilledBody& SpilledBody::operator=(SpilledBody&& other) noexcept {
  if (this != &other) {
    discard();
    scratch_ = std::exchange(other.scratch_, nullptr);
    place_ = other.place_;
  }
  return *this;
}

void SpilledBody::discard() {
  if (scratch_ != nullptr) {
    std::exchange(scratch_, nullptr)->free(place_);
  }
}

bool BodyPool::has_plenty() const {
  const size_t limit = memory_.limit_bytes();
  return memory_.num_waiting() == 0 && memory_.used_bytes() <= limit - limit / 4;
}

BodyPool::Kept BodyPool::keep(std::string& body, BodyLease& lease, SpilledBody& spilled) {
  if (body.empty() || has_plenty()) {
    return Kept::kMemory;
  }
  if (scratch_ == nullptr || is_broken_ || body.size() > INT32_MAX) {
    return Kept::kNoRoom;
  }
  const Result<ScratchFiles::Place> place = scratch_->append(std::as_bytes(std::span(body)));
  if (!place.is_ok()) {
    if (place.status().code() != StatusCode::kResourceExhausted) {
      is_broken_ = true;
      log_warning("pictures that wait for slow ones stay in memory from now on: {}", place.status().message());
    } else if (!was_full_.exchange(true)) {
      log_warning("the room for pictures that wait for slow ones is full, fewer are fetched at a time: {}", place.status().message());
    }
    return Kept::kNoRoom;
  }
  spilled.discard();
  spilled.scratch_ = scratch_.get();
  spilled.place_ = place.value();
  std::string().swap(body);  // An assignment would keep the buffer.
  lease.set_held(0);
  ++num_spilled_;
  return Kept::kScratch;
}

Status BodyPool::load(SpilledBody& spilled, std::string& body) {
  DARKROOM_CHECK(spilled.is_on_disk(), "a body is loaded that is not on disk");
  body.resize(static_cast<size_t>(spilled.place_.num_bytes));
  const Status status = scratch_->read(spilled.place_, std::as_writable_bytes(std::span(body)));
  spilled.discard();
  return status.with_context("reading back a picture that waited on disk");
}

MetricsRegistry::Collection collect_queue_bytes(MetricsRegistry& metrics, const BodyMemory& intake, BodyPool* pool) {
  const auto read = [&intake, pool](MetricsRegistry& registry) {
    const auto set = [&](const char* queue, double num_bytes) {
      registry.gauge("darkroom_queue_bytes", "Bytes that wait in a queue.", {{"queue", queue}}).set(num_bytes);
    };
    set("intake", static_cast<double>(intake.used_bytes()));
    if (pool != nullptr) {
      set("bodies", static_cast<double>(pool->memory().used_bytes()));
      set("scratch", static_cast<double>(pool->scratch_used_bytes()));
    }
  };
  read(metrics);
  return metrics.collect(read);
}

}  // namespace darkroom
