#include "job_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "darkroom/toml/parse_toml.h"
#include "darkroom/toml/toml_fields.h"
#include "job_words.h"
#include "short_name.h"

namespace darkroom {
namespace {

constexpr uint64_t kMostSeeds = uint64_t{1} << 32;  // Far above every bound on the pictures.

class JobFileReader {
 public:
  JobFileReader(std::string name, const JobFileOptions& options) : name_(std::move(name)), options_(options) {}

  Result<JobFile> read(const toml::table& table) {
    TomlFields top(table, name_, "");
    if (top.number_or("version", 1) != 1) {
      top.fail("version", "must be 1, the only one there is");
    }
    DARKROOM_RETURN_IF_ERROR(top.status());
    DARKROOM_RETURN_IF_ERROR(read_lists(top));
    DARKROOM_RETURN_IF_ERROR(read_negatives(top));
    DARKROOM_RETURN_IF_ERROR(read_styles(top));
    JobSettings settings{.base = options_.defaults, .images = options_.images};
    read_settings(top, settings);
    const std::vector<TomlFields> jobs = top.tables("job");
    DARKROOM_RETURN_IF_ERROR(top.finish());
    if (jobs.empty()) {
      return Status::invalid_argument(name_ + ": there is no [[job]], so that there is nothing to paint");
    }
    for (const TomlFields& job : jobs) {
      DARKROOM_RETURN_IF_ERROR(read_job(job, settings));
    }
    return std::move(file_);
  }

 private:
  Status read_lists(TomlFields& top);
  Status read_negatives(TomlFields& top);
  Status read_styles(TomlFields& top);
  void read_style(TomlFields& fields, PromptStyle& style);
  Status read_job(const TomlFields& untitled, const JobSettings& top);
  void read_settings(TomlFields& fields, JobSettings& settings);
  void read_prompts(TomlFields& fields, JobSettings& settings);
  std::shared_ptr<const std::vector<FilledTemplate>> parse_prompts(TomlFields& fields, const std::string& key,
                                                                   const std::vector<std::string>& texts) const;
  void read_negative(TomlFields& fields, JobSettings& settings);
  void read_seeds(TomlFields& fields, JobSettings& settings);
  void read_seed_range(TomlFields& fields, const toml::table& table, JobSettings& settings);
  void read_seed_list(TomlFields& fields, JobSettings& settings);
  void read_style_names(TomlFields& fields, JobSettings& settings);
  std::string literal_field(TomlFields& fields, const std::string& key);

  std::string name_;
  const JobFileOptions& options_;
  JobFile file_;
  std::unordered_set<std::string> job_names_;
};

Status JobFileReader::read_lists(TomlFields& top) {
  std::optional<TomlFields> lists = top.table("lists");
  const toml::node* table = top.node("lists");
  DARKROOM_RETURN_IF_ERROR(top.status());
  if (!lists) {
    return Status::ok();
  }
  for (const auto& [key, node] : *table->as_table()) {
    const std::string name(key.str());
    if (!is_short_name(name) || name == "prompt") {
      lists->fail(name, "must be called by 1 to 64 letters, digits, - and _, and not 'prompt', which is a style's");
    }
    WordList words = lists->texts(name);
    for (std::string& word : words) {
      Result<std::string> literal = literal_text(word);
      if (!literal.is_ok()) {
        lists->fail(name, literal.status().message());
        break;
      }
      word = *std::move(literal);
    }
    DARKROOM_RETURN_IF_ERROR(lists->status());
    file_.lists.emplace(name, std::move(words));
  }
  return Status::ok();
}

Status JobFileReader::read_negatives(TomlFields& top) {
  std::optional<TomlFields> negatives = top.table("negatives");
  const toml::node* table = top.node("negatives");
  DARKROOM_RETURN_IF_ERROR(top.status());
  if (!negatives) {
    return Status::ok();
  }
  for (const auto& [key, node] : *table->as_table()) {
    const std::string name(key.str());
    file_.negatives.emplace(name, literal_field(*negatives, name));
    DARKROOM_RETURN_IF_ERROR(negatives->status());
  }
  return Status::ok();
}

Status JobFileReader::read_styles(TomlFields& top) {
  std::optional<TomlFields> styles = top.table("styles");
  const toml::node* table = top.node("styles");
  DARKROOM_RETURN_IF_ERROR(top.status());
  if (!styles) {
    return Status::ok();
  }
  for (const auto& [key, node] : *table->as_table()) {
    const std::string name(key.str());
    if (name.empty() || name == kNoStyle) {
      styles->fail(name, "must not be the name of a style: it stands for the prompt as it is");
    }
    std::optional<TomlFields> fields = styles->table(name);
    DARKROOM_RETURN_IF_ERROR(styles->status());
    PromptStyle style{.name = name};
    read_style(*fields, style);
    DARKROOM_RETURN_IF_ERROR(fields->finish());
    file_.styles.emplace(name, std::move(style));
  }
  return Status::ok();
}

void JobFileReader::read_style(TomlFields& fields, PromptStyle& style) {
  style.before = literal_field(fields, "prefix");
  style.after = literal_field(fields, "suffix");
  style.negative = literal_field(fields, "negative");
  const toml::node* pattern = fields.node("pattern");
  if (pattern == nullptr) {
    return;
  }
  if (fields.has("prefix") || fields.has("suffix")) {
    return fields.fail("pattern", "stands beside prefix or suffix, which say the same");
  }
  const std::string text = fields.text("pattern");
  const Result<PromptTemplate> parsed = PromptTemplate::parse(text);
  if (!parsed.is_ok()) {
    return fields.fail("pattern", parsed.status().message());
  }
  // A character that no text may hold stands for the prompt, and is found again.
  const std::string_view mark("\0", 1);
  const std::string filled = parsed->names().size() == 1 ? parsed->fill(std::span(&mark, 1)) : std::string();
  const size_t at = filled.find('\0');
  if (at == std::string::npos || parsed->names().front() != "prompt" || filled.find('\0', at + 1) != std::string::npos) {
    return fields.fail("pattern", "must have the place {prompt}, once, and no other, got: '" + text.substr(0, 100) + "'");
  }
  style.before = filled.substr(0, at);
  style.after = filled.substr(at + 1);
}

std::string JobFileReader::literal_field(TomlFields& fields, const std::string& key) {
  const toml::node* node = fields.node(key);
  if (node == nullptr) {
    return {};
  }
  if (!node->is_string()) {
    fields.fail(key, "must be a text in quotes, got: " + shown_toml(*node));
    return {};
  }
  const Result<std::string> literal = literal_text(node->as_string()->get());
  if (!literal.is_ok()) {
    fields.fail(key, literal.status().message());
  }
  return literal.is_ok() ? *literal : std::string();
}

void JobFileReader::read_settings(TomlFields& fields, JobSettings& settings) {
  read_prompts(fields, settings);
  read_negative(fields, settings);
  read_seeds(fields, settings);
  const auto set = [&](const std::string& name) {
    const toml::node* node = fields.node(name);
    if (node == nullptr) {
      return;
    }
    const Result<FieldValue> value = toml_value(*node);
    const Status status = value.is_ok() ? set_picture_field(settings.base, name, *value, options_.samplers) : value.status();
    if (!status.is_ok()) {
      fields.fail(name, status.message());
    }
    file_.fields_set.insert(name);
  };
  for (const std::string& name : picture_field_names()) {
    if (name != "prompt" && name != "negative" && name != "seed") {
      set(name);
    }
  }
  if (fields.has("size") && (fields.has("width") || fields.has("height"))) {
    fields.fail("size", "stands beside width or height, which say the same");
  }
  set("size");
  if (fields.has("fill")) {
    settings.zips = fields.choice("fill", {"all", "zip"}) == "zip";
  }
  fields.node("fill");
}

void JobFileReader::read_prompts(TomlFields& fields, JobSettings& settings) {
  if (fields.has("prompt") && fields.has("prompts")) {
    fields.fail("prompt", "stands beside prompts; give one of the two");
  }
  const toml::node* one = fields.node("prompt");
  if (one != nullptr && !one->is_string()) {
    fields.fail("prompt", "must be a text in quotes, got: " + shown_toml(*one));
  }
  std::vector<std::string> texts = fields.texts("prompts");
  if (one == nullptr && texts.empty()) {
    return;
  }
  const std::string key = one != nullptr ? "prompt" : "prompts";
  if (one != nullptr && one->is_string()) {
    texts = {one->as_string()->get()};
  }
  settings.prompts = parse_prompts(fields, key, texts);
  file_.fields_set.insert("prompt");
}

std::shared_ptr<const std::vector<FilledTemplate>> JobFileReader::parse_prompts(TomlFields& fields, const std::string& key,
                                                                                const std::vector<std::string>& texts) const {
  std::vector<FilledTemplate> prompts;
  for (const std::string& text : texts) {
    Result<PromptTemplate> parsed = PromptTemplate::parse(text);
    if (!parsed.is_ok()) {
      fields.fail(key, parsed.status().message());
      return nullptr;
    }
    FilledTemplate prompt{.text = *std::move(parsed)};
    for (const std::string& name : prompt.text.names()) {
      const auto list = file_.lists.find(name);
      if (list == file_.lists.end()) {
        fields.fail(key, unknown_name("the list", name, file_.lists));
        return nullptr;
      }
      prompt.lists.push_back(&list->second);
    }
    prompts.push_back(std::move(prompt));
  }
  return std::make_shared<const std::vector<FilledTemplate>>(std::move(prompts));
}

void JobFileReader::read_negative(TomlFields& fields, JobSettings& settings) {
  if (fields.has("negative") && fields.has("negative_preset")) {
    fields.fail("negative", "stands beside negative_preset; give one of the two");
  }
  if (fields.has("negative")) {
    settings.base.negative = literal_field(fields, "negative");
    file_.fields_set.insert("negative");
  }
  if (fields.has("negative_preset")) {
    const std::string name = fields.text("negative_preset");
    const auto found = file_.negatives.find(name);
    if (found == file_.negatives.end()) {
      return fields.fail("negative_preset", unknown_name("the preset", name, file_.negatives));
    }
    settings.base.negative = found->second;
    file_.fields_set.insert("negative");
  }
  fields.node("negative");
  fields.node("negative_preset");
}

void JobFileReader::read_seeds(TomlFields& fields, JobSettings& settings) {
  const bool has_seeds = fields.has("seeds");
  if (has_seeds && (fields.has("seed") || fields.has("images"))) {
    return fields.fail("seeds", "stands beside seed or images, which say the same");
  }
  if (fields.has("seed") || fields.has("images")) {
    settings.seeds = nullptr;
    settings.base.seed = static_cast<uint64_t>(fields.count_or("seed", static_cast<int64_t>(settings.base.seed)));
    settings.images = static_cast<uint64_t>(fields.count_or("images", static_cast<int64_t>(settings.images)));
    file_.fields_set.insert(fields.has("seed") ? "seed" : "images");
    if (fields.has("images")) {
      file_.fields_set.insert("images");
    }
  }
  if (settings.images < 1 || settings.images > kMostSeeds) {
    fields.fail("images", fmt::format("must be a whole number from 1 to {}, got: {}", kMostSeeds, settings.images));
  }
  fields.node("seed");
  fields.node("images");
  const toml::node* seeds = fields.node("seeds");
  if (seeds == nullptr) {
    return;
  }
  file_.fields_set.insert({"seed", "images"});
  if (seeds->is_table()) {
    return read_seed_range(fields, *seeds->as_table(), settings);
  }
  read_seed_list(fields, settings);
}

void JobFileReader::read_seed_range(TomlFields& fields, const toml::table& table, JobSettings& settings) {
  TomlFields range(table, fields.file(), fields.place() + " seeds");
  settings.base.seed = static_cast<uint64_t>(range.count_or("start", 0));
  settings.images = static_cast<uint64_t>(range.count("count"));
  if (settings.images < 1 || settings.images > kMostSeeds) {
    range.fail("count", fmt::format("must be a whole number from 1 to {}, got: {}", kMostSeeds, settings.images));
  }
  settings.seeds = nullptr;
  fields.adopt(range.finish());
}

void JobFileReader::read_seed_list(TomlFields& fields, JobSettings& settings) {
  std::vector<uint64_t> list;
  for (const toml::node* node : fields.list("seeds")) {
    const auto seed = node->value_exact<int64_t>();
    if (!seed || *seed < 0) {
      return fields.fail("seeds", "must be whole numbers from 0, or { start = 0, count = 4 }, got: " + shown_toml(*node));
    }
    list.push_back(static_cast<uint64_t>(*seed));
  }
  settings.seeds = std::make_shared<const std::vector<uint64_t>>(std::move(list));
}

void JobFileReader::read_style_names(TomlFields& fields, JobSettings& settings) {
  std::vector<const PromptStyle*> styles;
  std::unordered_set<std::string> seen;
  for (const std::string& name : fields.texts("styles")) {
    if (!seen.insert(name).second) {
      return fields.fail("styles", fmt::format("names '{}' twice", name.substr(0, 100)));
    }
    styles.push_back(find_style(fields, "styles", name, file_.styles));
  }
  if (!styles.empty()) {
    settings.styles = std::make_shared<const std::vector<const PromptStyle*>>(std::move(styles));
  }
}

Status JobFileReader::read_job(const TomlFields& untitled, const JobSettings& top) {
  const size_t number = file_.jobs.size() + 1;
  TomlFields unnamed = untitled;
  JobEntry entry{.name = unnamed.text_or("name", fmt::format("job-{}", number)), .settings = top};
  DARKROOM_RETURN_IF_ERROR(unnamed.status());
  TomlFields job = untitled.placed(fmt::format("[[job]] {} ({})", number, entry.name.substr(0, kLongestName)));
  job.node("name");
  if (!is_job_name(entry.name)) {
    job.fail("name", "must be 1 to 64 letters, digits, - and _, and begin with a letter or digit, because it becomes a folder");
  }
  std::string folded = entry.name;  // Some file systems do not tell A from a.
  std::ranges::transform(folded, folded.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (!job_names_.insert(folded).second) {
    job.fail("name", "is that of an earlier job, also where capitals do not count: " + entry.name.substr(0, kLongestName));
  }
  entry.where = job.where();
  read_settings(job, entry.settings);
  read_style_names(job, entry.settings);
  entry.x = read_axis(job, "x", file_, options_.samplers);
  entry.y = read_axis(job, "y", file_, options_.samplers);
  DARKROOM_RETURN_IF_ERROR(job.finish());  // A mistyped key says more than what is missing for it.
  check_axes(job, entry);
  for (const std::optional<GridAxis>& axis : {entry.x, entry.y}) {
    if (axis && axis->kind == GridAxis::Kind::kField) {
      file_.fields_set.insert(axis->field == "negative_preset" ? "negative" : axis->field);
    }
  }
  DARKROOM_RETURN_IF_ERROR(job.finish());
  file_.jobs.push_back(std::move(entry));
  return Status::ok();
}

}  // namespace

Result<JobFile> read_job_file(std::string_view text, std::string_view name, const JobFileOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const toml::table table, parse_toml(text, name));
  return JobFileReader(std::string(name), options).read(table);
}

}  // namespace darkroom
