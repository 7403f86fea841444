#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/stores/hub.h"
#include "darkroom/stores/s3_store.h"
#include "darkroom/stores/web_client.h"

namespace darkroom {

enum class Access { kRead, kWrite };

/// A file to read.
struct InputObject {
  Location place;
  int64_t size_bytes = 0;
};

/// The S3 store of addresses that end with ?SETTINGS: endpoint_override=HOST[:PORT], region=, scheme=, profile=, anonymous=true,
/// timeout=20s, tries=4, with "&" between them. Where these are silent: AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL; AWS_REGION, else
/// AWS_DEFAULT_REGION; AWS_MAX_ATTEMPTS. Errors: kInvalidArgument (no such setting), those of make_s3_store.
Result<std::unique_ptr<Store>> open_s3_store(std::string_view settings, const StoreTools& tools);

struct StoreSetOptions {
  /// Asked when the first hf:// address comes.
  std::function<Result<HubOptions>()> hub = hub_from_environment;
  WebOptions web = {};
  /// How long a server that answered before is waited for while it cannot be reached: of the web, of the hub and of s3. Zero: as long as
  /// the tries of one request take.
  std::chrono::seconds outage_patience{0};
  /// Makes the store of s3:// addresses, once for each text of settings. Null: s3:// is refused.
  std::function<Result<std::unique_ptr<Store>>(std::string_view settings, const StoreTools& tools)> make_s3 = open_s3_store;
  /// Stores for addresses of further schemes, such as memory:///PATH. They outlive the set.
  std::vector<Store*> others = {};
};

/// The one place that makes Locations of what users name: local paths, file://, https://, http://, hf://, s3://. Stores are made when they
/// are first asked for and live as long as the set. Thread safety: any thread.
class StoreSet {
 public:
  /// `clock` and `metrics` outlive the set. Reads of web and hub, and all of s3 (make_s3_store), end with kCancelled when `stop` is asked
  /// for.
  /// REQUIRES: options.web.validate() is ok.
  StoreSet(StoreSetOptions options, Clock& clock, MetricsRegistry& metrics, std::stop_token stop = {});
  ~StoreSet();
  StoreSet(const StoreSet&) = delete;
  StoreSet& operator=(const StoreSet&) = delete;

  /// The place that an address names; it need not exist. A branch of the hub is resolved to the commit that it stands for now.
  /// Errors: kInvalidArgument (no address, an unknown scheme, several files, kWrite to what can only be read), those of starting a store.
  Result<Location> resolve(const std::string& uri, Access access);

  /// The files that an address names, in byte order of their paths:
  /// - a file: itself, whatever its name;
  /// - a folder: every table file (is_table_path) in it at any depth;
  /// - a pattern with *, ?, [...] inside a name, or ** as a whole name for any number of folders: every file that fits;
  /// - hf://datasets/ORG/NAME?config=C&split=S: the files of that split.
  /// A folder and a pattern skip names that start with "_" or "."; https:// has neither folders nor patterns.
  /// Errors: resolve's and the store's; kNotFound when nothing fits.
  Result<std::vector<InputObject>> resolve_inputs(const std::string& uri);
  /// The inputs of an image dataset (picture_inputs.h): of a folder those of the one kind that lies in it, of a pattern the files that fit.
  /// A folder of pictures is one object, whose path ends with a slash. Errors: also those of find_picture_inputs and named_picture_inputs.
  Result<std::vector<InputObject>> resolve_image_inputs(const std::string& uri);

  /// For whoever failed and only takes back what was begun. Where servers out of reach are waited for (outage_patience), all is from now on
  /// as after the stop that the set was made with, for good, so that nothing waits. Elsewhere nothing changes.
  void give_up();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace darkroom
