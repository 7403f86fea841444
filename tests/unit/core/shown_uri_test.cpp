#include "darkroom/core/shown_uri.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace darkroom {
namespace {

const std::vector<std::pair<std::string, std::string>> kShownUris = {
    {"", ""},
    {"urls.parquet", "urls.parquet"},
    {"laion/part-?.parquet", "laion/part-?.parquet"},
    {"a?b=c", "a?b=c"},
    {"https://host/a/b.parquet", "https://host/a/b.parquet"},
    {"https://host:8443/a", "https://host:8443/a"},
    {"https://host/a?X-Amz-Signature=CANARY&b=c", "https://host/a?..."},
    {"https://host/a?CANARY", "https://host/a?..."},
    {"https://host/a#CANARY", "https://host/a?..."},
    {"https://host?CANARY", "https://host?..."},
    {"https://user:CANARY@host/a", "https://host/a"},
    {"https://CANARY@host:80/a", "https://host:80/a"},
    {"https://u:CAN@ARY@host/a", "https://host/a"},
    {"https://u:CAN/ARY@host/a", "https://host/a"},
    {"https://host/a@v1/b", "https://host/a@v1/b"},
    {"https://host:80/a@v1/b", "https://host:80/a@v1/b"},
    {"http://[::1]:80/a@v1", "http://[::1]:80/a@v1"},
    {"HTTPS://u:CANARY@host/a?CANARY", "HTTPS://host/a?..."},
    {"s3://bucket/a b#c", "s3://bucket/a b#c"},
    {"s3://bucket/key?region=x&profile=CANARY", "s3://bucket/key?..."},
    {"s3://bucket/a?b/part-?.parquet", "s3://bucket/a?b/part-?.parquet"},
    {"s3://ID:CANARY@bucket/key", "s3://bucket/key"},
    {"s3://ID:CAN/ARY+@bucket/key", "s3://bucket/key"},
    {"s3://ID:/CANARY@bucket/key", "s3://bucket/key"},
    {"s3://ID:7/CANARY@bucket/key", "s3://bucket/key"},
    {"s3://bucket/key?token=CANARY?x", "s3://bucket/key?..."},
    {"s3://bucket/part-?.parquet?token=CANARY", "s3://bucket/part-?.parquet?..."},
    {"s3://bucket/key@v1", "s3://bucket/key@v1"},
    {"http://u:/CANARY@host/a", "http://host/a"},
    {"http://u:123456/CANARY@host/a", "http://host/a"},
    {"hf://datasets/o/n@refs/convert/x/a.parquet", "hf://datasets/o/n@refs/convert/x/a.parquet"},
    {"hf://datasets/o/n?config=c&split=s", "hf://datasets/o/n?config=c&split=s"},
    {"hf://datasets/o/n?config=c&token=CANARY", "hf://datasets/o/n?..."},
    {"hf://datasets/o/n?token=CANARY", "hf://datasets/o/n?..."},
    {"hf://datasets/o/n/a?.parquet", "hf://datasets/o/n/a?.parquet"},
    {"hf://user:CANARY@datasets/o/n", "hf://datasets/o/n"},
    {"://", "://"},
    {"https://", "https://"},
    {"https://@", "https://"},
};

TEST(ShownUri, keeps_what_names_a_place_and_nothing_that_opens_it) {
  for (const auto& [uri, want] : kShownUris) {
    EXPECT_EQ(shown_uri(uri), want) << uri;
    EXPECT_EQ(shown_uri(want), want);
  }
}

TEST(ShownUri, of_a_text_each_address_loses_its_secrets) {
  EXPECT_EQ(without_uri_secrets("cannot read https://u:CANARY@host/a?b=CANARY: no such file 'https://h/x?CANARY' (s3://b/k?profile=p)"),
            "cannot read https://host/a?... no such file 'https://h/x?...' (s3://b/k?...");
  EXPECT_EQ(without_uri_secrets("12:00:00 a://b c://d?e=f\nhttps://h?x"), "12:00:00 a://b c://d?...\nhttps://h?...");
  EXPECT_EQ(without_uri_secrets("no address: a?b=c"), "no address: a?b=c");
  for (const auto& [uri, want] : kShownUris) {
    if (uri.find(' ') == std::string::npos) {
      EXPECT_EQ(without_uri_secrets("x " + uri + "\"y\""), "x " + want + "\"y\"") << uri;
    }
  }
}

}  // namespace
}  // namespace darkroom
