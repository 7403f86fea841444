#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "darkroom/files/paths.h"
#include "darkroom/stores/stores.h"
#include "darkroom/web/fetch.h"
#include "examination.h"

namespace darkroom {
namespace {

using Verdict = Finding::Verdict;

constexpr int64_t kMostBytes = 1'000'000;  // A page says enough; more of it is not read.

Finding problem(const std::string& uri, std::string text, std::string advice) {
  return {"stores", uri, std::move(text), Verdict::kProblem, std::move(advice)};
}

Finding examine_local(const std::string& uri) {
  const auto path = local_path(uri);
  if (!path.is_ok()) {
    return problem(uri, path.status().message(), "name a local path, or http(s)://");
  }
  const bool exists = access(path->c_str(), F_OK) == 0;
  if (!exists && errno != ENOENT) {
    return problem(uri, fmt::format("cannot be looked at: {}", std::generic_category().message(errno)), "name another path");
  }
  const bool is_readable = access(path->c_str(), R_OK) == 0;
  const bool is_writable = access(path->c_str(), W_OK) == 0;
  if (exists) {
    return is_readable ? Finding{"stores", uri, is_writable ? "can be read and written" : "can be read, not written"}
                       : problem(uri, "cannot be read", "change its permissions");
  }
  const std::string parent = parent_folder(*path).empty() ? "." : parent_folder(*path);
  if (access(parent.c_str(), W_OK) == 0) {
    return {"stores", uri, "is not there yet, and can be made"};
  }
  return problem(uri, "is not there, and cannot be made", "make its folder, or change the permissions of that");
}

/// Through the one door that download uses, with its address policy.
Result<Finding> examine_web(const std::string& uri, const std::vector<AllowedNetwork>& allow_private, const std::stop_token& stop) {
  const auto start = std::chrono::steady_clock::now();
  DARKROOM_ASSIGN_OR_RETURN(const auto fetcher, Fetcher::create({.num_concurrent = 1,
                                                                 .timeout = std::chrono::seconds(10),
                                                                 .num_retries = 0,
                                                                 .max_body_bytes = kMostBytes,
                                                                 .respect = {.noai = false},
                                                                 .allow_private = allow_private}));
  const std::stop_callback give_up(stop, [&] { fetcher->cancel(); });
  fetcher->submit({.id = 0, .url = uri});
  fetcher->close();
  const auto reply = fetcher->next();
  if (!reply) {
    return Status::cancelled("stopped while reaching:", uri);
  }
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();
  // Any answer of a server shows that it can be reached; only the reasons for none count.
  if (reply->http_status > 0) {
    return Finding{"stores", uri, fmt::format("answers {} after {} ms", reply->http_status, milliseconds)};
  }
  return problem(uri, fmt::format("cannot be reached: {} {}", reply->body.error().name(), reply->body.error().detail),
                 "look at the name, the network and its firewall; private addresses need --allow-private");
}

}  // namespace

Result<std::vector<Finding>> examine_stores(const std::vector<std::string>& uris, const std::vector<AllowedNetwork>& allow_private,
                                            const std::stop_token& stop) {
  std::vector<Finding> findings;
  for (const std::string& uri : uris) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped before looking at:", uri);
    }
    if (uri.starts_with("http://") || uri.starts_with("https://")) {
      auto finding = examine_web(uri, allow_private, stop);
      if (!finding.is_ok() && finding.status().code() == StatusCode::kCancelled) {
        return finding.status();
      }
      findings.push_back(finding.is_ok() ? *finding : problem(uri, finding.status().message(), "put it right and look again"));
    } else {
      findings.push_back(examine_local(uri));
    }
  }
  return findings;
}

}  // namespace darkroom
