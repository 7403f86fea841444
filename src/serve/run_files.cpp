#include "run_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include "darkroom/core/crc32.h"
#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr int64_t kPieceBytes = 262'144;  // About a thousand lines.
constexpr int64_t kMarkBytes = 256;       // Before a place, by whose checksum it is known again: a line and the end of another.
constexpr int64_t kMaxFactsBytes = 1'000'000;
constexpr int64_t kMaxPictureBytes = 32'000'000;
constexpr int64_t kMaxReportBytes = 64'000'000;
constexpr size_t kMostSteps = 2'000;   // Samples and checkpoints that are told of, the newest.
constexpr size_t kMostPictures = 200;  // Of a step.
constexpr size_t kMaxNameBytes = 64;
constexpr const char* kCurves[] = {"loss", "grad_norm", "lr",      "images_per_second", "validation_loss", "validation_psnr",
                                   "step", "seconds",   "goodput", "samples",           "skipped"};

/// A descriptor that is closed with the object; -1: none.
class RunDescriptor {
 public:
  explicit RunDescriptor(int number) : number_(number) {}
  ~RunDescriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  RunDescriptor(RunDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  RunDescriptor& operator=(RunDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  /// Who calls it closes the number from now on.
  void release() { number_ = -1; }

 private:
  int number_;
};

// The last of the names, each below the one before; none of them may be a link, for it might lead out of the folder. Without O_NONBLOCK a
// pipe would be waited for.
RunDescriptor open_below(const ServedRun& run, std::initializer_list<std::string_view> names, int kind = 0) {
  RunDescriptor place(::open(run.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto* const last = names.end() - 1;
  for (const auto* name = names.begin(); name != names.end() && place.is_open(); ++name) {
    const int wanted = name == last ? kind : O_DIRECTORY;
    place = RunDescriptor(::openat(place.number(), std::string(*name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | wanted));
  }
  return place;
}

/// Nothing where it is no regular file.
std::optional<int64_t> size_of(const RunDescriptor& file) {
  struct stat facts = {};
  const bool is_file = file.is_open() && ::fstat(file.number(), &facts) == 0 && S_ISREG(facts.st_mode);
  return is_file ? std::optional<int64_t>(facts.st_size) : std::nullopt;
}

/// Fewer bytes where the file ends before.
std::string read_bytes(const RunDescriptor& file, int64_t offset, int64_t num_bytes) {
  std::string bytes(static_cast<size_t>(num_bytes), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::pread(file.number(), bytes.data() + filled, bytes.size() - filled, offset + static_cast<int64_t>(filled));
    if (count <= 0 && !(count < 0 && errno == EINTR)) {
      break;
    }
    filled += static_cast<size_t>(std::max<ssize_t>(0, count));
  }
  bytes.resize(filled);
  return bytes;
}

/// A small file's JSON; discarded: there is none.
Json read_facts(const ServedRun& run, std::initializer_list<std::string_view> names) {
  const RunDescriptor file = open_below(run, names);
  const auto size = size_of(file);
  return size.has_value() && *size <= kMaxFactsBytes ? parse_json<Json>(read_bytes(file, 0, *size)) : Json(Json::value_t::discarded);
}

Result<RoomyBytes> read_whole(const RunDescriptor& file, int64_t max_bytes, const TakeRoom& take_room) {
  const auto size = size_of(file);
  if (!size.has_value()) {
    return Status::not_found("the run has no such file, or not yet");
  }
  if (*size > max_bytes) {
    return Status::invalid_argument("the file is too large to be shown (bytes, at most):", *size, max_bytes);
  }
  DARKROOM_ASSIGN_OR_RETURN(auto room, take_room(*size));
  return RoomyBytes{.bytes = read_bytes(file, 0, *size), .room = std::move(room)};
}

/// The names in a folder, in their order.
std::vector<std::string> names_in(RunDescriptor folder) {
  std::vector<std::string> names;
  DIR* const stream = folder.is_open() ? ::fdopendir(folder.number()) : nullptr;
  if (stream == nullptr) {
    return names;
  }
  folder.release();  // It is the stream's now.
  while (const dirent* const entry = ::readdir(stream)) {
    names.emplace_back(entry->d_name);
  }
  ::closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = failure == std::errc() && end == text.data() + text.size() && !text.empty() && number >= 0;
  return is_whole ? std::optional(number) : std::nullopt;
}

std::string step_folder(int64_t step) { return fmt::format("step-{:08}", step); }

/// The steps of samples/ or checkpoints/, the newest, in their order.
std::vector<int64_t> steps_in(const ServedRun& run, std::string_view folder) {
  constexpr std::string_view kBegin = "step-";
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(open_below(run, {folder}, O_DIRECTORY))) {
    const auto step = whole_number(std::string_view(name).substr(std::min(kBegin.size(), name.size())));
    if (step.has_value() && name == step_folder(*step)) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(steps.begin(), steps.end() - static_cast<ptrdiff_t>(std::min(steps.size(), kMostSteps)));
  return steps;
}

bool is_picture_name(std::string_view name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
  return is_plain && !name.starts_with('.') && name.ends_with(".png") && name.size() <= kMaxNameBytes;
}

/// What is no text, number or truth value is left out: pages show these.
void take_plain(const Json& from, const char* name, Json& into) {
  const auto value = from.is_object() ? from.find(name) : from.end();
  if (from.is_object() && value != from.end() && (value->is_string() || value->is_number() || value->is_boolean())) {
    into[name] = *value;
  }
}

// Not what says where things lie on this machine: paths of data and models.
Json recipe_essentials(const Json& facts) {
  static constexpr std::pair<const char*, const char*> kFields[] = {{"objective", "kind"},
                                                                    {"objective", "prediction"},
                                                                    {"objective", "caption_dropout"},
                                                                    {"data", "resolution"},
                                                                    {"optimizer", "lr"},
                                                                    {"optimizer", "weight_decay"},
                                                                    {"optimizer", "clip_norm"},
                                                                    {"schedule", "kind"},
                                                                    {"schedule", "max_steps"},
                                                                    {"schedule", "warmup_steps"},
                                                                    {"ema", "decay"},
                                                                    {"batch", "global"},
                                                                    {"batch", "micro"},
                                                                    {"runtime", "seed"},
                                                                    {"runtime", "precision"}};
  Json essentials = Json::object();
  const Json recipe = facts.is_object() ? facts.value("recipe", Json()) : Json();
  for (const auto& [section, key] : kFields) {
    Json field = Json::object();
    take_plain(recipe.is_object() ? recipe.value(section, Json()) : Json(), key, field);
    if (!field.empty()) {
      essentials[fmt::format("{}.{}", section, key)] = field[key];
    }
  }
  return essentials;
}

/// "OFFSET-CHECKSUM": a place in a file, and what stands before it.
std::string place_text(int64_t offset, std::string_view before) { return fmt::format("{}-{:08x}", offset, crc32(before)); }

std::string before_place(const RunDescriptor& file, int64_t offset) {
  const int64_t begin = std::max<int64_t>(0, offset - kMarkBytes);
  return read_bytes(file, begin, offset - begin);
}

void add_lines(std::string_view text, MetricsPiece& piece) {
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const Json line = parse_json<Json>(text.substr(0, end));
    Json numbers = Json::object();
    for (const char* name : kCurves) {
      if (line.is_object() && line.contains(name) && line[name].is_number()) {
        numbers[name] = line[name];
      }
    }
    if (numbers.contains("step")) {
      piece.lines.push_back(std::move(numbers));
    } else {
      piece.num_unreadable += 1;
    }
  }
}

}  // namespace

// When a run goes on, lines behind its checkpoint are cut away and others come in their place, so an offset alone would not do.
Result<MetricsPiece> read_metrics(const ServedRun& run, std::string_view from) {
  const size_t dash = std::min(from.find('-'), from.size());
  const auto asked = from.empty() ? std::optional<int64_t>(0) : whole_number(from.substr(0, dash));
  if (!asked.has_value() || (!from.empty() && from.size() != dash + 9)) {
    return Status::invalid_argument("from must be what an earlier reply said as next, got:", from.substr(0, 80));
  }
  const RunDescriptor file = open_below(run, {"metrics.jsonl"});
  const int64_t size = size_of(file).value_or(0);
  MetricsPiece piece;
  int64_t offset = *asked;
  if (offset > size || (!from.empty() && place_text(offset, before_place(file, offset)) != from)) {
    piece.is_anew = true;
    offset = 0;
  }
  const std::string bytes = read_bytes(file, offset, std::min(kPieceBytes, size - offset));
  const size_t end = bytes.rfind('\n') + 1;  // 0: no line has ended.
  const bool is_endless = end == 0 && bytes.size() == static_cast<size_t>(kPieceBytes);
  add_lines(std::string_view(bytes).substr(0, end), piece);
  piece.num_unreadable += is_endless ? 1 : 0;
  const auto num_taken = static_cast<int64_t>(is_endless ? bytes.size() : end);
  piece.next = place_text(offset + num_taken, before_place(file, offset + num_taken));
  piece.has_more = num_taken > 0 && offset + kPieceBytes < size;
  return piece;
}

Json describe_run(const ServedRun& run) {
  const Json facts = read_facts(run, {"run.json"});
  Json described = {{"name", run.name}, {"recipe", recipe_essentials(facts)}, {"samples", steps_in(run, "samples")}};
  for (const char* name : {"component", "parameters", "step", "seconds"}) {
    take_plain(facts, name, described);
  }
  const Json starts = facts.is_object() ? facts.value("starts", Json()) : Json();
  described["starts"] = starts.is_array() ? starts.size() : 0;
  described["last_start"] = Json::object();
  for (const char* name : {"started", "darkroom", "device", "precision", "processor", "cores", "ranks", "threads", "workers"}) {
    take_plain(starts.is_array() && !starts.empty() ? starts.back() : Json(), name, described["last_start"]);
  }
  described["checkpoints"] = Json::array();
  for (const int64_t step : steps_in(run, "checkpoints")) {
    if (size_of(open_below(run, {"checkpoints", step_folder(step), "state.json"})).has_value()) {  // Else it is not whole.
      described["checkpoints"].push_back(step);
    }
  }
  described["has_report"] = size_of(open_below(run, {"report.html"})).has_value();
  return described;
}

Result<Json> describe_samples(const ServedRun& run, std::string_view step) {
  const auto number = whole_number(step);
  RunDescriptor folder = number.has_value() ? open_below(run, {"samples", step_folder(*number)}, O_DIRECTORY) : RunDescriptor(-1);
  if (!folder.is_open()) {
    return Status::not_found("the run has no samples of this step, or not yet");
  }
  std::vector<std::string> files = names_in(std::move(folder));
  files.erase(std::remove_if(files.begin(), files.end(), [](const std::string& name) { return !is_picture_name(name); }), files.end());
  const bool has_sheet = std::erase(files, "sheet.png") > 0;
  files.resize(std::min(files.size(), kMostPictures));
  const Json facts = read_facts(run, {"samples", step_folder(*number), "samples.json"});
  Json described = {{"step", *number}, {"has_sheet", has_sheet}, {"pictures", Json::array()}};
  for (const char* name : {"sampler", "steps", "guidance", "weights"}) {
    take_plain(facts, name, described);
  }
  const Json said = facts.is_object() ? facts.value("pictures", Json()) : Json();
  for (const std::string& file : files) {
    Json picture = {{"file", file}};
    for (const Json& one : said.is_array() ? said : Json::array()) {
      if (one.is_object() && one.contains("file") && one["file"] == file) {
        take_plain(one, "prompt", picture);
        take_plain(one, "seed", picture);
      }
    }
    described["pictures"].push_back(std::move(picture));
  }
  return described;
}

Result<RoomyBytes> read_sample(const ServedRun& run, std::string_view step, std::string_view file, const TakeRoom& take_room) {
  const auto number = whole_number(step);
  if (!number.has_value() || !is_picture_name(file)) {
    return Status::not_found("the run has no such picture");
  }
  return read_whole(open_below(run, {"samples", step_folder(*number), file}), kMaxPictureBytes, take_room);
}

Result<RoomyBytes> read_report(const ServedRun& run, const TakeRoom& take_room) {
  return read_whole(open_below(run, {"report.html"}), kMaxReportBytes, take_room);
}

}  // namespace darkroom
