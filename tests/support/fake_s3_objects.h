#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/sha256.h"

namespace darkroom {

/// What an S3 server holds of one bucket, and what its operations do to it, one at a time. Each answers with a status and an error's code.
class FakeS3Objects {
 public:
  /// Where If-None-Match: * is kept to; elsewhere it is ignored, as by servers that do not know it.
  enum class Conditions { kEverywhere, kPutOnly, kNone };
  using Time = std::chrono::sys_seconds;

  struct Object {
    std::string bytes;
    std::string writer = {};
    std::string etag = {};
    Time modified = {};
    std::optional<int64_t> told_size = {};      ///< What listings say in place of the size of `bytes`.
    std::optional<std::string> told_time = {};  ///< And of `modified`; "": nothing.
  };
  struct Upload {
    std::string key;
    std::string writer = {};
    Time initiated = {};
    std::map<int, Object> parts = {};
    std::optional<std::string> told_time = {};  ///< What listings say in place of `initiated`; "": nothing.
  };
  struct Outcome {
    int status = 200;
    std::string code = {};  ///< Of the error.
    std::string etag = {};
  };

  Conditions conditions = Conditions::kEverywhere;
  bool refuses_conditions = false;   ///< With 501, where they are not kept to.
  bool completes_twice = false;      ///< The same upload again is the same success, as on Amazon's server; else NoSuchUpload.
  bool is_radosgw = false;           ///< Of an upload that is gone, a completion is InternalError and a list of parts NoSuchKey.
  size_t max_copy_bytes = SIZE_MAX;  ///< Of one copy.
  size_t least_part_bytes = 1;       ///< Of all parts but the last.
  Time now = std::chrono::sys_days(std::chrono::year(2026) / 1 / 1);

  std::map<std::string, Object> objects;
  std::map<std::string, Upload> uploads;                 ///< By id.
  std::map<std::string, std::vector<std::string>> past;  ///< Of each key the bytes that it has held, one after the other.

  Outcome put(const std::string& key, std::string bytes, std::string writer, bool if_absent) {
    if (if_absent && conditions == Conditions::kNone && refuses_conditions) {
      return {501, "NotImplemented"};
    }
    if (if_absent && conditions != Conditions::kNone && objects.contains(key)) {
      return {412, "PreconditionFailed"};
    }
    const std::string etag = etag_of(bytes);
    return store(key, std::move(bytes), std::move(writer), etag);
  }

  std::string create_upload(const std::string& key, std::string writer) {
    std::string id = fmt::format("2~upload/{}", num_uploads_++);  // Ids may hold any character.
    uploads[id] = {.key = key, .writer = std::move(writer), .initiated = now};
    return id;
  }

  Outcome upload_part(const std::string& key, const std::string& id, int number, std::string bytes) {
    const auto upload = uploads.find(id);
    if (upload == uploads.end() || upload->second.key != key) {
      return {404, "NoSuchUpload"};
    }
    const std::string etag = etag_of(bytes);
    upload->second.parts[number] = {.bytes = std::move(bytes), .etag = etag};
    return {.etag = etag};
  }

  Outcome complete(const std::string& key, const std::string& id, const std::vector<std::pair<int, std::string>>& parts, bool if_absent) {
    const auto upload = uploads.find(id);
    if (upload == uploads.end() || upload->second.key != key) {
      const bool is_done = completes_twice && completed_.contains(id) && objects.contains(key) && objects[key].writer == completed_[id];
      const Outcome gone = is_radosgw ? Outcome{500, "InternalError"} : Outcome{404, "NoSuchUpload"};
      return is_done ? Outcome{.etag = objects[key].etag} : gone;
    }
    if (if_absent && conditions != Conditions::kEverywhere && refuses_conditions) {
      return {501, "NotImplemented"};
    }
    if (if_absent && conditions == Conditions::kEverywhere && objects.contains(key)) {
      return {412, "PreconditionFailed"};
    }
    std::string bytes;
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto part = upload->second.parts.find(parts[i].first);
      if (part == upload->second.parts.end() || part->second.etag != parts[i].second) {
        return {400, "InvalidPart"};
      }
      if (i + 1 < parts.size() && part->second.bytes.size() < least_part_bytes) {
        return {400, "EntityTooSmall"};
      }
      bytes += part->second.bytes;
    }
    const std::string writer = upload->second.writer;
    completed_[id] = writer;
    uploads.erase(upload);
    return store(key, bytes, writer, fmt::format("\"{}-{}\"", sha256_hex(bytes).substr(0, 32), parts.size()));
  }

  Outcome list_parts(const std::string& key, const std::string& id) const {
    const auto upload = uploads.find(id);
    const bool is_there = upload != uploads.end() && upload->second.key == key;
    return is_there ? Outcome{} : Outcome{404, is_radosgw ? "NoSuchKey" : "NoSuchUpload"};
  }

  Outcome abort(const std::string& id) { return uploads.erase(id) > 0 ? Outcome{204} : Outcome{404, "NoSuchUpload"}; }

  /// UploadPartCopy of the bytes `first` to `last`.
  Outcome copy_part(const std::string& from, const std::optional<std::string>& if_match, size_t first, size_t last, const std::string& key,
                    const std::string& id, int number) {
    const auto source = objects.find(from);
    if (source == objects.end()) {
      return {404, "NoSuchKey"};
    }
    if (if_match && source->second.etag != *if_match) {
      return {412, "PreconditionFailed"};
    }
    if (first > last || last >= source->second.bytes.size() || last - first + 1 > max_copy_bytes) {
      return {400, "InvalidRequest"};
    }
    return upload_part(key, id, number, source->second.bytes.substr(first, last - first + 1));
  }

  Outcome copy(const std::string& from, const std::optional<std::string>& if_match, const std::string& to) {
    const auto source = objects.find(from);
    if (source == objects.end()) {
      return {404, "NoSuchKey"};
    }
    if (if_match && source->second.etag != *if_match) {
      return {412, "PreconditionFailed"};
    }
    if (source->second.bytes.size() > max_copy_bytes) {
      return {400, "InvalidRequest"};
    }
    const Object object = source->second;
    return store(to, object.bytes, object.writer, etag_of(object.bytes));
  }

 private:
  static std::string etag_of(const std::string& bytes) { return fmt::format("\"{}\"", sha256_hex(bytes).substr(0, 32)); }

  Outcome store(const std::string& key, std::string bytes, std::string writer, const std::string& etag) {
    past[key].push_back(bytes);
    objects[key] = {.bytes = std::move(bytes), .writer = std::move(writer), .etag = etag, .modified = now};
    return {.etag = etag};
  }

  int num_uploads_ = 0;
  std::map<std::string, std::string> completed_;
};

}  // namespace darkroom
