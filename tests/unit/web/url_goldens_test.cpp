#include <curl/curl.h>
#include <gtest/gtest.h>
#include <idn2.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/web/url_hop.h"
#include "support/source_path.h"

// libcurl and libidn2 decide which URL is fetched and from which host, and which is none. Here that is compared with what the releases of
// Debian 12 decided, so that no other one decides otherwise in silence (docs/formats/README.md).
namespace darkroom {
namespace {

using Json = nlohmann::ordered_json;

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string url_of(const Json& entry) {
  return entry.contains("hex") ? bytes_of_hex(entry["hex"].get<std::string>()) : entry["url"].get<std::string>();
}

// "URL HOST PORT", or the error's name.
std::string outcome_of(const std::string& url) {
  const auto hop = UrlHop::parse(url, HopPolicy());
  return hop.is_ok() ? hop->url() + " " + hop->host() + " " + std::to_string(hop->port()) : hop.error().name();
}

Json read_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// For tools/goldens/make_url_goldens.py.
void record(const std::string& path) {
  Json golden = read_json(path);
  for (Json& entry : golden["cases"]) {
    entry["outcome"] = outcome_of(url_of(entry));
  }
  Json recorded = {{"libcurl", curl_version_info(CURLVERSION_NOW)->version}, {"libidn2", idn2_check_version(nullptr)}};
  recorded["cases"] = golden["cases"];
  std::ofstream(path) << recorded.dump();
}

TEST(url_goldens, every_url_becomes_what_was_recorded) {
  if (const char* path = std::getenv("DARKROOM_RECORD_URLS")) {
    record(path);
    return;
  }
  const Json golden = read_json(source_path("tests/golden/web/urls.json"));
  ASSERT_GE(golden["cases"].size(), 300U);
  for (const Json& entry : golden["cases"]) {
    EXPECT_EQ(outcome_of(url_of(entry)), entry["outcome"].get<std::string>())
        << entry.dump() << ": libcurl " << curl_version_info(CURLVERSION_NOW)->version << " and libidn2 " << idn2_check_version(nullptr)
        << " decide otherwise than libcurl " << golden["libcurl"] << " and libidn2 " << golden["libidn2"];
  }
}

}  // namespace
}  // namespace darkroom
