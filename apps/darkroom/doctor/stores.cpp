#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "darkroom/core/shown_uri.h"
#include "darkroom/core/version.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/stores/stores.h"
#include "darkroom/web/fetch.h"
#include "examination.h"

namespace darkroom {
namespace {

using Verdict = Finding::Verdict;

constexpr int64_t kMostBytes = 1'000'000;  // A page says enough; more of it is not read.

Finding good(const std::string& uri, std::string text) { return {"stores", shown_uri(uri), std::move(text)}; }

Finding problem(const std::string& uri, std::string text, std::string advice) {
  return {"stores", shown_uri(uri), std::move(text), Verdict::kProblem, std::move(advice)};
}

int64_t milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();
}

/// The kind of a store's failure for people; the message behind it says more.
Finding failure(const std::string& uri, const Status& status) {
  const auto with = [&](const char* what, const char* advice) {
    return problem(uri, fmt::format("{}: {}", what, without_uri_secrets(status.message())), advice);
  };
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return with("is no address of a store", "mend the address, or the variable that the message names");
    case StatusCode::kNotFound:
      return with("is not there", "look at the name; what is private is shown to those only who may see it (HF_TOKEN)");
    case StatusCode::kFailedPrecondition:
      return with("is refused", "do what the message says: credentials, region, the right to read");
    case StatusCode::kUnavailable:
      return with("cannot be reached", "look at the name, the network and its firewall, then try again");
    default:
      return with("fails", "put it right and look again");
  }
}

// Of what is above a path that is not there: jobs make the folders between.
std::string nearest_ancestor(const std::string& path) {
  std::string ancestor = parent_folder(path);
  while (access(ancestor.c_str(), F_OK) != 0 && ancestor != parent_folder(ancestor)) {
    ancestor = parent_folder(ancestor);
  }
  return ancestor;
}

Finding examine_local(const std::string& uri) {
  const auto path = local_path(uri);
  if (!path.is_ok()) {
    return problem(uri, without_uri_secrets(path.status().message()), "name a local path, or s3://, hf://, http(s)://");
  }
  const bool exists = access(path->c_str(), F_OK) == 0;
  if (!exists && errno != ENOENT) {
    return problem(uri, fmt::format("cannot be looked at: {}", std::generic_category().message(errno)), "name another path");
  }
  const bool is_readable = access(path->c_str(), R_OK) == 0;
  const bool is_writable = access(path->c_str(), W_OK) == 0;
  if (exists) {
    return is_readable ? good(uri, is_writable ? "can be read and written" : "can be read, not written")
                       : problem(uri, "cannot be read", "change its permissions");
  }
  const std::string ancestor = nearest_ancestor(*path);
  if (access(join_path(ancestor, ".").c_str(), W_OK | X_OK) == 0) {
    return good(uri, "is not there yet, and can be made");
  }
  return problem(uri, fmt::format("is not there, and cannot be made below {}", ancestor),
                 "change the permissions of that, or name another path");
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
    return Status::cancelled("stopped while reaching:", shown_uri(uri));
  }
  // Any answer of a server shows that it can be reached; only the reasons for none count.
  if (reply->http_status > 0) {
    return good(uri, fmt::format("answers {} after {} ms", reply->http_status, milliseconds_since(start)));
  }
  return problem(uri, fmt::format("cannot be reached: {} {}", reply->body.error().name(), reply->body.error().detail),
                 "look at the name, the network and its firewall; private addresses need --allow-private");
}

/// What lies at a place of S3, by a page of the listing at most.
Result<std::string> look_at_s3(const Location& place, const std::stop_token& stop) {
  bool has_objects = false;
  const Status listed = place.store->list_tree(place.path, stop, [&](std::span<const FileInfo>) {
    has_objects = true;
    return Status::cancelled("one page is enough");
  });
  if (has_objects || listed.is_ok()) {
    return std::string(has_objects ? "objects lie in it" : "it is empty");
  }
  if (listed.code() != StatusCode::kNotFound) {
    return listed;
  }
  const Result<FileInfo> object = place.store->stat(place.path);
  if (object.is_ok() || object.status().code() != StatusCode::kNotFound) {
    DARKROOM_RETURN_IF_ERROR(object.status());
    return fmt::format("an object of {}", readable_bytes(static_cast<double>(object->size_bytes)));
  }
  return std::string("nothing has that name yet");
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// As whom, and for which region the requests are signed first; names no key.
std::string s3_identity(const std::string& uri) {
  const std::string settings = uri.substr(std::min(uri.rfind('?'), uri.size()));
  const char* credentials = settings.find("anonymous=true") == std::string::npos ? "credentials were found" : "without credentials";
  if (settings.find("region=") != std::string::npos) {
    return fmt::format("{}, the region is the address's", credentials);
  }
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    if (const std::string region = variable(name); !region.empty()) {
      return fmt::format("{}, {} is {}", credentials, name, region);
    }
  }
  return fmt::format("{}, no region is set: us-east-1 or what the bucket says", credentials);
}

/// What lies at a place of the hub.
Result<std::string> look_at_hub(StoreSet& stores, const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(const HubUri named, HubUri::parse(uri));
  if (named.is_table) {
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<InputObject> files, stores.resolve_inputs(uri));
    return fmt::format("{} files of a split", files.size());
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(uri, Access::kRead));
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, place.store->stat(place.path));
  if (!info.is_folder) {
    return fmt::format("a file of {}", readable_bytes(static_cast<double>(info.size_bytes)));
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, place.store->list(place.path));
  return fmt::format("a folder of {} entries", entries.size());
}

Result<std::string> hub_identity() {
  DARKROOM_ASSIGN_OR_RETURN(const HubOptions options, hub_from_environment());
  return std::string(options.token ? "a token was found" : "without a token");
}

/// s3:// and hf://, through the stores that all verbs use, with less patience: a dead one is told within about 15 s.
Result<Finding> examine_remote(StoreSet& stores, const std::string& uri, const std::stop_token& stop) {
  const auto start = std::chrono::steady_clock::now();
  const bool is_s3 = uri.starts_with("s3://");
  const auto look = [&]() -> Result<std::string> {
    if (!is_s3) {
      return look_at_hub(stores, uri);
    }
    DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(uri, Access::kRead));
    return look_at_s3(place, stop);
  };
  const Result<std::string> found = look();
  if (stop.stop_requested()) {
    return Status::cancelled("stopped while reaching:", shown_uri(uri));
  }
  if (!found.is_ok()) {
    return failure(uri, found.status());
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string identity, is_s3 ? s3_identity(uri) : hub_identity());
  return good(uri, fmt::format("answers after {} ms: {}; {}", milliseconds_since(start), *found, identity));
}

StoreSetOptions impatient_options() {
  using std::chrono::seconds;
  StoreSetOptions options;
  options.web = {.limits = {.connect = seconds(5), .idle = seconds(10), .total = seconds(15)},
                 .max_tries = 3,
                 .patience = seconds(10),
                 .user_agent = fmt::format("darkroom/{}", kVersion)};
  return options;
}

Result<Finding> examine_store(StoreSet& stores, const std::string& uri, const std::vector<AllowedNetwork>& allow_private,
                              const std::stop_token& stop) {
  if (uri.starts_with("http://") || uri.starts_with("https://")) {
    return examine_web(uri, allow_private, stop);
  }
  return uri.starts_with("s3://") || uri.starts_with("hf://") ? examine_remote(stores, uri, stop) : examine_local(uri);
}

}  // namespace

Result<std::vector<Finding>> examine_stores(const std::vector<std::string>& uris, const std::vector<AllowedNetwork>& allow_private,
                                            const std::stop_token& stop) {
  MetricsRegistry metrics;
  StoreSet stores(impatient_options(), system_clock(), metrics, stop);
  std::vector<Finding> findings;
  for (const std::string& uri : uris) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped before looking at:", shown_uri(uri));
    }
    Result<Finding> finding = examine_store(stores, uri, allow_private, stop);
    if (!finding.is_ok() && finding.status().code() == StatusCode::kCancelled) {
      return finding.status();
    }
    findings.push_back(finding.is_ok() ? *std::move(finding) : failure(uri, finding.status()));
  }
  return findings;
}

}  // namespace darkroom
