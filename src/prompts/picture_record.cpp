#include "darkroom/prompts/picture_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "short_name.h"

namespace darkroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kFormatVersion = 1;

// The texts of an origin by their keys in JSON. `Origin` is const where it is only read.
template <typename Origin, typename Text>
std::vector<std::pair<const char*, Text*>> texts_of(Origin& origin) {
  return {{"darkroom", &origin.version},
          {"model", &origin.model},
          {"weights", &origin.weights},
          {"frozen", &origin.frozen},
          {"tokenizer_dialect", &origin.tokenizer_dialect},
          {"prediction_type", &origin.prediction_type},
          {"device", &origin.device},
          {"precision", &origin.precision}};
}

Json origin_to_json(const PictureOrigin& origin) {
  Json object = {{"format_version", kFormatVersion}};
  for (const auto& [key, text] : texts_of<const PictureOrigin, const std::string>(origin)) {
    object[key] = *text;
  }
  object["threads"] = origin.threads;
  object["fingerprints"] = origin.fingerprints;
  return object;
}

// Everything but its file and that file's digest.
Json settings_to_json(const RecordedPicture& picture) {
  Json object = picture_fields_to_json(picture.picture.fields);
  object["init_image_sha256"] = picture.init_image_sha256;
  return object;
}

std::string shown_json(const Json& value) {
  constexpr size_t kMostBytes = 100;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > kMostBytes ? text.substr(0, kMostBytes) + "..." : text;
}

Result<std::string> text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return Status::invalid_argument(fmt::format("{} must be a text, got:", key), found == object.end() ? "nothing" : shown_json(*found));
  }
  return found->get<std::string>();
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// A record may come from somebody else: its names must not lead out of the folder.
bool is_picture_file(std::string_view file) {
  const size_t slash = file.find('/');
  if (slash == std::string_view::npos || !file.ends_with(".png")) {
    return false;
  }
  const std::string_view job = file.substr(0, slash);
  const std::string_view number = file.substr(slash + 1, file.size() - slash - 5);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return is_job_name(job) && number.size() >= 5 && number.size() <= 20 && std::ranges::all_of(number, is_digit);
}

Result<PictureOrigin> origin_of(const Json& object) {
  PictureOrigin origin;
  for (const auto& [key, text] : texts_of<PictureOrigin, std::string>(origin)) {
    DARKROOM_ASSIGN_OR_RETURN(*text, text_at(object, key));
  }
  const auto threads = object.find("threads");
  if (threads == object.end() || !threads->is_number_unsigned()) {
    return Status::invalid_argument("threads must be a whole number, got:", threads == object.end() ? "nothing" : shown_json(*threads));
  }
  origin.threads = threads->get<uint64_t>();
  const auto fingerprints = object.find("fingerprints");
  if (fingerprints == object.end() || !fingerprints->is_object()) {
    return Status::invalid_argument("fingerprints must be an object, got:",
                                    fingerprints == object.end() ? "nothing" : shown_json(*fingerprints));
  }
  for (const auto& [part, digest] : fingerprints->items()) {
    DARKROOM_ASSIGN_OR_RETURN(origin.fingerprints[part], text_at(*fingerprints, part.c_str()));
  }
  return origin;
}

Result<RecordedPicture> picture_of(const Json& object) {
  if (!object.is_object()) {
    return Status::invalid_argument("must be an object, got:", shown_json(object));
  }
  RecordedPicture picture;
  DARKROOM_ASSIGN_OR_RETURN(picture.file, text_at(object, "file"));
  if (!is_picture_file(picture.file)) {
    return Status::invalid_argument("file must be JOB/NUMBER.png, got:", shown_json(picture.file));
  }
  DARKROOM_ASSIGN_OR_RETURN(picture.sha256, text_at(object, "sha256"));
  DARKROOM_ASSIGN_OR_RETURN(picture.init_image_sha256, text_at(object, "init_image_sha256"));
  DARKROOM_ASSIGN_OR_RETURN(picture.picture.style, text_at(object, "style"));
  for (const auto& [key, digest] : {std::pair("sha256", picture.sha256), std::pair("init_image_sha256", picture.init_image_sha256)}) {
    if (!is_digest(digest) && !(digest.empty() && key == std::string_view("init_image_sha256"))) {
      return Status::invalid_argument(fmt::format("{} must be 64 hex digits, got:", key), shown_json(digest));
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(picture.picture.fields, picture_fields_from_json(object));
  return picture;
}

}  // namespace

std::string picture_record_to_json(const PictureRecord& record) {
  Json object = origin_to_json(record.origin);
  Json pictures = Json::array();
  for (const RecordedPicture& picture : record.pictures) {
    Json entry = {{"file", picture.file}, {"sha256", picture.sha256}, {"style", picture.picture.style}};
    entry.update(settings_to_json(picture));
    pictures.push_back(std::move(entry));
  }
  // One line a picture, for people and for diff.
  std::string text = object.dump(1, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n \"pictures\": [";
  for (size_t i = 0; i < pictures.size(); ++i) {
    text += fmt::format("{}\n  {}", i == 0 ? "" : ",", pictures[i].dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return text + "\n ]\n}\n";
}

Result<PictureRecord> read_picture_record(std::string_view text, std::string_view name) {
  const auto object = parse_json<Json>(text);
  if (!object.is_object()) {
    return Status::invalid_argument("this is no record of pictures (pictures.json):", name);
  }
  const auto version = object.find("format_version");
  if (version == object.end() || *version != kFormatVersion) {
    return Status::invalid_argument(fmt::format("{}: format_version must be {}, got:", name, kFormatVersion),
                                    version == object.end() ? "nothing" : shown_json(*version));
  }
  PictureRecord record;
  Result<PictureOrigin> origin = origin_of(object);
  if (!origin.is_ok()) {
    return origin.status().with_context(name);
  }
  record.origin = *std::move(origin);
  const auto pictures = object.find("pictures");
  if (pictures == object.end() || !pictures->is_array()) {
    return Status::invalid_argument(fmt::format("{}: pictures must be a list, got:", name),
                                    pictures == object.end() ? "nothing" : shown_json(*pictures));
  }
  std::set<std::string> files;
  for (const Json& entry : *pictures) {
    Result<RecordedPicture> picture = picture_of(entry);
    if (!picture.is_ok()) {
      return picture.status().with_context(fmt::format("{}: picture {}", name, record.pictures.size() + 1));
    }
    if (!files.insert(picture->file).second) {
      return Status::invalid_argument(fmt::format("{}: two pictures have the file:", name), picture->file);
    }
    record.pictures.push_back(*std::move(picture));
  }
  return record;
}

std::string picture_identity(const PictureOrigin& origin, const RecordedPicture& picture) {
  Json object = origin_to_json(origin);
  object["picture"] = settings_to_json(picture);
  return sha256_hex(object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Status check_same_model(const std::map<std::string, std::string>& recorded, const std::map<std::string, std::string>& opened) {
  for (const auto& [part, digest] : recorded) {
    const auto found = opened.find(part);
    const std::string got = found == opened.end() ? "nothing" : found->second;
    if (got != digest) {
      return Status::failed_precondition("the pictures were painted with another model (part, recorded, this one):", part, digest, got);
    }
  }
  return Status::ok();
}

}  // namespace darkroom
