#include "darkroom/web/spot_notice.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr int kSpotHttpOk = 200;
constexpr int64_t kMostNoticeBytes = 65'536;

std::string spot_variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

std::string without_spot_slash(std::string text) {
  if (text.ends_with('/')) {
    text.pop_back();
  }
  return text;
}

// A metadata service is on the machine itself and answers at once, or there is none.
HttpRequest spot_request(const std::string& url) {
  HttpRequest request{.url = url};
  request.limits.connect = std::chrono::seconds(2);
  request.limits.idle = request.limits.total = std::chrono::seconds(4);
  request.limits.max_body_bytes = kMostNoticeBytes;
  return request;
}

std::string spot_text(const std::string& text) {
  constexpr size_t kShown = 200;
  std::string line;
  for (const char character : text.substr(0, kShown)) {
    line += static_cast<unsigned char>(character) < ' ' ? ' ' : character;
  }
  return line;
}

Result<HttpResponse> ask_aws(const std::string& service, HttpClient& http, const std::stop_token& stop) {
  HttpRequest token = spot_request(service + "/latest/api/token");
  token.method = "PUT";
  token.headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "60"}};
  DARKROOM_ASSIGN_OR_RETURN(const HttpResponse granted, http.perform(token, stop));
  HttpRequest action = spot_request(service + "/latest/meta-data/spot/instance-action");
  if (granted.status() == kSpotHttpOk) {
    action.headers = {{"X-aws-ec2-metadata-token", granted.body}};
  }
  return http.perform(action, stop);
}

Result<HttpResponse> ask_gcp(const std::string& service, HttpClient& http, const std::stop_token& stop) {
  HttpRequest preempted = spot_request(service + "/computeMetadata/v1/instance/preempted");
  preempted.headers = {{"Metadata-Flavor", "Google"}};
  return http.perform(preempted, stop);
}

}  // namespace

Result<SpotSource> SpotSource::parse(const std::string& text) {
  const std::string service = ascii_lower(text);
  if (service == "aws") {
    return SpotSource{Kind::kAws, without_spot_slash(spot_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254"))};
  }
  if (service == "gcp") {
    return SpotSource{Kind::kGcp, fmt::format("http://{}", spot_variable("GCE_METADATA_HOST", "metadata.google.internal"))};
  }
  if (text.starts_with("http://") || text.starts_with("https://")) {
    return SpotSource{Kind::kUrl, text};
  }
  std::error_code failure;
  const bool is_file = text.find('/') != std::string::npos || std::filesystem::is_regular_file(text, failure);
  if (!is_file || text.find("://") != std::string::npos) {
    return Status::invalid_argument(
        "a spot notice comes from aws, gcp, an http or https URL, or a file (./NAME where it is not there yet), got:",
        fmt::format("'{}'", text));
  }
  return SpotSource{Kind::kFile, text};
}

Result<std::optional<std::string>> ask_for_spot_notice(const SpotSource& source, HttpClient& http, const std::stop_token& stop) {
  using Notice = std::optional<std::string>;
  if (source.kind == SpotSource::Kind::kFile) {
    std::error_code failure;  // A file that cannot be looked at is not there.
    return std::filesystem::exists(source.place, failure) ? Notice(source.place) : Notice();
  }
  const bool is_aws = source.kind == SpotSource::Kind::kAws, is_gcp = source.kind == SpotSource::Kind::kGcp;
  DARKROOM_ASSIGN_OR_RETURN(const HttpResponse answer, is_aws   ? ask_aws(source.place, http, stop)
                                                       : is_gcp ? ask_gcp(source.place, http, stop)
                                                                : http.perform(spot_request(source.place), stop));
  const bool is_notice = answer.status() == kSpotHttpOk && (!is_gcp || answer.body.starts_with("TRUE"));
  return is_notice ? Notice(spot_text(answer.body)) : Notice();
}

SpotWatch::SpotWatch(SpotSource source, HttpClient& http, Clock& clock, std::function<void(const std::string& notice)> on_notice)
    : source_(std::move(source)),
      http_(http),
      clock_(clock),
      on_notice_(std::move(on_notice)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void SpotWatch::watch(const std::stop_token& stop) {
  bool was_warned = false;
  do {
    const auto notice = ask_for_spot_notice(source_, http_, stop);
    if (notice.is_ok() && notice->has_value()) {
      on_notice_(**notice);
      return;
    }
    if (!notice.is_ok() && !was_warned && !stop.stop_requested()) {
      was_warned = true;
      log_warning("where a spot notice would come from gives no answer; it is asked again every {} s: {}", kPeriod.count(),
                  notice.status().message());
    }
  } while (clock_.sleep_until(clock_.now() + kPeriod, stop));
}

}  // namespace darkroom
