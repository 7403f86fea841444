#include "darkroom/web/fetch.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/version.h"
#include "fetch_engine.h"

namespace darkroom {
namespace {

constexpr int64_t kWantedDescriptors = 32'768;

/// Raises the soft limit as far as it is of use; gives what is allowed then.
Result<int64_t> raise_descriptor_limit(int num_concurrent) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto wanted = static_cast<rlim_t>(std::max(kWantedDescriptors, descriptors_needed(num_concurrent)));
  if (limit.rlim_cur < wanted && limit.rlim_cur < limit.rlim_max) {
    const rlimit raised{.rlim_cur = std::min(wanted, limit.rlim_max), .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
      limit = raised;
    }
  }
  if (limit.rlim_cur < static_cast<rlim_t>(descriptors_needed(num_concurrent))) {
    return Status::failed_precondition(
        "fetching with this concurrency needs more open files than allowed; lower it or have `ulimit -Hn` raised "
        "(concurrency, needed, allowed):",
        num_concurrent, descriptors_needed(num_concurrent), limit.rlim_cur);
  }
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kWantedDescriptors + num_concurrent));
}

}  // namespace

Status FetchOptions::validate() const {
  const auto must_be = [](const char* rule, auto value) { return Status::invalid_argument(rule, value); };
  if (num_concurrent < 1 || num_concurrent > 100'000) {
    return must_be("num_concurrent must be between 1 and 100000:", num_concurrent);
  }
  if (timeout.count() < 1 || timeout > std::chrono::hours(24)) {
    return must_be("timeout must be between 1 ms and a day (ms):", timeout.count());
  }
  if (max_body_bytes < 1) {
    return must_be("max_body_bytes must be positive:", max_body_bytes);
  }
  if (max_bytes_in_flight < 1) {
    return must_be("max_bytes_in_flight must be positive:", max_bytes_in_flight);
  }
  if (user_agent.find_first_of("\r\n") != std::string::npos) {
    return must_be("user_agent must be one line:", user_agent);
  }
  if (num_loops < 0 || num_loops > 256) {
    return must_be("num_loops must be between 0 and 256:", num_loops);
  }
  if (network.probe_after.count() < 0 || network.first_interval.count() < 1 || network.longest_interval < network.first_interval) {
    return must_be("the waits of the network watch must be positive, the longest one last (ms):", network.probe_after.count());
  }
  DARKROOM_RETURN_IF_ERROR(resolver.validate());
  return host_rules(*this).validate();
}

Result<std::unique_ptr<Fetcher>> Fetcher::create(FetchOptions options, MetricsRegistry* metrics) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_ASSIGN_OR_RETURN(const int64_t max_open_files, raise_descriptor_limit(options.num_concurrent));
  if (options.user_agent.empty()) {
    options.user_agent = std::string("darkroom/") + kVersion;
  }
  const FetchRoom room = plan_room(options.num_concurrent, max_open_files);
  std::unique_ptr<Fetcher> fetcher(new Fetcher(std::make_unique<Engine>(std::move(options), room, metrics)));
  DARKROOM_RETURN_IF_ERROR(fetcher->engine_->start());
  return fetcher;
}

Fetcher::Fetcher(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
Fetcher::~Fetcher() = default;

bool Fetcher::submit(FetchRequest request) { return engine_->submit(std::move(request)); }
std::optional<FetchReply> Fetcher::next() { return engine_->next(); }
bool Fetcher::wait_for_demand(int64_t max_beyond) { return engine_->wait_for_demand(max_beyond); }
void Fetcher::close() { engine_->close(); }
void Fetcher::cancel() { engine_->cancel(); }
Status Fetcher::failure() const { return engine_->failure(); }
int Fetcher::num_outstanding() const { return engine_->num_outstanding(); }
FetchStats Fetcher::stats() const { return engine_->stats(); }

}  // namespace darkroom
