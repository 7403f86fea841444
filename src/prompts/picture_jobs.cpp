#include "darkroom/prompts/picture_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "darkroom/text/prompt.h"
#include "job_file.h"

namespace darkroom {
namespace {

constexpr uint64_t kUncountable = std::numeric_limits<uint64_t>::max();

uint64_t times(uint64_t a, uint64_t b) { return a != 0 && b > kUncountable / a ? kUncountable : a * b; }
uint64_t plus(uint64_t a, uint64_t b) { return a > kUncountable - b ? kUncountable : a + b; }

size_t length_of(const std::optional<GridAxis>& axis) { return axis ? axis->titles.size() : 1; }
size_t num_styles(const JobSettings& settings) { return settings.styles ? settings.styles->size() : 1; }
uint64_t num_seeds(const JobSettings& settings) { return settings.seeds ? settings.seeds->size() : settings.images; }

uint64_t num_fillings(const FilledTemplate& prompt, bool zips) {
  if (prompt.lists.empty()) {
    return 1;
  }
  uint64_t count = zips ? prompt.lists.front()->size() : 1;
  for (const WordList* list : prompt.lists) {
    count = zips ? count : times(count, list->size());
  }
  return count;
}

// Expands one job. A job lives in one file, so that its prompts, styles and lists do.
class JobExpander {
 public:
  JobExpander(const JobEntry& entry, std::vector<PlannedPicture>& pictures)
      : entry_(entry), settings_(entry.settings), pictures_(pictures) {}

  static Result<uint64_t> count(const JobEntry& entry);
  Result<PictureJob> expand();

 private:
  Status add_prompt(const std::string& prompt);
  Status add_grid(const std::string& prompt, const PromptStyle* style, uint64_t seed);
  Result<PlannedPicture> resolve(const std::string& prompt, const PromptStyle* style, uint64_t seed, size_t row, size_t column) const;
  Status replace(const GridAxis& axis, size_t index, PictureFields& fields) const;
  Status check_text(const PictureFields& fields) const;
  Status failure(const std::string& what) const { return Status::invalid_argument(entry_.where + ": " + what); }
  void lay_out(PictureJob& job) const;

  const JobEntry& entry_;
  const JobSettings& settings_;
  std::vector<PlannedPicture>& pictures_;
};

Result<uint64_t> JobExpander::count(const JobEntry& entry) {
  uint64_t prompts = entry.settings.prompts ? 0 : 1;
  for (size_t i = 0; entry.settings.prompts && i < entry.settings.prompts->size(); ++i) {
    const FilledTemplate& prompt = (*entry.settings.prompts)[i];
    for (size_t place = 1; entry.settings.zips && place < prompt.lists.size(); ++place) {
      if (prompt.lists[place]->size() != prompt.lists[0]->size()) {
        return Status::invalid_argument(fmt::format("{}: fill = \"zip\" needs lists of one length, but '{}' has {} words and '{}' has {}",
                                                    entry.where, prompt.text.names()[0], prompt.lists[0]->size(),
                                                    prompt.text.names()[place], prompt.lists[place]->size()));
      }
    }
    prompts = plus(prompts, num_fillings(prompt, entry.settings.zips));
  }
  const uint64_t grids = times(times(prompts, num_styles(entry.settings)), num_seeds(entry.settings));
  return times(grids, times(length_of(entry.x), length_of(entry.y)));
}

Result<PictureJob> JobExpander::expand() {
  PictureJob job{.name = entry_.name, .first_picture = pictures_.size()};
  if (!settings_.prompts) {
    DARKROOM_RETURN_IF_ERROR(add_prompt(settings_.base.prompt));
  }
  for (size_t i = 0; settings_.prompts && i < settings_.prompts->size(); ++i) {
    const FilledTemplate& prompt = (*settings_.prompts)[i];
    std::vector<std::string_view> words(prompt.lists.size());
    const uint64_t fillings = num_fillings(prompt, settings_.zips);
    for (uint64_t filling = 0; filling < fillings; ++filling) {
      uint64_t rest = filling;
      for (size_t place = words.size(); place-- > 0;) {  // The last place runs fastest.
        const WordList& list = *prompt.lists[place];
        words[place] = list[settings_.zips ? filling : rest % list.size()];
        rest /= list.size();
      }
      if (const size_t num_bytes = prompt.text.filled_bytes(words); num_bytes > kMostPromptBytes) {
        return failure(fmt::format("a prompt has more than {} bytes: {}", kMostPromptBytes, num_bytes));
      }
      DARKROOM_RETURN_IF_ERROR(add_prompt(prompt.text.fill(words)));
    }
  }
  job.num_pictures = pictures_.size() - job.first_picture;
  lay_out(job);
  return job;
}

Status JobExpander::add_prompt(const std::string& prompt) {
  for (size_t style = 0; style < num_styles(settings_); ++style) {
    for (uint64_t i = 0; i < num_seeds(settings_); ++i) {
      const uint64_t seed = settings_.seeds ? (*settings_.seeds)[i] : settings_.base.seed + i;
      DARKROOM_RETURN_IF_ERROR(add_grid(prompt, settings_.styles ? (*settings_.styles)[style] : nullptr, seed));
    }
  }
  return Status::ok();
}

Status JobExpander::add_grid(const std::string& prompt, const PromptStyle* style, uint64_t seed) {
  for (size_t row = 0; row < length_of(entry_.y); ++row) {
    for (size_t column = 0; column < length_of(entry_.x); ++column) {
      DARKROOM_ASSIGN_OR_RETURN(PlannedPicture picture, resolve(prompt, style, seed, row, column));
      pictures_.push_back(std::move(picture));
    }
  }
  return Status::ok();
}

Result<PlannedPicture> JobExpander::resolve(const std::string& prompt, const PromptStyle* style, uint64_t seed, size_t row,
                                            size_t column) const {
  PlannedPicture picture{.fields = settings_.base};
  PictureFields& fields = picture.fields;
  fields.prompt = prompt;
  fields.seed = seed;
  const std::pair<const std::optional<GridAxis>&, size_t> axes[] = {{entry_.x, column}, {entry_.y, row}};
  for (const auto& [axis, index] : axes) {
    if (axis && axis->kind == GridAxis::Kind::kStyle) {
      style = axis->styles[index];
    } else if (axis && axis->kind == GridAxis::Kind::kField) {
      const std::string_view name = axis->field == "negative_preset" ? "negative" : std::string_view(axis->field);
      DARKROOM_RETURN_IF_ERROR(set_picture_field(fields, name, axis->values[index]));
    }
  }
  if (style != nullptr) {
    picture.style = style->name;
    fields.prompt = style->before + fields.prompt + style->after;
    const bool joins = !fields.negative.empty() && !style->negative.empty();
    fields.negative += (joins ? ", " : "") + style->negative;
  }
  for (const auto& [axis, index] : axes) {
    if (axis && axis->kind == GridAxis::Kind::kSearch) {
      DARKROOM_RETURN_IF_ERROR(replace(*axis, index, fields));
    }
  }
  DARKROOM_RETURN_IF_ERROR(check_text(fields));
  return picture;
}

// Replaces every occurrence from the left; nothing where the result would be larger than a prompt may be.
bool replace_all(std::string& text, const std::string& search, const std::string& replacement) {
  std::string out;
  size_t at = 0;
  size_t found = text.find(search);
  if (found == std::string::npos) {
    return false;
  }
  for (; found != std::string::npos && out.size() <= kMostPromptBytes; found = text.find(search, at)) {
    out.append(text, at, found - at).append(replacement);
    at = found + search.size();
  }
  text = out.append(text, at);
  return true;
}

Status JobExpander::replace(const GridAxis& axis, size_t index, PictureFields& fields) const {
  const auto& search = std::get<std::string>(axis.values.front());
  const auto& replacement = std::get<std::string>(axis.values[index]);
  const bool in_prompt = replace_all(fields.prompt, search, replacement);
  const bool in_negative = replace_all(fields.negative, search, replacement);
  if (!in_prompt && !in_negative) {
    return failure(fmt::format("S/R searches for '{}', which neither prompt nor negative text of a picture has; the prompt: '{}'",
                               search.substr(0, 100), fields.prompt.substr(0, 200)));
  }
  return Status::ok();
}

Status JobExpander::check_text(const PictureFields& fields) const {
  for (const auto& [name, text] : {std::pair("prompt", &fields.prompt), std::pair("negative text", &fields.negative)}) {
    if (text->size() > kMostPromptBytes) {
      return failure(fmt::format("a {} has more than {} bytes: {}", name, kMostPromptBytes, text->size()));
    }
    if (fields.prompt_syntax == "weighted") {
      const auto parts = parse_weighted_prompt(*text);
      if (!parts.is_ok()) {
        return failure(fmt::format("the {} '{}': {}", name, text->substr(0, 200), parts.status().message()));
      }
    }
  }
  return Status::ok();
}

size_t side_of_square(size_t count) {
  size_t side = 1;
  while (side * side < count) {
    ++side;
  }
  return side;
}

// Columns are what runs fastest among the axis x, the seeds and the styles; a square where nothing of these runs.
void JobExpander::lay_out(PictureJob& job) const {
  const bool has_seeds = num_seeds(settings_) > 1;
  if (entry_.x) {
    job.num_columns = length_of(entry_.x);
    job.column_titles = entry_.x->titles;
    if (entry_.y) {
      job.row_titles = entry_.y->titles;
    }
  } else if (has_seeds) {
    job.num_columns = num_seeds(settings_);
    for (size_t i = 0; i < job.num_columns; ++i) {
      job.column_titles.push_back(fmt::format("seed {}", pictures_[job.first_picture + i].fields.seed));
    }
  } else if (num_styles(settings_) > 1) {
    job.num_columns = num_styles(settings_);
    for (const PromptStyle* style : *settings_.styles) {
      job.column_titles.push_back(style == nullptr ? "no style" : style->name);
    }
  } else {
    job.num_columns = side_of_square(job.num_pictures);
  }
  const std::span pictures = std::span(pictures_).subspan(job.first_picture);
  const PictureFields& first = pictures.front().fields;
  job.captions_tell_prompt = std::ranges::any_of(pictures, [&](const auto& other) { return other.fields.prompt != first.prompt; });
  job.captions_tell_seed = entry_.x && has_seeds;
}

Status too_many(std::string_view name, uint64_t total, const JobFileOptions& options, const JobEntry& largest, uint64_t most) {
  const auto number = [](uint64_t count) { return count == kUncountable ? "uncountably many" : fmt::format("{}", count); };
  return Status::invalid_argument(fmt::format("{} asks for {} pictures, more than the {} that --max-pictures allows; most are of {}: {}",
                                              name, number(total), options.max_pictures, largest.where, number(most)));
}

}  // namespace

Result<PictureJobs> expand_picture_jobs(std::string_view text, std::string_view name, const JobFileOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(JobFile file, read_job_file(text, name, options));
  uint64_t total = 0;
  uint64_t most = 0;
  const JobEntry* largest = &file.jobs.front();
  for (const JobEntry& entry : file.jobs) {
    DARKROOM_ASSIGN_OR_RETURN(const uint64_t count, JobExpander::count(entry));
    total = plus(total, count);
    if (count > most) {
      most = count;
      largest = &entry;
    }
  }
  if (total > options.max_pictures) {
    return too_many(name, total, options, *largest, most);
  }
  PictureJobs jobs{.fields_set = std::move(file.fields_set)};
  jobs.pictures.reserve(total);
  for (const JobEntry& entry : file.jobs) {
    DARKROOM_ASSIGN_OR_RETURN(PictureJob job, JobExpander(entry, jobs.pictures).expand());
    jobs.jobs.push_back(std::move(job));
  }
  return jobs;
}

std::string picture_file(const PictureJob& job, size_t index_in_job) { return fmt::format("{}/{:05}.png", job.name, index_in_job); }

std::string picture_caption(const PictureJob& job, const PlannedPicture& picture) {
  std::string caption = job.captions_tell_prompt ? picture.fields.prompt : std::string();
  if (job.captions_tell_seed) {
    caption += fmt::format("{}seed {}", caption.empty() ? "" : "; ", picture.fields.seed);
  }
  return caption;
}

std::string sheet_heading(const PictureJob& job, std::span<const PlannedPicture> pictures) {
  std::string text = job.name;
  const PictureFields plain;
  for (const std::string& name : picture_field_names()) {
    const FieldValue value = picture_field(pictures.front().fields, name);
    const bool is_always_told = name == "prompt" || name == "seed" || name == "steps" || name == "guidance";
    if ((is_always_told || value != picture_field(plain, name)) &&
        std::ranges::all_of(pictures, [&](const PlannedPicture& other) { return picture_field(other.fields, name) == value; })) {
      text += name == "prompt" ? ": " + field_text(value) : fmt::format("; {} {}", name, field_text(value));
    }
  }
  return text;
}

}  // namespace darkroom
