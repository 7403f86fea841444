#include "comparison_record.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/core/utf8.h"
#include "darkroom/files/paths.h"
#include "page_text.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr const char* kRecordFile = "comparison.json";
constexpr const char* kRecordFormat = "darkroom comparison";
constexpr int kRecordVersion = 2;

Json side_settings(const CompareSide& side) { return {{"model", side.model}, {"weights", side.weights}, {"identity", side.identity}}; }

// Whether `value` holds what the members of CompareRecord will ask for.
bool is_record(const Json& value) {
  const auto is_side = [&](const char* name) {
    const Json& settings = value["settings"];
    return settings.contains(name) && settings[name].is_object() && settings[name].value("model", Json()).is_string();
  };
  if (!value.contains("settings") || !value["settings"].is_object() || !value.contains("shared") || !value["shared"].is_object()) {
    return false;
  }
  const Json& settings = value["settings"];
  const Json prompts = settings.value("prompts", Json());
  bool are_texts = prompts.is_array() && !prompts.empty();
  for (const Json& prompt : prompts) {
    are_texts &= prompt.is_string();
  }
  const Json& shared = value["shared"];
  return are_texts && settings.value("seed", Json()).is_number_unsigned() && settings.value("seeds", Json()).is_number_unsigned() &&
         is_side("a") && is_side("b") && shared.value("sampler", Json()).is_string() &&
         shared.value("width", Json()).is_number_unsigned() && shared.value("height", Json()).is_number_unsigned();
}

Result<CompareRecord> parse_record(const std::string& text, const std::string& path) {
  const Json value = parse_json<Json>(text);
  if (value.is_object() && value.value("format", Json()) == kRecordFormat && value.value("version", Json()) != kRecordVersion) {
    return Status::failed_precondition("the comparison was written by another version of the program (path, want, got):", path,
                                       kRecordVersion, value.value("version", Json()).dump());
  }
  if (!value.is_object() || value.value("format", Json()) != kRecordFormat || !is_record(value)) {
    return Status::corrupt_data("this is no record of a comparison; if the folder is one, take a new one:", path);
  }
  const Json& shared = value["shared"];
  return CompareRecord{.settings = value["settings"],
                       .shared = {.sampler = shared["sampler"], .width = shared["width"], .height = shared["height"]}};
}

// The settings that must be the same: all but what the models are called.
Json without_names(Json settings) {
  settings["a"].erase("model");
  settings["b"].erase("model");
  return settings;
}

}  // namespace

std::string CompareRecord::id() const { return sha256_hex(without_names(settings).dump()).substr(0, 16); }

std::string picture_path(const std::string& output, Side side, size_t prompt, size_t seed) {
  return fmt::format("{}/pictures/{}/{:05}-{:02}.png", without_trailing_slashes(output), side_folder(side), prompt, seed);
}

std::string reference_path(const std::string& output, size_t prompt) {
  return fmt::format("{}/pictures/reference/{:05}.png", without_trailing_slashes(output), prompt);
}

Result<std::vector<std::string>> read_compared_prompts(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<std::string> prompts, read_prompts(files, path));
  if (prompts.empty()) {
    return Status::invalid_argument("--prompts-file holds no prompt, one a line:", path);
  }
  std::map<std::string, size_t> lines;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (replace_invalid_utf8(prompts[i]).second) {
      return Status::invalid_argument("--prompts-file: a line is no UTF-8 (path, line):", path, i + 1);
    }
    const auto [place, is_new] = lines.try_emplace(prompts[i], i + 1);
    if (!is_new) {
      return Status::invalid_argument(
          "--prompts-file: a prompt comes twice and would count twice; --seeds asks for several pictures of each (path, lines, prompt):",
          path, fmt::format("{} and {}", place->second, i + 1), one_line(prompts[i], 60));
    }
  }
  return prompts;
}

Json compared_settings(const CompareJob& job, const std::vector<std::string>& prompts) {
  const PaintRequest& request = job.request;
  return {{"a", side_settings(job.a)},
          {"b", side_settings(job.b)},
          {"prompts", prompts},
          {"seed", job.seed},
          {"seeds", job.num_seeds},
          {"negative", replace_invalid_utf8(request.negative).first},
          {"sampler", request.sampler.name},
          {"steps", request.sampler.num_steps},
          {"eta", request.sampler.eta},
          {"guidance", request.guidance},
          {"guidance_rescale", request.guidance_rescale},
          {"width", request.width},
          {"height", request.height},
          {"prompt_syntax", prompt_syntax_name(request.reading.syntax)},
          {"long_prompts", long_prompts_name(request.reading.long_prompts)},
          {"threads", job.threads},
          {"device", job.place.device_class()},
          {"precision", float_type_name(job.place.type)}};
}

Result<std::optional<CompareRecord>> find_compare_record(FileSystem& files, const std::string& output) {
  const std::string path = join_path(output, kRecordFile);
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(path));
  if (is_there) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
    DARKROOM_ASSIGN_OR_RETURN(CompareRecord record, parse_record(text, path));
    return std::optional(std::move(record));
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool has_folder, files.exists(output));
  if (has_folder) {
    DARKROOM_ASSIGN_OR_RETURN(const auto found, files.list(output));
    if (!found.empty()) {
      return Status::failed_precondition("--output must be a new folder, an empty one or that of the same comparison; found in it:",
                                         found.front().path);
    }
  }
  return std::optional<CompareRecord>();
}

Status check_same_settings(const CompareRecord& record, const Json& asked, const std::string& output) {
  const Json there = without_names(record.settings), wanted = without_names(asked);
  for (const auto& [name, value] : wanted.items()) {
    const Json found = there.value(name, Json());
    if (found == value) {
      continue;
    }
    if (name == "a" || name == "b") {
      return Status::failed_precondition(
          "--output holds pictures of other weights; take another folder (folder, model there, model asked):", output,
          record.settings[name].value("model", ""), asked[name].value("model", ""));
    }
    const bool is_long = name == "prompts";
    return Status::failed_precondition(
        "--output holds a comparison with another setting; take another folder (folder, setting, there, asked):", output, name,
        is_long ? fmt::format("{} prompts", found.size()) : found.dump(), is_long ? fmt::format("{} prompts", value.size()) : value.dump());
  }
  return Status::ok();
}

Status write_compare_record(FileSystem& files, const std::string& output, const CompareRecord& record) {
  const Json value = {{"format", kRecordFormat},
                      {"version", kRecordVersion},
                      {"id", record.id()},
                      {"settings", record.settings},
                      {"shared", {{"sampler", record.shared.sampler}, {"width", record.shared.width}, {"height", record.shared.height}}}};
  return write_file_atomic(files, join_path(output, kRecordFile), value.dump(1) + "\n");
}

}  // namespace darkroom
