#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/compare/compare.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// What both models have in common, once they were opened.
struct SharedSettings {
  std::string sampler = {};
  int width = 0;
  int height = 0;

  bool operator==(const SharedSettings&) const = default;
};

/// comparison.json: what its folder compares (docs/formats/comparison.md).
struct CompareRecord {
  nlohmann::json settings = {};  ///< As asked for, `prompts`, `seed`, `seeds`, `a` and `b` among them.
  SharedSettings shared = {};

  std::vector<std::string> prompts() const { return settings.at("prompts").get<std::vector<std::string>>(); }
  size_t num_prompts() const { return settings.at("prompts").size(); }
  uint64_t seed() const { return settings.at("seed").get<uint64_t>(); }
  size_t num_seeds() const { return settings.at("seeds").get<size_t>(); }
  /// Of a prompt's picture. No two prompts share noise: what one noise does to all pictures would be taken for what the models do.
  uint64_t seed_of(size_t prompt, size_t picture) const { return seed() + prompt * num_seeds() + picture; }
  /// Names the comparison: 16 hex digits of the settings' digest.
  std::string id() const;
};

/// The two sides, by the names of their folders.
enum class Side : uint8_t { kA, kB };
inline constexpr Side kSides[] = {Side::kA, Side::kB};
constexpr const char* side_folder(Side side) { return side == Side::kA ? "a" : "b"; }
constexpr const char* side_name(Side side) { return side == Side::kA ? "A" : "B"; }

/// pictures/a/00012-03.png: of prompt 12 from its fourth seed. Of a reference: pictures/reference/00012.png.
std::string picture_path(const std::string& output, Side side, size_t prompt, size_t seed);
std::string reference_path(const std::string& output, size_t prompt);

/// The prompts of a file. Errors: kInvalidArgument naming file and line (none, one twice, bytes that are no UTF-8), those of the file.
Result<std::vector<std::string>> read_compared_prompts(FileSystem& files, const std::string& path);

/// What a job asks for, as the record keeps it.
nlohmann::json compared_settings(const CompareJob& job, const std::vector<std::string>& prompts);

/// The record in a folder; nothing where the folder is new or empty. Errors: kFailedPrecondition (a folder of something else, a later
/// version), kCorruptData, those of the files.
Result<std::optional<CompareRecord>> find_compare_record(FileSystem& files, const std::string& output);
/// Errors: kFailedPrecondition naming the first setting that differs; the models' names may.
Status check_same_settings(const CompareRecord& record, const nlohmann::json& asked, const std::string& output);

Status write_compare_record(FileSystem& files, const std::string& output, const CompareRecord& record);

}  // namespace darkroom
