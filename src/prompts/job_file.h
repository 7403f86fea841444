#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/prompts/picture_jobs.h"
#include "darkroom/prompts/prompt_template.h"

namespace darkroom {

/// [styles.NAME]: what stands around a prompt, and what its negative text gets.
struct PromptStyle {
  std::string name = {};
  std::string before = {};
  std::string after = {};
  std::string negative = {};
};

using WordList = std::vector<std::string>;

/// Columns or rows of a grid: what differs from one to the next.
struct GridAxis {
  enum class Kind {
    kField,   ///< A field takes each of the values.
    kStyle,   ///< The prompt has each of the styles.
    kSearch,  ///< The first value, searched in prompt and negative text, is replaced by each.
  };
  Kind kind = Kind::kField;
  std::string field = {};
  std::vector<FieldValue> values = {};          ///< kField: one a column; kSearch: texts.
  std::vector<const PromptStyle*> styles = {};  ///< kStyle: one a column; null: none.
  std::vector<std::string> titles = {};         ///< One a column.
};

/// A prompt and the list of words for each of its places.
struct FilledTemplate {
  PromptTemplate text;
  std::vector<const WordList*> lists = {};
};

/// What the top of a file and each job may say.
struct JobSettings {
  PictureFields base = {};
  uint64_t images = 1;
  bool zips = false;  ///< Word i of every list together, instead of every combination.
  // Shared by the top of the file and the jobs that take over what it says, which never changes again.
  std::shared_ptr<const std::vector<uint64_t>> seeds = {};  ///< Null: `images` seeds from base.seed on.
  std::shared_ptr<const std::vector<FilledTemplate>> prompts = {};
  std::shared_ptr<const std::vector<const PromptStyle*>> styles = {};  ///< Null: none; a null entry: the prompt as it is.
};

struct JobEntry {
  std::string name = {};
  std::string where = {};  ///< "prompts.toml, line 12: [[job]] 2 (animals)"
  JobSettings settings = {};
  std::optional<GridAxis> x = {};
  std::optional<GridAxis> y = {};
};

/// A job file as it is written, checked, and nothing multiplied out. Moves, but does not copy: jobs point to styles and lists.
struct JobFile {
  JobFile() = default;
  JobFile(JobFile&&) = default;
  JobFile& operator=(JobFile&&) = default;

  std::map<std::string, PromptStyle, std::less<>> styles = {};
  std::map<std::string, WordList, std::less<>> lists = {};
  std::map<std::string, std::string, std::less<>> negatives = {};
  std::vector<JobEntry> jobs = {};
  std::set<std::string> fields_set = {};
};

/// Errors: those of expand_picture_jobs but for the number of pictures.
Result<JobFile> read_job_file(std::string_view text, std::string_view name, const JobFileOptions& options);

}  // namespace darkroom
