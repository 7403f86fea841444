#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/image/image.h"
#include "watched_painting.h"

namespace darkroom {

/// The requests of A1111's routes that are painted, for the routes that tell of "the" job and interrupt it: its clients take the server for
/// one that does a thing at a time. Here that is the request of the same owner that has been open for longest. Thread safety: any thread.
class A1111Jobs {
 public:
  /// An open request, until it is closed or gone.
  class Job {
   public:
    Job(std::shared_ptr<A1111Jobs> jobs, uint64_t number, std::string owner, int num_steps, Clock::Instant begun, std::stop_token gone);
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    void advance(double share) { share_ = share; }
    void show(Image preview);
    /// Whether somebody has asked how the pictures look.
    bool is_watched() const { return is_watched_; }
    /// It is answered. What holds the object may live on.
    void close();
    /// For PaintOrder::given_up: the client is gone, or somebody has interrupted the request.
    std::stop_token given_up() const { return stop_.get_token(); }
    bool is_interrupted() const { return is_interrupted_; }

   private:
    friend class A1111Jobs;
    void interrupt();

    const std::shared_ptr<A1111Jobs> jobs_;  // Shared with the routes.
    const uint64_t number_;
    const std::string owner_;
    const int num_steps_;
    const Clock::Instant begun_;
    std::atomic<double> share_ = 0.0;
    std::atomic<bool> is_interrupted_ = false;
    std::atomic<bool> is_watched_ = false;
    std::shared_ptr<EncodedImage> preview_;  // Guarded by the lock of jobs_. Shared with who shows it.
    std::stop_source stop_;
    const std::stop_callback<std::function<void()>> when_gone_;
  };

  /// `owner`: of whose key the request is, as owner_of().
  static std::shared_ptr<Job> open(const std::shared_ptr<A1111Jobs>& jobs, std::string owner, int num_steps, Clock::Instant now,
                                   std::stop_token gone);

  /// The reply of GET /sdapi/v1/progress to an owner. Who wants a preview gets the latest one, of which there is none before the first such
  /// question: they cost time.
  nlohmann::json progress(const std::string& owner, Clock::Instant now, bool wants_preview) const;
  /// Interrupts the owner's request that has been open for longest, if there is one.
  void interrupt(const std::string& owner);

 private:
  std::vector<Job*> jobs_of(const std::string& owner) const;

  mutable std::mutex mutex_;
  std::map<uint64_t, Job*> open_;  // By arrival; guarded by mutex_, as is what follows.
  uint64_t next_number_ = 0;
};

}  // namespace darkroom
