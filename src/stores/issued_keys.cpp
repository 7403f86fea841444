#include "issued_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "darkroom/core/nested_text.h"
#include "s3_documents.h"
#include "xml_text.h"

namespace darkroom {
namespace {

using IssuedJson = nlohmann::json;

Status bad_keys(std::string_view what) { return Status::corrupt_data("an answer with keys for S3 is not understood:", what); }

std::string json_text(const IssuedJson& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Of an ISO 8601 time with "Z" or an offset "+01:00".
Result<std::chrono::sys_seconds> issued_time(std::string text) {
  std::chrono::minutes offset{0};
  const size_t sign = text.size() > 6 ? text.size() - 6 : 0;
  if (sign > 0 && (text[sign] == '+' || text[sign] == '-') && text[sign + 3] == ':') {
    const auto digit = [&](size_t at) { return text[sign + at] >= '0' && text[sign + at] <= '9' ? text[sign + at] - '0' : 0; };
    offset = std::chrono::hours(digit(1) * 10 + digit(2)) + std::chrono::minutes(digit(4) * 10 + digit(5));
    offset = text[sign] == '-' ? -offset : offset;
    text.replace(sign, std::string::npos, "Z");
  }
  const Result<std::chrono::sys_seconds> time = parse_s3_time(text);
  return time.is_ok() ? Result<std::chrono::sys_seconds>(*time - offset) : bad_keys("a time that is none");
}

Result<S3Keys> whole_keys(S3Keys keys, const std::string& expires) {
  if (keys.id.empty() || keys.secret.empty()) {
    return bad_keys(keys.id.empty() ? "the access key's id lacks" : "the secret access key lacks");
  }
  if (!expires.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(keys.expires, issued_time(expires));
  }
  return keys;
}

const XmlElement* xml_child(const XmlElement* parent, std::string_view name) {
  if (parent == nullptr) {
    return nullptr;
  }
  const auto found = std::ranges::find(parent->children, name, &XmlElement::name);
  return found == parent->children.end() ? nullptr : &*found;
}

std::string xml_value(const XmlElement* parent, std::string_view name) {
  const XmlElement* found = xml_child(parent, name);
  return found == nullptr ? std::string() : found->text;
}

}  // namespace

Result<S3Keys> read_issued_keys(std::string_view json, const char* token_name) {
  const IssuedJson document = parse_json(json);
  const std::string code = json_text(document, "Code");
  if (!document.is_object() || (!code.empty() && code != "Success")) {
    return bad_keys(document.is_object() ? "it says that there are none" : "it is no JSON object");
  }
  S3Keys keys{
      .id = json_text(document, "AccessKeyId"), .secret = json_text(document, "SecretAccessKey"), .token = json_text(document, token_name)};
  return whole_keys(std::move(keys), json_text(document, "Expiration"));
}

Result<S3Keys> read_process_keys(std::string_view json) {
  const IssuedJson document = parse_json(json);
  if (!document.is_object() || document.value("Version", IssuedJson()) != 1) {
    return bad_keys("it is no JSON object with \"Version\": 1");
  }
  return read_issued_keys(json, "SessionToken");
}

Result<S3Keys> read_assumed_keys(std::string_view xml, std::string_view action) {
  const Result<XmlElement> root = parse_xml(xml);
  if (!root.is_ok()) {
    return bad_keys("it is no XML");
  }
  const XmlElement* credentials = xml_child(xml_child(&*root, fmt::format("{}Result", action)), "Credentials");
  S3Keys keys{.id = xml_value(credentials, "AccessKeyId"),
              .secret = xml_value(credentials, "SecretAccessKey"),
              .token = xml_value(credentials, "SessionToken")};
  return whole_keys(std::move(keys), xml_value(credentials, "Expiration"));
}

Result<S3Keys> read_sign_on_keys(std::string_view json) {
  const IssuedJson document = parse_json(json);
  const IssuedJson credentials = document.is_object() ? document.value("roleCredentials", IssuedJson()) : IssuedJson();
  S3Keys keys{.id = json_text(credentials, "accessKeyId"),
              .secret = json_text(credentials, "secretAccessKey"),
              .token = json_text(credentials, "sessionToken")};
  DARKROOM_ASSIGN_OR_RETURN(keys, whole_keys(std::move(keys), ""));
  const auto expires = credentials.find("expiration");  // Milliseconds since 1970.
  if (expires != credentials.end() && expires->is_number_integer()) {
    keys.expires = std::chrono::sys_seconds(std::chrono::seconds(expires->get<int64_t>() / 1000));
  }
  return keys;
}

Result<SignOnToken> read_sign_on_token(std::string_view json) {
  const IssuedJson document = parse_json(json);
  SignOnToken token{.token = json_text(document, "accessToken")};
  const std::string expires = json_text(document, "expiresAt");
  if (token.token.empty() || expires.empty()) {
    return bad_keys("it holds no accessToken with expiresAt");
  }
  // Older tools wrote "2026-01-01T00:00:00UTC".
  DARKROOM_ASSIGN_OR_RETURN(token.expires, issued_time(expires.ends_with("UTC") ? expires.substr(0, expires.size() - 3) + "Z" : expires));
  return token;
}

std::string assume_error_code(std::string_view xml) {
  const Result<XmlElement> root = parse_xml(xml);
  const std::string code = root.is_ok() ? xml_value(xml_child(&*root, "Error"), "Code") : std::string();
  const bool is_plain =
      code.size() <= 64 && std::ranges::all_of(code, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.'; });
  return is_plain ? code : std::string();
}

}  // namespace darkroom
