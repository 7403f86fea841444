#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/clock.h"
#include "watched_painting.h"

namespace darkroom {

/// Pictures that are asked for now and fetched later, by their id.
struct Job {
  std::string id;                             ///< 128 random bits in hexadecimal.
  std::string owner;                          ///< Of whose key it is: jobs of others are not there.
  int64_t created = 0;                        ///< Seconds since 1970.
  nlohmann::json request;                     ///< Its fields, as resolved.
  std::vector<uint64_t> seeds;                ///< Of each picture.
  std::vector<std::string> warnings = {};     ///< ImageRequest's.
  std::vector<std::string> settings = {};     ///< ImageRequest's written_settings().
  int num_steps = 0;                          ///< Of each picture.
  int64_t num_bytes = 0;                      ///< Held for its pictures and fields.
  std::shared_ptr<WatchedPainting> painting;  ///< Shared with the order and with readers.
  std::stop_source given_up = {};
};

/// 128 bits that nobody can guess.
std::string draw_job_id();

struct JobStoreOptions {
  size_t max_ended = 1000;                     ///< Jobs that are kept after their end.
  std::chrono::seconds keep{600};              ///< After its end.
  size_t max_expired = 10'000;                 ///< Ids of jobs that are no longer kept.
  std::chrono::seconds remember_expired{600};  ///< After the job went.
};

/// The jobs of a server. One that has ended is kept for some time, as long as there is room, and the oldest goes first; it is known for
/// some more time that there was one. Looks at the clock when it is asked, and only then. Thread safety: any thread.
class JobStore {
 public:
  struct Found {
    std::shared_ptr<Job> job = {};  ///< Null: not there. Shared with readers.
    bool is_expired = false;        ///< It was there.
  };

  explicit JobStore(Clock& clock, JobStoreOptions options = {}) : clock_(clock), options_(options) {}

  /// REQUIRES: the id is new.
  void add(std::shared_ptr<Job> job);
  Found find(const std::string& id, const std::string& owner);
  /// The owner's, the newest first, so many at most.
  std::vector<std::shared_ptr<Job>> list(const std::string& owner, size_t max_listed);
  /// As if there had never been one.
  void forget(const std::string& id);
  /// Lets the job go that ended first, except the one with the id `spared`. False: none has ended.
  bool expire_oldest(std::string_view spared = {});

 private:
  struct Expired {
    std::string id;
    std::string owner;
    Clock::Instant since;
  };
  using Jobs = std::map<uint64_t, std::shared_ptr<Job>>;  // By arrival. Shared with readers.
  void tidy();
  Jobs::iterator oldest_ended(size_t& num_ended, std::string_view spared = {});
  void expire(Jobs::iterator job);

  Clock& clock_;
  const JobStoreOptions options_;
  std::mutex mutex_;
  Jobs jobs_;
  std::map<std::string, uint64_t> arrivals_;  // Of the ids in jobs_.
  std::deque<Expired> expired_;               // The oldest first.
  uint64_t num_added_ = 0;
};

}  // namespace darkroom
