#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comparison_record.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/image.h"
#include "darkroom/measure/ballot.h"

namespace darkroom {

/// Prompts whose pictures the sheet and the report show.
inline constexpr size_t kShownPrompts = 24;

/// The pictures of a prompt.
struct ShownPrompt {
  std::string prompt = {};
  Image reference = {};              ///< Empty: none.
  std::vector<Image> pictures = {};  ///< A's and B's of the first seed, of the second, ...
};

/// Reads the first prompts' pictures, references from the comparison's own folder. Errors: those of the pictures.
Result<std::vector<ShownPrompt>> read_shown_prompts(FileSystem& files, const std::string& output, const CompareRecord& record);

/// A row a prompt: the reference where some prompt has one, then A and B of up to four seeds.
Image draw_compare_sheet(const std::vector<ShownPrompt>& prompts, const CompareRecord& record);

/// The page of report.json: no network, no script. REQUIRES: a report of this program.
std::string render_compare_page(const nlohmann::json& report, const std::vector<ShownPrompt>& prompts);

/// The page of the blind vote, which holds its pictures and says nowhere which is whose. Errors: those of the pictures.
Result<std::string> render_vote_page(FileSystem& files, const std::string& output, const CompareRecord& record,
                                     const std::vector<Ballot>& ballots);

}  // namespace darkroom
