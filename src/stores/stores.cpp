#include "darkroom/stores/stores.h"
#include "darkroom/core/ascii_case.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/shown_uri.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/stores/https_store.h"
#include "darkroom/stores/hub_store.h"
#include "darkroom/stores/input_listing.h"

namespace darkroom {
namespace {

std::string_view scheme_of(std::string_view uri) {
  const size_t colon = uri.find("://");
  return colon == std::string_view::npos ? std::string_view() : uri.substr(0, colon);
}

Status read_only(const std::string& uri) {
  return Status::invalid_argument("this kind of address can only be read; write to a local folder:", shown_url(uri));
}

/// Before a secret that somebody put there comes into messages and records: s3://KEY:SECRET@BUCKET is no address of ours.
Status check_bucket(std::string_view place) {
  const std::string_view bucket = place.substr(0, place.find('/'));
  const bool has_letters_of_one = std::ranges::all_of(bucket, [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
  if (has_letters_of_one && bucket.size() >= 3 && bucket.size() <= 255) {
    return Status::ok();
  }
  if (bucket.find('@') != std::string_view::npos) {
    return Status::invalid_argument(
        "an s3:// address holds no keys: they come from the environment or the AWS files; this one has an @ in its bucket");
  }
  return Status::invalid_argument("an s3:// address begins with a bucket, 3 to 255 letters, digits, dots, hyphens and underscores:",
                                  shown_uri(fmt::format("s3://{}", place)));
}

/// A presigned address of S3 is one of the web; taken for a key it would be shown whole.
Status check_unsigned(std::string_view place) {
  const std::string query = ascii_lower(std::string(place.substr(std::min(place.find('?'), place.size()))));
  for (const std::string_view name : {"x-amz-", "awsaccesskeyid=", "signature="}) {
    if (query.find(name) != std::string::npos) {
      return Status::invalid_argument("an s3:// address holds no signature; a presigned one begins with https:// (address):",
                                      shown_uri("s3://" + std::string(place)));
    }
  }
  return Status::ok();
}

/// A copy of what has such a name would lie elsewhere than in its folder, and servers and proxies disagree about what it is.
Status check_names(std::string_view path) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (const std::string_view name = path.substr(begin, end - begin); name == "." || name == "..") {
      return Status::invalid_argument("an s3:// address has no parts \".\" and \"..\"; name the object itself (address):",
                                      shown_uri(fmt::format("s3://{}", path)));
    }
    begin = end + 1;
  }
  return Status::ok();
}

/// Settings of a store stand behind the last "?" of an s3:// address, as NAME=VALUE; elsewhere "?" belongs to a key or a pattern.
std::pair<std::string_view, std::string_view> split_settings(std::string_view place) {
  constexpr std::string_view kSettings[] = {
      "endpoint_override=", "force_virtual_addressing=", "region=", "scheme=", "profile=", "anonymous=", "timeout=", "tries="};
  const size_t mark = place.rfind('?');
  const std::string_view settings = mark == std::string_view::npos ? "" : place.substr(mark + 1);
  const bool is_settings = std::ranges::any_of(kSettings, [&](std::string_view name) { return settings.starts_with(name); });
  return is_settings ? std::pair(place.substr(0, mark), settings) : std::pair(place, std::string_view());
}

}  // namespace

/// What the stores stand on, each made when it is first needed.
struct StoreSet::Parts {
  StoreSetOptions options;
  Clock& clock;
  MetricsRegistry& metrics;
  const std::stop_token asked_for;
  std::stop_source ends{};  // By the stop that was asked for, or given up.
  const std::stop_token stop = ends.get_token();
  const std::stop_callback<std::function<void()>> forward{asked_for, [this] { ends.request_stop(); }};
  std::mutex mutex{};  // Guards the making of what follows; what is made stays.
  std::unique_ptr<HttpClient> http = nullptr;
  std::unique_ptr<WebClient> web = nullptr;
  std::unique_ptr<HubClient> hub = nullptr;
  std::unique_ptr<Store> hub_store = nullptr;
  std::map<std::string, std::unique_ptr<HttpsStore>, std::less<>> web_stores{};  // By scheme.
  std::map<std::string, std::unique_ptr<Store>, std::less<>> s3_stores{};        // By settings.

  Status start_http() {
    if (http == nullptr) {
      DARKROOM_ASSIGN_OR_RETURN(http, HttpClient::start({}, metrics));
      web = std::make_unique<WebClient>(*http, clock, options.web, &metrics, options.outage_patience);
    }
    return Status::ok();
  }

  Status start_hub() {
    const std::lock_guard hold(mutex);
    if (hub_store == nullptr) {
      DARKROOM_RETURN_IF_ERROR(start_http());
      DARKROOM_ASSIGN_OR_RETURN(HubOptions found, options.hub());
      hub = std::make_unique<HubClient>(*web, std::move(found));
      hub_store = make_hub_store(*hub, clock, stop);
    }
    return Status::ok();
  }

  Result<Location> web_place(const std::string& uri, std::string_view scheme) {
    const std::lock_guard hold(mutex);
    auto found = web_stores.find(scheme);
    if (found == web_stores.end()) {
      DARKROOM_RETURN_IF_ERROR(start_http());
      found = web_stores.emplace(std::string(scheme), make_https_store(*web, std::string(scheme), stop)).first;
    }
    DARKROOM_ASSIGN_OR_RETURN(std::string path, found->second->add(uri));
    return Location{.store = found->second.get(), .path = std::move(path)};
  }

  Result<Location> hub_place(const HubUri& uri) {
    DARKROOM_RETURN_IF_ERROR(start_hub());
    DARKROOM_ASSIGN_OR_RETURN(const std::string commit, hub->commit_of(uri.repo, uri.revision.empty() ? "main" : uri.revision, stop));
    std::string path = fmt::format("{}@{}", uri.repo.prefix(), commit);
    path += uri.path.empty() ? "" : "/" + uri.path;
    return Location{.store = hub_store.get(), .path = std::move(path)};
  }

  Result<std::vector<InputObject>> hub_table(const HubUri& uri) {
    DARKROOM_RETURN_IF_ERROR(start_hub());
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<HubFile> files, hub->parquet_files(uri.repo, uri.config, uri.split, stop));
    DARKROOM_ASSIGN_OR_RETURN(const Location root, hub_place({.repo = uri.repo, .revision = std::string(kHubParquetRevision)}));
    std::vector<InputObject> found;
    for (const HubFile& file : files) {
      found.push_back({.place = root / file.path, .size_bytes = file.size_bytes});
    }
    return found;
  }

  Result<Location> s3_place(std::string_view place) {
    const auto [path, settings] = split_settings(place);
    DARKROOM_RETURN_IF_ERROR(check_bucket(path));
    DARKROOM_RETURN_IF_ERROR(check_unsigned(place));
    DARKROOM_RETURN_IF_ERROR(check_names(path));
    const std::lock_guard hold(mutex);
    auto found = s3_stores.find(settings);
    if (found == s3_stores.end()) {
      DARKROOM_RETURN_IF_ERROR(start_http());
      DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<Store> made,
                                options.make_s3(settings, {*http, clock, &metrics, stop, options.outage_patience}));
      found = s3_stores.emplace(std::string(settings), std::move(made)).first;
    }
    return Location{.store = found->second.get(), .path = std::string(without_trailing_slashes(path))};
  }
};

StoreSet::StoreSet(StoreSetOptions options, Clock& clock, MetricsRegistry& metrics, std::stop_token stop)
    : parts_(new Parts{.options = std::move(options), .clock = clock, .metrics = metrics, .asked_for = std::move(stop)}) {
  DARKROOM_CHECK(parts_->options.web.validate().is_ok(), "options of a set of stores:", parts_->options.web.validate().to_string());
}

StoreSet::~StoreSet() = default;

void StoreSet::give_up() {
  if (parts_->options.outage_patience.count() > 0) {  // Otherwise nobody waits for long, and who failed may go on with the set.
    parts_->ends.request_stop();
  }
}

Result<Location> StoreSet::resolve(const std::string& uri, Access access) {
  const std::string_view scheme = scheme_of(uri);
  for (Store* store : parts_->options.others) {
    if (!scheme.empty() && store->scheme() == scheme) {
      return Location{.store = store, .path = uri.substr(scheme.size() + 3)};
    }
  }
  const bool is_web = scheme == "https" || scheme == "http";
  if (access == Access::kWrite && (is_web || scheme == "hf")) {
    return read_only(uri);
  }
  if (is_web) {
    return parts_->web_place(uri, scheme);
  }
  if (scheme == "hf") {
    DARKROOM_ASSIGN_OR_RETURN(const HubUri place, HubUri::parse(uri));
    return place.is_table ? Result<Location>(Status::invalid_argument(
                                "config= and split= name several files, and here one place is wanted:", shown_uri(uri)))
                          : parts_->hub_place(place);
  }
  if (scheme == "s3" && parts_->options.make_s3 != nullptr) {
    return parts_->s3_place(std::string_view(uri).substr(scheme.size() + 3));
  }
  DARKROOM_ASSIGN_OR_RETURN(std::string path, local_path(uri));
  return Location{.store = &local_store(), .path = std::move(path)};
}

Result<std::vector<InputObject>> StoreSet::resolve_inputs(const std::string& uri) {
  if (scheme_of(uri) == "hf") {
    DARKROOM_ASSIGN_OR_RETURN(const HubUri table, HubUri::parse(uri));
    if (table.is_table) {
      return parts_->hub_table(table);
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location place, resolve(uri, Access::kRead));
  return list_inputs_at(place, parts_->stop);
}

Result<std::vector<InputObject>> StoreSet::resolve_image_inputs(const std::string& uri) {
  if (scheme_of(uri) == "hf") {
    DARKROOM_ASSIGN_OR_RETURN(const HubUri table, HubUri::parse(uri));
    if (table.is_table) {
      return parts_->hub_table(table);
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location place, resolve(uri, Access::kRead));
  return list_image_inputs_at(place, parts_->stop);
}

}  // namespace darkroom
