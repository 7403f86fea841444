#pragma once

#include <memory>
#include <optional>
#include <string>

#include "darkroom/core/metrics.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/stores/stores.h"
#include "darkroom/web/http_client.h"
#include "stores/s3_object_store.h"
#include "support/fake_s3.h"
#include "support/leap_clock.h"

namespace darkroom {

/// A set of stores whose s3:// addresses lead to a fake server on this machine, with the bucket "pictures". No wait takes time.
class FakeS3Stores {
 public:
  explicit FakeS3Stores(FakeS3::Conditions conditions = FakeS3::Conditions::kEverywhere, int64_t part_bytes = int64_t{8} << 20)
      : fake(conditions), part_bytes_(part_bytes) {}

  /// "s3://pictures/NAME".
  static std::string uri(const std::string& name) { return std::string("s3://") + FakeS3::kBucket + "/" + name; }
  Location place(const std::string& name) { return set.resolve(uri(name), Access::kWrite).value(); }
  /// Stores every file of a local folder below s3://pictures/NAME.
  Status upload(const std::string& folder, const std::string& name) { return copy_tree_there(folder, place(name)); }

  FakeS3 fake;
  LeapClock clock;
  MetricsRegistry metrics;

 private:
  Result<std::unique_ptr<Store>> make(const StoreTools& tools) {
    const S3Options options{.endpoint = fake.endpoint(), .scheme = "http", .part_bytes = part_bytes_};
    const S3KeySource keys = [this](bool) -> Result<std::optional<S3Keys>> { return std::optional(fake.keys); };
    return std::unique_ptr<Store>(std::make_unique<S3Store>(std::make_unique<S3Client>(options, keys, tools)));
  }

  int64_t part_bytes_;

 public:
  StoreSet set{{.make_s3 = [this](std::string_view, const StoreTools& tools) { return make(tools); }}, clock, metrics};
};

}  // namespace darkroom
