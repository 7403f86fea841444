#include "a1111_jobs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace darkroom {

A1111Jobs::Job::Job(std::shared_ptr<A1111Jobs> jobs, uint64_t number, std::string owner, int num_steps, Clock::Instant begun,
                    std::stop_token gone)
    : jobs_(std::move(jobs)),
      number_(number),
      owner_(std::move(owner)),
      num_steps_(num_steps),
      begun_(begun),
      when_gone_(std::move(gone), [this] { stop_.request_stop(); }) {}

A1111Jobs::Job::~Job() { close(); }

void A1111Jobs::Job::close() {
  const std::lock_guard lock(jobs_->mutex_);
  jobs_->open_.erase(number_);
}

void A1111Jobs::Job::interrupt() {
  is_interrupted_ = true;
  stop_.request_stop();
}

std::shared_ptr<A1111Jobs::Job> A1111Jobs::open(const std::shared_ptr<A1111Jobs>& jobs, std::string owner, int num_steps,
                                                Clock::Instant now, std::stop_token gone) {
  const std::lock_guard lock(jobs->mutex_);
  const uint64_t number = jobs->next_number_++;
  auto job =
      std::make_shared<Job>(jobs, number, std::move(owner), num_steps, now, std::move(gone));  // Shared by the functions of the order.
  jobs->open_.emplace(number, job.get());
  return job;
}

// The oldest first. REQUIRES: the lock is held.
std::vector<A1111Jobs::Job*> A1111Jobs::jobs_of(const std::string& owner) const {
  std::vector<Job*> jobs;
  for (const auto& [number, job] : open_) {
    if (job->owner_ == owner) {
      jobs.push_back(job);
    }
  }
  return jobs;
}

void A1111Jobs::Job::show(Image preview) {
  const std::lock_guard lock(jobs_->mutex_);
  preview_ = std::make_shared<EncodedImage>(std::move(preview));
}

nlohmann::json A1111Jobs::progress(const std::string& owner, Clock::Instant now, bool wants_preview) const {
  std::shared_ptr<EncodedImage> preview;
  std::unique_lock lock(mutex_);
  const std::vector<Job*> jobs = jobs_of(owner);
  nlohmann::json state = {{"skipped", false}, {"interrupted", false}, {"stopping_generation", false},
                          {"job", ""},        {"job_count", 0},       {"job_timestamp", "0"},
                          {"job_no", 0},      {"sampling_step", 0},   {"sampling_steps", 0}};
  nlohmann::json reply = {{"progress", 0.0}, {"eta_relative", 0.0}, {"current_image", nullptr}, {"textinfo", nullptr}};
  if (!jobs.empty()) {
    Job& job = *jobs.front();
    if (wants_preview) {
      job.is_watched_ = true;
      preview = job.preview_;
    }
    const double share = std::clamp(job.share_.load(), 0.0, 1.0);
    const double seconds = std::chrono::duration<double>(now - job.begun_).count();
    reply["progress"] = share;
    reply["eta_relative"] = share > 0.0 ? seconds * (1.0 - share) / share : 0.0;
    state["interrupted"] = job.is_interrupted();
    state["job"] = "painting";
    state["job_count"] = jobs.size();
    state["sampling_steps"] = job.num_steps_;
    state["sampling_step"] = std::lround(share * job.num_steps_);
  }
  reply["state"] = std::move(state);
  lock.unlock();
  if (preview != nullptr) {
    reply["current_image"] = preview->base64_png();  // Without the lock: it may be the first to encode it.
  }
  return reply;
}

void A1111Jobs::interrupt(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const std::vector<Job*> jobs = jobs_of(owner);
  if (!jobs.empty()) {
    jobs.front()->interrupt();
  }
}

}  // namespace darkroom
