#include "stores/s3_sender.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace darkroom {
namespace {

TEST(s3_sender, asks_the_host_that_serves_a_bucket) {
  struct Case {
    std::string what;
    S3Options options;
    std::string region;
    S3Name name;
    std::string host;
    std::string path;
  };
  const S3Options path_style{.endpoint = "store:9000"};
  const S3Options own_host{.endpoint = "store:9000", .path_style = false};
  const std::vector<Case> cases = {
      {"AWS", {}, "us-east-1", {"b", "a/k"}, "b.s3.us-east-1.amazonaws.com", "/a/k"},
      {"AWS, a bucket with dots", {}, "eu-west-1", {"b.c", "k"}, "s3.eu-west-1.amazonaws.com", "/b.c/k"},
      {"AWS, the bucket itself", {}, "us-east-1", {"b", ""}, "b.s3.us-east-1.amazonaws.com", "/"},
      {"AWS, path_style is of endpoints", {.path_style = true}, "us-east-1", {"b", "k"}, "b.s3.us-east-1.amazonaws.com", "/k"},
      {"AWS of China", {}, "cn-north-1", {"b", "k"}, "b.s3.cn-north-1.amazonaws.com.cn", "/k"},
      {"AWS of China, a bucket with dots", {}, "cn-northwest-1", {"b.c", ""}, "s3.cn-northwest-1.amazonaws.com.cn", "/b.c"},
      {"an endpoint", path_style, "cn-north-1", {"b", "k"}, "store:9000", "/b/k"},
      {"an endpoint's bucket", path_style, "x", {"b", ""}, "store:9000", "/b"},
      {"hosts of their own", own_host, "x", {"b", "k"}, "b.store:9000", "/k"},
      {"the port of https", {.endpoint = "store:443"}, "x", {"b", "k"}, "store", "/b/k"},
      {"the port of http", {.endpoint = "store:80", .scheme = "http"}, "x", {"b", "k"}, "store", "/b/k"},
      {"another scheme's port", {.endpoint = "store:443", .scheme = "http"}, "x", {"b", "k"}, "store:443", "/b/k"},
  };
  for (const Case& each : cases) {
    const S3Address address = address_of(each.options, each.region, each.name);
    EXPECT_EQ(address.host, each.host) << each.what;
    EXPECT_EQ(address.path, each.path) << each.what;
  }
}

}  // namespace
}  // namespace darkroom
