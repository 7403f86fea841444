#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stores/s3_signature.h"
#include "stores/xml_text.h"
#include "support/fake_s3_objects.h"
#include "support/hook.h"
#include "support/http_answers.h"

namespace darkroom {

/// An S3 server on 127.0.0.1 with one bucket, in memory. It checks every signature and the hash of every body, keeps to conditions as its
/// kind of server does, and misbehaves at the calls that a test names: before the work, or after it with the reply lost.
class FakeS3 {
 public:
  using Conditions = FakeS3Objects::Conditions;
  enum class Fault {
    kNone,
    kSlowDown,      ///< 503, nothing done.
    kForbid,        ///< 403, nothing done.
    kInternal,      ///< 500, nothing done.
    kReset,         ///< The connection, nothing done.
    kHang,          ///< No answer, nothing done.
    kErrorIn200,    ///< Nothing done; of complete and copy: an error with status 200.
    kLostReply,     ///< Done, then the connection is reset.
    kInternalDone,  ///< Done, and 500 all the same.
  };
  struct Call {
    std::string operation;  ///< As operation_of (s3_call.h) names them.
    std::string key;
    std::string writer = {};  ///< Of put and create_upload.
    int number = 0;           ///< 0, 1, ... over all calls.
  };

  static constexpr const char* kBucket = "pictures";

  explicit FakeS3(Conditions conditions = Conditions::kEverywhere)
      : server_([this](const ScriptedServer::Request& request) { return answer(request); }) {
    state.conditions = conditions;
  }

  // Called in the threads of the connections, without a lock; they may be replaced at any time.
  Hook<Fault(const Call&)> fault = [](const Call&) { return Fault::kNone; };
  Hook<void(const Call&)> before = [](const Call&) {};  ///< May wait: before the work.
  Hook<void(const Call&)> after = [](const Call&) {};   ///< Between the work and the reply.
  // Set before requests come.
  S3Keys keys{.id = "AKFAKE", .secret = "fake/secret+key", .token = ""};
  bool is_anonymous = false;
  std::string region = "us-east-1";
  bool tells_region = true;
  std::optional<WallTime> clock = std::nullopt;  ///< Requests signed 15 minutes apart from it are refused.
  size_t max_page = 1000;
  bool tells_size_to_head = true;       ///< By Content-Length.
  bool lists_parts = true;              ///< Else a list of parts is a GET.
  bool lists_uploads_of_a_key = false;  ///< A prefix of uploads is a whole key, as of MinIO.

  std::string endpoint() const { return fmt::format("127.0.0.1:{}", server_.port()); }
  uint16_t port() const { return server_.port(); }
  int num_connections() const { return server_.num_connections(); }

  /// Looks at the state, or changes it, between two requests.
  template <typename Function>
  auto with_state(const Function& function) {
    const std::lock_guard hold(mutex_);
    return function(state);
  }
  std::optional<std::string> bytes_of(const std::string& key) {
    return with_state([&](FakeS3Objects& s) {
      const auto found = s.objects.find(key);
      return found == s.objects.end() ? std::nullopt : std::optional(found->second.bytes);
    });
  }
  std::vector<std::string> keys_below(const std::string& prefix = "") {
    return with_state([&](FakeS3Objects& s) {
      std::vector<std::string> found;
      for (const auto& [key, object] : s.objects) {
        if (key.starts_with(prefix)) {
          found.push_back(key);
        }
      }
      return found;
    });
  }
  size_t num_uploads() {
    return with_state([](FakeS3Objects& s) { return s.uploads.size(); });
  }
  /// How often an operation was asked for.
  int num_calls(const std::string& operation) {
    const std::lock_guard hold(mutex_);
    return num_calls_[operation];
  }
  std::vector<ScriptedServer::Request> requests() const { return server_.requests(); }

 private:
  using Answer = ScriptedServer::Answer;
  struct Asked {
    Call call;
    std::string method;
    std::string bucket;
    bool has_own_host = false;  ///< BUCKET.HOST/KEY.
    std::map<std::string, std::string> query;
    std::map<std::string, std::string> headers;  ///< Names in lower case.
    std::string body;
  };

  static std::string decode(std::string_view text) {
    std::string decoded;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '%' && i + 2 < text.size()) {
        decoded += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
        i += 2;
      } else {
        decoded += text[i];
      }
    }
    return decoded;
  }

  static Asked read(const ScriptedServer::Request& request) {
    Asked asked;
    const std::string& head = request.head;
    const std::string target = head.substr(head.find(' ') + 1, head.find(" HTTP/") - head.find(' ') - 1);
    asked.method = head.substr(0, head.find(' '));
    asked.body = request.body;
    const size_t mark = target.find('?');
    const std::string path = decode(target.substr(0, mark));
    asked.bucket = path.substr(1, path.find('/', 1) - 1);
    asked.call.key = path.find('/', 1) == std::string::npos ? "" : path.substr(path.find('/', 1) + 1);
    std::string query = mark == std::string::npos ? "" : target.substr(mark + 1);
    while (!query.empty()) {
      const std::string pair = query.substr(0, query.find('&'));
      query.erase(0, pair.size() + 1);
      const size_t equals = pair.find('=');
      asked.query[decode(pair.substr(0, equals))] = equals == std::string::npos ? "" : decode(pair.substr(equals + 1));
    }
    for (size_t line = head.find("\r\n") + 2; line + 2 < head.size(); line = head.find("\r\n", line) + 2) {
      const size_t colon = head.find(':', line);
      std::string name = head.substr(line, colon - line);
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      const size_t begin = head.find_first_not_of(' ', colon + 1);
      asked.headers[name] = head.substr(begin, head.find("\r\n", colon) - begin);
    }
    if (asked.headers["host"].starts_with(std::string(kBucket) + ".")) {
      asked.has_own_host = true;
      asked.bucket = kBucket;
      asked.call.key = path.substr(1);
    }
    asked.call.operation = operation_of(asked);
    asked.call.writer = asked.headers.contains("x-amz-meta-darkroom-writer") ? asked.headers["x-amz-meta-darkroom-writer"] : "";
    return asked;
  }

  static std::string operation_of(const Asked& asked) {
    const auto has = [&](const char* name) { return asked.query.contains(name); };
    if (asked.method == "HEAD") {
      return "head";
    }
    if (asked.method == "DELETE") {
      return has("uploadId") ? "abort" : "remove";
    }
    if (asked.method == "POST") {
      return has("uploads") ? "create_upload" : "complete";
    }
    if (asked.method == "PUT") {
      if (has("uploadId") && asked.headers.contains("x-amz-copy-source")) {
        return "copy_part";
      }
      return has("uploadId") ? "upload_part" : asked.headers.contains("x-amz-copy-source") ? "copy" : "put";
    }
    return has("uploads") ? "list_uploads" : has("uploadId") ? "list_parts" : has("list-type") ? "list" : "get";
  }

  static std::string reply(int status, const std::string& body, const std::string& headers = "") {
    return http_answer(status, body, headers);
  }
  static std::string error_text(const std::string& code, const std::string& more = "") {
    return fmt::format("<Error><Code>{}</Code><Message>text of the server</Message><RequestId>tx01</RequestId>{}</Error>", code, more);
  }
  static Answer failure(const Asked& asked, int status, const std::string& code, const std::string& headers = "",
                        const std::string& more = "") {
    if (asked.method == "HEAD") {
      return {fmt::format("HTTP/1.1 {} X\r\n{}Content-Length: 243\r\n\r\n", status, headers)};
    }
    return {reply(status, error_text(code, more), headers)};
  }

  Answer answer(const ScriptedServer::Request& request) {
    Asked asked = read(request);
    {
      const std::lock_guard hold(mutex_);
      asked.call.number = num_all_calls_++;
      ++num_calls_[asked.call.operation];
    }
    before(asked.call);
    const Fault fails = fault(asked.call);
    if (fails == Fault::kSlowDown || fails == Fault::kInternal) {
      return failure(asked, fails == Fault::kSlowDown ? 503 : 500, fails == Fault::kSlowDown ? "SlowDown" : "InternalError");
    }
    if (fails == Fault::kForbid) {
      return failure(asked, 403, "AccessDenied");
    }
    if (fails == Fault::kReset || fails == Fault::kHang) {
      return {"", fails == Fault::kReset ? Answer::Then::kReset : Answer::Then::kHang};
    }
    if (fails == Fault::kErrorIn200) {
      return {reply(200, "<?xml version=\"1.0\"?>" + error_text("InternalError"))};
    }
    Answer done = refuse(asked);
    if (done.bytes.empty()) {
      const std::lock_guard hold(mutex_);
      done = work(asked);
    }
    after(asked.call);
    if (fails == Fault::kLostReply) {
      return {"", Answer::Then::kReset};
    }
    return fails == Fault::kInternalDone ? failure(asked, 500, "InternalError") : done;
  }

  static WallTime time_of(const std::string& date) {  // 20130524T000000Z
    const auto field = [&](size_t at, size_t size) { return std::stoi(date.substr(at, size)); };
    return std::chrono::sys_days(std::chrono::year(field(0, 4)) / field(4, 2) / field(6, 2)) + std::chrono::hours(field(9, 2)) +
           std::chrono::minutes(field(11, 2)) + std::chrono::seconds(field(13, 2));
  }

  /// An empty answer: the request may be carried out.
  Answer refuse(const Asked& asked) const {
    if (asked.bucket != kBucket) {
      return failure(asked, 404, "NoSuchBucket");
    }
    const auto header = [&](const std::string& name) {
      const auto found = asked.headers.find(name);
      return found == asked.headers.end() ? std::string() : found->second;
    };
    const std::string authorization = header("authorization");
    if (authorization.empty()) {
      return is_anonymous ? Answer{} : failure(asked, 403, "AccessDenied");
    }
    const auto part = [&](const std::string& name) {
      const size_t begin = authorization.find(name) + name.size();
      return authorization.substr(begin, authorization.find(',', begin) - begin);
    };
    std::vector<std::string> scope;  // ID/DATE/REGION/SERVICE/aws4_request
    for (std::string rest = part("Credential="); !rest.empty();) {
      scope.push_back(rest.substr(0, rest.find('/')));
      rest.erase(0, scope.back().size() + 1);
    }
    if (scope.at(0) != keys.id) {
      return failure(asked, 403, "InvalidAccessKeyId");
    }
    if (scope.at(2) != region) {
      const std::string told = tells_region ? "x-amz-bucket-region: " + region + "\r\n" : "";
      return failure(asked, 400, "AuthorizationHeaderMalformed", told, tells_region ? "<Region>" + region + "</Region>" : "");
    }
    if (header("x-amz-security-token") != keys.token) {
      return failure(asked, 400, "ExpiredToken");
    }
    const WallTime signed_at = time_of(header("x-amz-date"));
    if (clock && std::chrono::abs(signed_at - *clock) > std::chrono::minutes(15)) {
      return failure(asked, 403, "RequestTimeTooSkewed", "Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
    }
    S3Request request;
    request.method = asked.method;
    request.host = header("host");
    request.payload_hash = header("x-amz-content-sha256");
    request.path = asked.has_own_host       ? "/" + asked.call.key
                   : asked.call.key.empty() ? "/" + asked.bucket
                                            : "/" + asked.bucket + "/" + asked.call.key;
    for (const auto& [name, value] : asked.query) {
      request.query.push_back({name, value});
    }
    for (std::string rest = part("SignedHeaders="); !rest.empty();) {
      const std::string name = rest.substr(0, rest.find(';'));
      rest.erase(0, name.size() + 1);
      if (name != "host") {
        request.headers.push_back({name, header(name)});
      }
    }
    for (const auto& [name, value] : asked.headers) {
      const bool is_signed = std::ranges::any_of(request.headers, [&name = name](const S3Header& h) { return h.name == name; });
      if (name.starts_with("x-amz-") && !is_signed) {
        return failure(asked, 403, "AccessDenied");
      }
    }
    if (authorization_value(request, keys, {.region = scope.at(2)}, signed_at) != authorization) {
      return failure(asked, 403, "SignatureDoesNotMatch");
    }
    return request.payload_hash == sha256_hex(asked.body) ? Answer{} : failure(asked, 400, "XAmzContentSHA256Mismatch");
  }

  Answer work(const Asked& asked) {
    const std::string& key = asked.call.key;
    const auto query = [&](const char* name) { return asked.query.contains(name) ? asked.query.at(name) : std::string(); };
    const bool if_absent = asked.headers.contains("if-none-match");
    if (asked.call.operation == "head" || asked.call.operation == "get") {
      return read_object(asked);
    }
    if (asked.call.operation == "list") {
      return list(asked);
    }
    if (asked.call.operation == "list_uploads") {
      return list_uploads(asked);
    }
    if (asked.call.operation == "list_parts" && !lists_parts) {
      return read_object(asked);
    }
    if (asked.call.operation == "list_parts") {
      return end(asked, state.list_parts(key, query("uploadId")), "<ListPartsResult></ListPartsResult>");
    }
    if (asked.call.operation == "put") {
      return end(asked, state.put(key, asked.body, asked.call.writer, if_absent), "");
    }
    if (asked.call.operation == "create_upload") {
      const std::string id = escape_xml(state.create_upload(key, asked.call.writer));
      return {reply(200, "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>")};
    }
    if (asked.call.operation == "upload_part") {
      return end(asked, state.upload_part(key, query("uploadId"), std::stoi(query("partNumber")), asked.body), "");
    }
    if (asked.call.operation == "complete") {
      std::vector<std::pair<int, std::string>> parts;
      const XmlElement told = parse_xml(asked.body).value();
      for (const XmlElement& part : told.children) {
        parts.emplace_back(std::stoi(part.children.at(0).text), part.children.at(1).text);
      }
      return end(asked, state.complete(key, query("uploadId"), parts, if_absent),
                 "<CompleteMultipartUploadResult><Key>x</Key></CompleteMultipartUploadResult>");
    }
    if (asked.call.operation == "copy" || asked.call.operation == "copy_part") {
      const std::string source = decode(asked.headers.at("x-amz-copy-source")).substr(std::string_view(kBucket).size() + 2);
      const auto condition = asked.headers.find("x-amz-copy-source-if-match");
      const auto if_match = condition == asked.headers.end() ? std::nullopt : std::optional(condition->second);
      if (asked.call.operation == "copy_part") {
        const std::string range = asked.headers.at("x-amz-copy-source-range").substr(std::string_view("bytes=").size());
        const auto done = state.copy_part(source, if_match, std::stoull(range), std::stoull(range.substr(range.find('-') + 1)), key,
                                          query("uploadId"), std::stoi(query("partNumber")));
        return end(asked, done, "<CopyPartResult><ETag>" + escape_xml(done.etag) + "</ETag></CopyPartResult>");
      }
      return end(asked, state.copy(source, if_match, key), "<CopyObjectResult><ETag>x</ETag></CopyObjectResult>");
    }
    if (asked.call.operation == "abort") {
      return end(asked, state.abort(query("uploadId")), "");
    }
    state.objects.erase(key);
    return {reply(204, "")};
  }

  static Answer end(const Asked& asked, const FakeS3Objects::Outcome& outcome, const std::string& body) {
    return outcome.code.empty() ? Answer{reply(outcome.status, body, outcome.etag.empty() ? "" : "ETag: " + outcome.etag + "\r\n")}
                                : failure(asked, outcome.status, outcome.code);
  }

  Answer read_object(const Asked& asked) const {
    const auto found = state.objects.find(asked.call.key);
    if (found == state.objects.end()) {
      return failure(asked, 404, "NoSuchKey");
    }
    const FakeS3Objects::Object& object = found->second;
    std::string headers = "ETag: " + object.etag + "\r\n";
    headers += object.writer.empty() ? "" : "x-amz-meta-darkroom-writer: " + object.writer + "\r\n";
    if (asked.headers.contains("if-match") && asked.headers.at("if-match") != object.etag) {
      return failure(asked, 412, "PreconditionFailed");
    }
    const size_t size = object.bytes.size();
    if (asked.method == "HEAD") {
      return {fmt::format("HTTP/1.1 200 OK\r\n{}{}\r\n", headers, tells_size_to_head ? fmt::format("Content-Length: {}\r\n", size) : "")};
    }
    if (!asked.headers.contains("range")) {
      return {reply(200, object.bytes, headers)};
    }
    const std::string range = asked.headers.at("range").substr(std::string_view("bytes=").size());
    const size_t dash = range.find('-');
    const size_t first = dash == 0 ? size - std::min<size_t>(size, std::stoull(range.substr(1))) : std::stoull(range.substr(0, dash));
    const size_t last = dash == 0 ? size - 1 : std::min<size_t>(std::stoull(range.substr(dash + 1)), size - 1);
    if (first >= size) {
      return failure(asked, 416, "InvalidRange");
    }
    headers += fmt::format("Content-Range: bytes {}-{}/{}\r\n", first, last, size);
    return {reply(206, object.bytes.substr(first, last - first + 1), headers)};
  }

  static std::string time_text(FakeS3Objects::Time time) {
    const std::string text = amz_date(time);  // 20130524T000000Z
    return fmt::format("{}-{}-{}T{}:{}:{}.000Z", text.substr(0, 4), text.substr(4, 2), text.substr(6, 2), text.substr(9, 2),
                       text.substr(11, 2), text.substr(13, 2));
  }

  static std::string time_element(const std::string& name, FakeS3Objects::Time time, const std::optional<std::string>& told) {
    return told == "" ? "" : fmt::format("<{0}>{1}</{0}>", name, told.value_or(time_text(time)));
  }

  Answer list(const Asked& asked) const {
    const auto query = [&](const char* name) { return asked.query.contains(name) ? asked.query.at(name) : std::string(); };
    const std::string prefix = query("prefix");
    const std::string delimiter = query("delimiter");
    const size_t max_keys = std::min(max_page, static_cast<size_t>(std::stoull(query("max-keys"))));
    std::string entries;
    std::string last;
    bool is_cut = false;
    size_t num_entries = 0;
    for (const auto& [key, object] : state.objects) {
      const size_t rolled = key.starts_with(prefix) && !delimiter.empty() ? key.find(delimiter, prefix.size()) : std::string::npos;
      const std::string entry = rolled == std::string::npos ? key : key.substr(0, rolled + delimiter.size());
      if (!key.starts_with(prefix) || entry <= query("continuation-token") || entry == last) {
        continue;
      }
      if (num_entries++ == max_keys) {
        is_cut = true;
        break;
      }
      last = entry;
      entries += rolled != std::string::npos
                     ? fmt::format("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", encode_s3_path(entry))
                     : fmt::format("<Contents><Key>{}</Key>{}<ETag>{}</ETag><Size>{}</Size></Contents>", encode_s3_path(key),
                                   time_element("LastModified", object.modified, object.told_time), escape_xml(object.etag),
                                   object.told_size.value_or(static_cast<int64_t>(object.bytes.size())));
    }
    const std::string next = is_cut ? "<NextContinuationToken>" + escape_xml(last) + "</NextContinuationToken>" : "";
    return {reply(200, fmt::format("<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{}</IsTruncated>{}{}</ListBucketResult>",
                                   is_cut, next, entries))};
  }

  Answer list_uploads(const Asked& asked) const {
    const std::string prefix = asked.query.contains("prefix") ? asked.query.at("prefix") : "";
    std::string entries;
    for (const auto& [id, upload] : state.uploads) {
      if (lists_uploads_of_a_key && !prefix.empty() ? upload.key == prefix : upload.key.starts_with(prefix)) {
        entries += fmt::format("<Upload><Key>{}</Key><UploadId>{}</UploadId>{}</Upload>", encode_s3_path(upload.key), escape_xml(id),
                               time_element("Initiated", upload.initiated, upload.told_time));
      }
    }
    return {reply(200, fmt::format("<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{}"
                                   "</ListMultipartUploadsResult>",
                                   entries))};
  }

 public:
  FakeS3Objects state;  ///< Through with_state() while requests may come.

 private:
  std::mutex mutex_;  // Of state and the counts.
  int num_all_calls_ = 0;
  std::map<std::string, int> num_calls_;
  ScriptedServer server_;  // Last: its threads use the rest.
};

}  // namespace darkroom
