#include "s3_key_issuers.h"

#include <algorithm>
#include <span>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/web/retry_rules.h"
#include "darkroom/web/url_hop.h"
#include "issued_keys.h"
#include "key_process.h"
#include "s3_signature.h"
#include "sha1.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;

constexpr int kIssuerTries = 3;
constexpr int kMetadataTries = 2;  // Most machines have none, and find that out by silence.
constexpr milliseconds kIssuerPatience{3'000};
constexpr milliseconds kMetadataPatience{1'000};
constexpr Backoff kIssuerBackoff{.first = milliseconds(200), .longest = milliseconds(2'000)};
constexpr std::string_view kMetadataRoles = "/latest/meta-data/iam/security-credentials/";

Status issuer_refused(std::string_view who, std::string_view why) {
  return Status::failed_precondition(fmt::format("no keys for S3 from {}:", who), why);
}

HttpRequest issuer_request(std::string method, std::string url, HttpHeaders headers = {}) {
  HttpRequest request{.method = std::move(method), .url = std::move(url), .headers = std::move(headers)};
  request.limits = {.connect = kIssuerPatience, .idle = kIssuerPatience, .total = 2 * kIssuerPatience, .max_body_bytes = kMaxIssuedBytes};
  return request;
}

/// A line of a header, or of a path: nothing that ends it.
bool is_one_line(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7F; });
}

std::string trimmed_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

bool is_aws_region(std::string_view text) {
  return !text.empty() && text.size() <= 64 && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

/// Whom a container may ask over http: this machine, and the addresses of Amazon's container services.
bool may_be_asked_openly(std::string_view host) {
  return host == "localhost" || host == "169.254.170.2" || host == "169.254.170.23" || host == "[fd00:ec2::23]" || host == "[::1]" ||
         (host.starts_with("127.") && IpAddress::parse(host).has_value());
}

std::string_view host_of(std::string_view url) {
  const size_t begin = url.find("://") + 3;
  std::string_view authority = url.substr(begin, url.find_first_of("/?#", begin) - begin);
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos;
  return has_port ? authority.substr(0, colon) : authority;
}

std::string form_of(const std::vector<std::pair<std::string_view, std::string>>& fields) {
  std::string body;
  for (const auto& [name, value] : fields) {
    if (!value.empty()) {
      body += fmt::format("{}{}={}", body.empty() ? "" : "&", name, encode_s3_value(value));
    }
  }
  return body;
}

}  // namespace

HttpResponse S3KeyIssuers::exchange_patiently(const HttpRequest& request, int num_tries) const {
  for (int i = 0;; ++i) {
    HttpResponse response = tools_.exchange(request);
    const bool may_pass = response.is_answered() ? store_status_may_pass(response.status())
                                                 : may_be_own_network(response.end) || response.end == HttpEnd::kConnectionRefused;
    if (!may_pass || i + 1 >= num_tries) {
      return response;
    }
    tools_.clock.sleep_until(tools_.clock.now() + kIssuerBackoff.delay(i, 1.0), {});
  }
}

Result<std::string> S3KeyIssuers::fetch(std::string_view who, const HttpRequest& request) const {
  HttpResponse response = exchange_patiently(request, kIssuerTries);
  if (!response.is_answered()) {
    return Status::unavailable(fmt::format("no keys for S3 from {}, it gave no answer (how):", who), http_end_name(response.end));
  }
  if (response.status() != 200) {
    const auto code = store_status_may_pass(response.status()) ? StatusCode::kUnavailable : StatusCode::kFailedPrecondition;
    return Status::make(code, fmt::format("no keys for S3 from {}, it refuses (status, code):", who), response.status(),
                        assume_error_code(response.body));
  }
  return std::move(response.body);
}

Result<std::optional<S3Keys>> S3KeyIssuers::ask_in_chain(S3KeyIssuer issuer, const std::string& profile, const Profiles& before) const {
  const auto found = [](Result<S3Keys> keys) -> Result<std::optional<S3Keys>> {
    return keys.is_ok() ? Result<std::optional<S3Keys>>(std::optional(*std::move(keys))) : keys.status();
  };
  switch (issuer) {
    case S3KeyIssuer::kWebIdentity:
      return found(ask_web_identity({.arn = tools_.places.variable("AWS_ROLE_ARN"),
                                     .session = tools_.places.variable("AWS_ROLE_SESSION_NAME"),
                                     .external_id = "",
                                     .seconds = "",
                                     .region = ""},
                                    tools_.places.variable("AWS_WEB_IDENTITY_TOKEN_FILE")));
    case S3KeyIssuer::kProfile:
      return found(ask_profile(profile, before));
    case S3KeyIssuer::kContainer:
      return found(ask_container());
    case S3KeyIssuer::kInstance:
      return ask_instance();
  }
  DARKROOM_CHECK(false, "unknown issuer of keys:", static_cast<int>(issuer));
  return std::optional<S3Keys>();
}

Result<S3Keys> S3KeyIssuers::ask_container() const {
  constexpr std::string_view kWho = "the container's credential service";
  const std::string relative = tools_.places.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url =
      relative.empty() ? tools_.places.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI") : "http://169.254.170.2" + relative;
  const bool is_open = url.starts_with("http://");
  if (!is_one_line(url) || url.find('@') != std::string::npos || (!is_open && !url.starts_with("https://"))) {
    return issuer_refused(kWho, "AWS_CONTAINER_CREDENTIALS_FULL_URI is no http:// or https:// address");
  }
  if (is_open && !may_be_asked_openly(host_of(url))) {
    return issuer_refused(kWho, "AWS_CONTAINER_CREDENTIALS_FULL_URI leads to another machine over http; it must be https");
  }
  std::string token = tools_.places.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const std::string file = tools_.places.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !file.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(token, tools_.places.read_file(file));
    token = trimmed_end(std::move(token));
  }
  if (!is_one_line(token)) {
    return issuer_refused(kWho, "its authorization token holds a line break");
  }
  HttpHeaders headers = {{"Accept", "application/json"}};
  if (!token.empty()) {
    headers.emplace_back("Authorization", token);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string answer, fetch(kWho, issuer_request("GET", url, std::move(headers))));
  return read_issued_keys(answer, "Token");
}

Result<std::optional<S3Keys>> S3KeyIssuers::ask_instance() const {
  std::string place = tools_.places.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (place.empty()) {
    const bool is_ipv6 = tools_.places.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE") == "IPv6";
    place = is_ipv6 ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
  }
  place.resize(place.ends_with('/') ? place.size() - 1 : place.size());
  if (!is_one_line(place) || (!place.starts_with("http://") && !place.starts_with("https://"))) {
    return issuer_refused("the instance's metadata", "AWS_EC2_METADATA_SERVICE_ENDPOINT is no http:// or https:// address");
  }
  const auto ask_metadata = [&](const char* method, std::string_view path, HttpHeaders headers) {
    HttpRequest request = issuer_request(method, fmt::format("{}{}", place, path), std::move(headers));
    request.limits.connect = request.limits.idle = kMetadataPatience;
    return exchange_patiently(request, kMetadataTries);
  };
  const HttpResponse token = ask_metadata("PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}});
  if (!token.is_answered()) {
    return std::optional<S3Keys>();  // No such machine.
  }
  HttpHeaders headers;
  if (token.status() == 200 && is_one_line(token.body)) {
    headers.emplace_back("X-aws-ec2-metadata-token", token.body);
  }
  const HttpResponse roles = ask_metadata("GET", kMetadataRoles, headers);
  const std::string role = trimmed_end(roles.body.substr(0, roles.body.find('\n')));
  if (roles.status() == 404 || (roles.status() == 200 && role.empty())) {
    return std::optional<S3Keys>();  // An instance without a role.
  }
  const HttpResponse answer =
      roles.status() == 200 ? ask_metadata("GET", std::string(kMetadataRoles) + encode_s3_value(role), headers) : roles;
  if (answer.status() != 200) {
    return Status::unavailable("no keys for S3 from the instance's metadata (how, status):", http_end_name(answer.end), answer.status());
  }
  DARKROOM_ASSIGN_OR_RETURN(S3Keys keys, read_issued_keys(answer.body, "Token"));
  return std::optional(std::move(keys));
}

Result<S3Keys> S3KeyIssuers::assume(std::string_view action, const Role& role, std::string body,
                                    const std::optional<S3Keys>& signer) const {
  constexpr std::string_view kWho = "the security token service";
  std::string region = role.region;
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    region = region.empty() ? tools_.places.variable(name) : region;
  }
  if (!region.empty() && !is_aws_region(region)) {
    return issuer_refused(kWho, "the region is none");
  }
  std::string place = tools_.places.variable("AWS_ENDPOINT_URL_STS");
  place = place.empty() ? tools_.places.variable("AWS_ENDPOINT_URL") : place;
  if (place.empty()) {
    place = region.empty() ? "https://sts.amazonaws.com" : fmt::format("https://sts.{}.{}", region, aws_domain_of(region));
  }
  place.resize(place.ends_with('/') ? place.size() - 1 : place.size());
  const size_t host = place.find("://");
  if (!is_one_line(place) || host == std::string::npos || place.find_first_of("/?#@", host + 3) != std::string::npos) {
    return issuer_refused(kWho, "AWS_ENDPOINT_URL_STS is no address of a server");
  }
  HttpRequest request = issuer_request("POST", place + "/", {{"content-type", "application/x-www-form-urlencoded; charset=utf-8"}});
  if (signer) {
    const S3Request meant{.method = "POST",
                          .host = place.substr(host + 3),
                          .path = "/",
                          .query = {},
                          .headers = {{request.headers.front().first, request.headers.front().second}},
                          .payload_hash = sha256_hex(body)};
    const SigningScope scope{.region = region.empty() ? "us-east-1" : region, .service = "sts"};
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<S3Header> signature, sign_request(meant, *signer, scope, tools_.clock.wall()));
    for (const S3Header& header : signature) {
      request.headers.emplace_back(header.name, header.value);
    }
  }
  request.body = {std::as_bytes(std::span(body))};
  DARKROOM_ASSIGN_OR_RETURN(const std::string answer, fetch(kWho, request));
  return read_assumed_keys(answer, action);
}

Result<S3Keys> S3KeyIssuers::ask_web_identity(const Role& role, const std::string& token_file) const {
  const Result<std::string> token = tools_.places.read_file(tools_.places.expand_home(token_file));
  if (!token.is_ok()) {
    return token.status().with_context("reading the web identity's token");
  }
  const std::string body = form_of({{"Action", "AssumeRoleWithWebIdentity"},
                                    {"Version", "2011-06-15"},
                                    {"RoleArn", role.arn},
                                    {"RoleSessionName", role.session.empty() ? "darkroom" : role.session},
                                    {"DurationSeconds", role.seconds},
                                    {"WebIdentityToken", trimmed_end(*token)}});
  return assume("AssumeRoleWithWebIdentity", role, body, std::nullopt);
}

Result<S3Keys> S3KeyIssuers::ask_profile(const std::string& name, const Profiles& before) const {
  DARKROOM_ASSIGN_OR_RETURN(const AwsSharedFiles files, read_aws_shared_files(tools_.places));
  const auto has = [&](const char* setting) { return !files.setting(name, setting).empty(); };
  if (has("role_arn") || has("web_identity_token_file")) {
    return ask_role(files, name, before);
  }
  if (has("sso_session") || has("sso_start_url") || has("sso_account_id")) {
    return ask_sign_on(files, name);
  }
  Result<std::vector<std::string>> command = split_key_command(files.setting(name, "credential_process"));
  if (!command.is_ok()) {
    return command.status().with_context("profile " + name);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string output, tools_.run_process(*command));
  return read_process_keys(output);
}

Result<S3Keys> S3KeyIssuers::ask_role(const AwsSharedFiles& files, const std::string& name, const Profiles& before) const {
  const std::string who = "profile " + name;
  const Role role{.arn = files.setting(name, "role_arn"),
                  .session = files.setting(name, "role_session_name"),
                  .external_id = files.setting(name, "external_id"),
                  .seconds = files.setting(name, "duration_seconds"),
                  .region = files.setting(name, "region")};
  if (role.arn.empty()) {
    return issuer_refused(who, "it has web_identity_token_file and no role_arn");
  }
  if (!files.setting(name, "mfa_serial").empty()) {
    return issuer_refused(who, "its role asks for a code (mfa_serial), which a job cannot give; export keys of the role before");
  }
  if (const std::string file = files.setting(name, "web_identity_token_file"); !file.empty()) {
    return ask_web_identity(role, file);
  }
  DARKROOM_ASSIGN_OR_RETURN(const S3Keys keys, source_keys(files, name, before));
  const std::string body = form_of({{"Action", "AssumeRole"},
                                    {"Version", "2011-06-15"},
                                    {"RoleArn", role.arn},
                                    {"RoleSessionName", role.session.empty() ? "darkroom" : role.session},
                                    {"ExternalId", role.external_id},
                                    {"DurationSeconds", role.seconds}});
  return assume("AssumeRole", role, body, keys);
}

/// The keys that a role is asked for with.
Result<S3Keys> S3KeyIssuers::source_keys(const AwsSharedFiles& files, const std::string& name, const Profiles& before) const {
  const std::string who = "profile " + name;
  const std::string source = files.setting(name, "source_profile");
  const std::string kind = files.setting(name, "credential_source");
  if (source.empty() == kind.empty()) {
    return issuer_refused(who, "a role_arn wants either source_profile or credential_source beside it");
  }
  if (kind == "EcsContainer") {
    return ask_container();
  }
  if (kind == "Ec2InstanceMetadata") {
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<S3Keys> keys, ask_instance());
    return keys ? Result<S3Keys>(*keys)
                : issuer_refused(who, "credential_source is Ec2InstanceMetadata, and this machine has no such role");
  }
  const auto keys_of = [](const S3Keys& keys) { return keys.id.empty() || keys.secret.empty() ? std::nullopt : std::optional(keys); };
  std::optional<S3Keys> keys;
  if (kind == "Environment") {
    keys = keys_of({.id = tools_.places.variable("AWS_ACCESS_KEY_ID"),
                    .secret = tools_.places.variable("AWS_SECRET_ACCESS_KEY"),
                    .token = tools_.places.variable("AWS_SESSION_TOKEN")});
  } else if (!kind.empty()) {
    return issuer_refused(who, "credential_source must be Environment, Ec2InstanceMetadata or EcsContainer");
  } else if (source == name) {  // Its own keys: the end of a chain.
    keys = keys_of({.id = files.setting(name, "aws_access_key_id"),
                    .secret = files.setting(name, "aws_secret_access_key"),
                    .token = files.setting(name, "aws_session_token")});
  } else {
    Profiles chain = before;
    chain.push_back(name);
    if (std::ranges::find(chain, source) != chain.end()) {
      return issuer_refused(who, "source_profile leads in a circle");
    }
    S3Surroundings surroundings{
        tools_.places, [this, chain](S3KeyIssuer issuer, const std::string& profile) { return ask_in_chain(issuer, profile, chain); }};
    DARKROOM_ASSIGN_OR_RETURN(S3Credentials found, find_s3_credentials({.anonymous = false, .profile = source}, surroundings));
    keys = std::move(found.keys);
  }
  return keys ? Result<S3Keys>(*std::move(keys)) : issuer_refused(who, "there are no keys to ask for its role with");
}

Result<S3Keys> S3KeyIssuers::ask_sign_on(const AwsSharedFiles& files, const std::string& name) const {
  const std::string who = fmt::format("single sign-on of profile {}", name);
  const std::string login = fmt::format("run: aws sso login --profile {}", name);
  const std::string session = files.setting(name, "sso_session");
  const std::string place_of_settings = session.empty() ? name : "sso-session " + session;
  const std::string start = files.setting(place_of_settings, "sso_start_url");
  const std::string region = files.setting(place_of_settings, "sso_region");
  const std::string account = files.setting(name, "sso_account_id");
  const std::string role = files.setting(name, "sso_role_name");
  if (start.empty() || !is_aws_region(region) || account.empty() || role.empty()) {
    return issuer_refused(who, "it needs sso_start_url, sso_region, sso_account_id and sso_role_name");
  }
  const std::string& named = session.empty() ? start : session;
  Sha1 hash;
  hash.update(std::as_bytes(std::span(named)));
  const Result<std::string> cached =
      tools_.places.read_file(tools_.places.expand_home(fmt::format("~/.aws/sso/cache/{}.json", hash.finish_hex())));
  if (!cached.is_ok()) {
    return issuer_refused(who, "nobody is signed in; " + login);
  }
  DARKROOM_ASSIGN_OR_RETURN(const SignOnToken token, read_sign_on_token(*cached));
  if (!is_one_line(token.token) || std::chrono::floor<std::chrono::seconds>(tools_.clock.wall()) >= token.expires) {
    return issuer_refused(who, "the sign-on has expired; " + login);
  }
  std::string place = tools_.places.variable("AWS_ENDPOINT_URL_SSO");
  place = place.empty() ? fmt::format("https://portal.sso.{}.{}", region, aws_domain_of(region)) : place;
  place.resize(place.ends_with('/') ? place.size() - 1 : place.size());
  const std::string url = fmt::format("{}/federation/credentials?{}", place, form_of({{"role_name", role}, {"account_id", account}}));
  Result<std::string> answer = fetch(who, issuer_request("GET", url, {{"x-amz-sso_bearer_token", token.token}}));
  if (!answer.is_ok()) {
    return answer.status().code() == StatusCode::kFailedPrecondition
               ? Status::failed_precondition(fmt::format("{}; perhaps the sign-on has ended, then {}", answer.status().message(), login))
               : answer.status();
  }
  return read_sign_on_keys(*answer);
}

}  // namespace darkroom
