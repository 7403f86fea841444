#include "darkroom/io/fetch.h"

#include <curl/curl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <mutex>

#include "darkroom/core/check.h"
#include "darkroom/core/version.h"
#include "fetch_loop.h"

namespace darkroom {
namespace {

Status check_descriptors(int num_concurrent) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int64_t needed = descriptors_needed(num_concurrent);
  if (limit.rlim_cur != RLIM_INFINITY && static_cast<int64_t>(limit.rlim_cur) < needed) {
    return Status::failed_precondition(
        "fetching with this concurrency needs more open files than allowed; lower it or raise `ulimit -n` "
        "(concurrency, needed, allowed):",
        num_concurrent, needed, limit.rlim_cur);
  }
  return Status::ok();
}

Status find_certificate_authorities(FetchOptions& options) {
  if (options.certificate_authorities.empty()) {
    const char* built_in = curl_version_info(CURLVERSION_NOW)->cainfo;
    options.certificate_authorities = built_in != nullptr ? built_in : "/etc/ssl/certs/ca-certificates.crt";
  }
  if (access(options.certificate_authorities.c_str(), R_OK) != 0) {
    return Status::not_found("no trusted certificate authorities for https; install the package ca-certificates, or name a PEM file:",
                             options.certificate_authorities);
  }
  return Status::ok();
}

}  // namespace

int64_t descriptors_needed(int num_concurrent) { return 3 * int64_t{num_concurrent} + 64; }

Status FetchOptions::validate() const {
  const auto must_be = [](const char* rule, auto value) { return Status::invalid_argument(rule, value); };
  if (num_concurrent < 1 || num_concurrent > 100'000) {
    return must_be("num_concurrent must be between 1 and 100000:", num_concurrent);
  }
  if (timeout.count() < 1 || timeout > std::chrono::hours(24)) {
    return must_be("timeout must be between 1 ms and a day (ms):", timeout.count());
  }
  if (num_retries < 0 || num_retries > 100) {
    return must_be("num_retries must be between 0 and 100:", num_retries);
  }
  if (first_backoff.count() < 0 || first_backoff > std::chrono::hours(1)) {
    return must_be("first_backoff must be between 0 and an hour (ms):", first_backoff.count());
  }
  if (max_body_bytes < 1) {
    return must_be("max_body_bytes must be positive:", max_body_bytes);
  }
  if (max_bytes_in_flight < 1) {
    return must_be("max_bytes_in_flight must be positive:", max_bytes_in_flight);
  }
  if (max_redirects < 0 || max_redirects > 100) {
    return must_be("max_redirects must be between 0 and 100:", max_redirects);
  }
  if (user_agent.find_first_of("\r\n") != std::string::npos) {
    return must_be("user_agent must be one line:", user_agent);
  }
  return Status::ok();
}

Result<std::unique_ptr<Fetcher>> Fetcher::create(FetchOptions options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_RETURN_IF_ERROR(check_descriptors(options.num_concurrent));
  static std::once_flag is_initialised;
  std::call_once(is_initialised, [] { DARKROOM_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl does not start"); });
  DARKROOM_RETURN_IF_ERROR(find_certificate_authorities(options));
  if (options.user_agent.empty()) {
    options.user_agent = std::string("darkroom/") + kVersion;
  }
  std::unique_ptr<Fetcher> fetcher(new Fetcher(std::make_unique<Loop>(std::move(options))));
  DARKROOM_RETURN_IF_ERROR(fetcher->loop_->start());
  return fetcher;
}

Fetcher::Fetcher(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Fetcher::~Fetcher() = default;

bool Fetcher::submit(FetchRequest request) { return loop_->submit(std::move(request)); }
std::optional<FetchReply> Fetcher::next() { return loop_->next(); }
void Fetcher::close() { loop_->close(); }
void Fetcher::cancel() { loop_->cancel(); }
int Fetcher::num_outstanding() const { return loop_->num_outstanding(); }
FetchStats Fetcher::stats() const { return loop_->stats(); }

}  // namespace darkroom
