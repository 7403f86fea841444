#include "darkroom/serve/png_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "darkroom/core/version.h"
#include "darkroom/image/png.h"
#include "request_fields.h"

namespace darkroom {
namespace {

constexpr std::string_view kNegative = "Negative prompt:";
constexpr size_t kMostTextBytes = 1'000'000;  // That png_info reads of a file.
constexpr size_t kLeastPairs = 3;             // Of a last line that is settings and not the prompt's.

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string without_nul(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    c == '\0' ? clean += "\xEF\xBF\xBD" : clean += c;
  }
  return clean;
}

// As json.dumps does it, where the text could be taken for more than one value.
std::string quoted(const std::string& value) { return value.find_first_of(",:\n\"") == std::string::npos ? value : json_text(value); }

std::string webui_text(const std::string& prompt, const std::string& negative, const Pairs& pairs) {
  std::string text = prompt;
  if (!negative.empty()) {
    text += fmt::format("\n{} {}", kNegative, negative);
  }
  const char* before = "\n";
  for (const auto& [name, value] : pairs) {
    text += fmt::format("{}{}: {}", std::exchange(before, ", "), name, quoted(value));
  }
  return without_nul(text);
}

const WebuiSampler* webui_sampler_of_ours(std::string_view ours) {
  const auto all = webui_samplers();
  const auto found = std::ranges::find_if(all, [&](const WebuiSampler& one) { return ours == one.ours; });
  return found == all.end() ? nullptr : &*found;
}

void add_sampler(const std::string& ours, Pairs& pairs) {
  const WebuiSampler* sampler = webui_sampler_of_ours(ours);
  pairs.emplace_back("Sampler", sampler == nullptr ? ours : sampler->base);
  if (sampler != nullptr) {
    pairs.emplace_back("Schedule type", sampler->schedule);
  }
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

// The value at the front, up to its comma, which goes too: in quotes as JSON, or as it stands.
std::string take_setting(std::string_view& line) {
  if (line.starts_with('"')) {
    size_t end = 1;
    while (end < line.size() && line[end] != '"') {
      end += line[end] == '\\' ? 2 : 1;
    }
    const std::string_view rest = end < line.size() ? trimmed(line.substr(end + 1)) : std::string_view("x");
    const auto value = nlohmann::json::parse(line.substr(0, std::min(end + 1, line.size())), nullptr, /*allow_exceptions=*/false);
    if ((rest.empty() || rest.starts_with(',')) && value.is_string()) {
      line = rest.empty() ? rest : rest.substr(1);
      return value.get<std::string>();
    }
  }
  const size_t end = std::min(line.find(','), line.size());
  std::string value(trimmed(line.substr(0, end)));
  line.remove_prefix(std::min(end + 1, line.size()));
  return value;
}

// "Steps: 20, Sampler: Euler a": nothing where it is no such line.
std::optional<Pairs> read_pairs(std::string_view line) {
  Pairs pairs;
  for (line = trimmed(line); !line.empty(); line = trimmed(line)) {
    const size_t colon = line.find(':');
    const size_t comma = line.find(',');
    if (colon == std::string_view::npos || colon == 0 || comma < colon) {
      return std::nullopt;
    }
    std::string name(trimmed(line.substr(0, colon)));
    line = trimmed(line.substr(colon + 1));
    pairs.emplace_back(std::move(name), take_setting(line));
  }
  return pairs.size() >= kLeastPairs ? std::optional(std::move(pairs)) : std::nullopt;
}

// "512x768".
std::optional<std::pair<std::string, std::string>> read_sides(const std::string& value) {
  const size_t times = value.find('x');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  };
  if (times == std::string::npos || !is_number(value.substr(0, times)) || !is_number(value.substr(times + 1))) {
    return std::nullopt;
  }
  return std::pair(value.substr(0, times), value.substr(times + 1));
}

// The lines before that of the settings.
nlohmann::json prompts_of(std::string_view text) {
  std::string prompt;
  std::string negative;
  bool is_first = true;
  bool is_negative = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!is_negative && line.starts_with(kNegative)) {
      is_negative = is_first = true;
      line.remove_prefix(kNegative.size());
    }
    std::string& read = is_negative ? negative : prompt;
    read += std::exchange(is_first, false) ? "" : "\n";
    read += trimmed(line);
  }
  return {{"Prompt", prompt}, {"Negative prompt", negative}};
}

// The chunks that `darkroom sample` writes, as webui would have written them; empty where they are not there.
std::string text_of_sample(const std::map<std::string, std::string>& items) {
  const auto value = [&](const char* name) {
    const auto found = items.find(name);
    return found == items.end() ? std::string() : found->second;
  };
  if (!items.contains("prompt") || !items.contains("sampler") || !items.contains("steps")) {
    return "";
  }
  Pairs pairs = {{"Steps", value("steps")}};
  add_sampler(value("sampler"), pairs);
  pairs.insert(pairs.end(), {{"CFG scale", value("guidance")}, {"Seed", value("seed")}, {"Size", value("size")}});
  for (const auto& [name, ours] : {std::pair("Model", "model"), std::pair("Denoising strength", "strength"), std::pair("Eta", "eta")}) {
    if (!value(ours).empty() && !(ours == std::string_view("eta") && value(ours) == "0")) {
      pairs.emplace_back(name, value(ours));
    }
  }
  if (value("prompt_syntax") != "weighted") {
    pairs.emplace_back("Prompt syntax", "plain");
  }
  pairs.emplace_back("Version", value("Software"));
  return webui_text(value("prompt"), value("negative_prompt"), pairs);
}

}  // namespace

std::span<const WebuiSampler> webui_samplers() {
  static const std::array<WebuiSampler, 8> kSamplers = {{
      {"dpmpp_2m", "DPM++ 2M", "DPM++ 2M", "Uniform", {"k_dpmpp_2m", nullptr}},
      {"dpmpp_2m_karras", "DPM++ 2M Karras", "DPM++ 2M", "Karras", {"k_dpmpp_2m_ka", nullptr}},
      {"euler_a", "Euler a", "Euler a", "Automatic", {"k_euler_a", "k_euler_ancestral"}},
      {"euler", "Euler", "Euler", "Automatic", {"k_euler", nullptr}},
      {"lcm", "LCM", "LCM", "Automatic", {"k_lcm", nullptr}},
      {"ddim", "DDIM", "DDIM", "Automatic", {nullptr, nullptr}},
      {"pndm", "PLMS", "PLMS", "Automatic", {nullptr, nullptr}},
      {"unipc", "UniPC", "UniPC", "Automatic", {nullptr, nullptr}},
  }};
  return kSamplers;
}

std::string png_with_settings(const Image& image, std::span<const std::string> texts, size_t index) {
  return texts.empty() ? encode_png(image) : encode_png(image, {{kSettingsKeyword, texts[index]}});
}

std::string settings_text(const PictureSpec& spec, const ModelFacts& model, std::optional<double> strength) {
  Pairs pairs = {{"Steps", fmt::format("{}", spec.num_steps)}};
  add_sampler(spec.sampler.empty() ? model.default_sampler : spec.sampler, pairs);
  pairs.insert(pairs.end(), {{"CFG scale", fmt::format("{}", spec.guidance)},
                             {"Seed", fmt::format("{}", spec.seed)},
                             {"Size", fmt::format("{}x{}", spec.width, spec.height)},
                             {"Model", model.name}});
  if (strength.has_value()) {
    pairs.emplace_back("Denoising strength", fmt::format("{}", *strength));
  }
  if (!spec.has_weight_syntax) {
    pairs.emplace_back("Prompt syntax", "plain");
  }
  if (spec.eta != 0.0) {
    pairs.emplace_back("Eta", fmt::format("{}", spec.eta));
  }
  pairs.emplace_back("Version", fmt::format("darkroom {}", kVersion));
  return webui_text(spec.prompt, spec.negative, pairs);
}

nlohmann::json parse_settings(std::string_view text) {
  while (!text.empty() && (is_space(text.back()) || text.back() == '\n')) {
    text.remove_suffix(1);
  }
  const size_t last = text.rfind('\n');
  const auto pairs = read_pairs(last == std::string_view::npos ? text : text.substr(last + 1));
  if (pairs.has_value()) {
    text = text.substr(0, last == std::string_view::npos ? 0 : last);
  }
  nlohmann::json settings = prompts_of(text);
  for (const auto& [name, value] : pairs.value_or(Pairs())) {
    if (const auto sides = read_sides(value)) {
      settings[name + "-1"] = sides->first;
      settings[name + "-2"] = sides->second;
    } else {
      settings[name] = value;
    }
  }
  return settings;
}

Result<nlohmann::json> png_info(std::span<const std::byte> png) {
  const auto read = read_png_text(png);
  if (!read.is_ok()) {
    return Status::invalid_argument(fmt::format("image must be a PNG that is whole: {}", read.status().message()));
  }
  const size_t num_bytes = std::accumulate(read->begin(), read->end(), size_t{0},
                                           [](size_t sum, const auto& item) { return sum + item.first.size() + item.second.size(); });
  if (num_bytes > kMostTextBytes) {
    return Status::invalid_argument("image has more text than is read of a PNG (bytes, bound):", num_bytes, kMostTextBytes);
  }
  std::map<std::string, std::string> items(read->begin(), read->end());
  std::string info;
  if (const auto found = items.find(kSettingsKeyword); found != items.end()) {
    info = found->second;
    items.erase(found);
  } else {
    info = text_of_sample(items);
  }
  return nlohmann::json{{"info", info}, {"items", items}, {"parameters", info.empty() ? nlohmann::json::object() : parse_settings(info)}};
}

}  // namespace darkroom
