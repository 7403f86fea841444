#include "value_definition.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "darkroom/files/local_path.h"
#include "nearest_name.h"

namespace darkroom {
namespace {

/// What a flag keeps of a given value. The message of an error goes on after the flag's name.
using Read = Result<std::string> (*)(const std::string&);

Result<std::string> read_any(const std::string& value) { return value; }

Result<std::string> read_text(const std::string& value) {
  return value.empty() ? Result<std::string>(Status::invalid_argument("must not be empty")) : value;
}

// No file has a NUL in its name; a configuration file can hold one.
Result<std::string> read_uri(const std::string& value) {
  DARKROOM_RETURN_IF_ERROR(read_text(value).status());
  return value.find('\0') == std::string::npos
             ? value
             : Result<std::string>(Status::invalid_argument("must not hold the character NUL, got:", quote_value(value)));
}

// An address would be the path of a folder "s3:".
Result<std::string> read_path(const std::string& value) {
  DARKROOM_RETURN_IF_ERROR(read_uri(value).status());
  return local_path(value);
}

ValueDefinition one_text(std::string& target, std::string kind, std::string shown, std::string default_text, Read read) {
  ValueDefinition definition{.kind = std::move(kind), .shown = std::move(shown)};
  definition.default_text = target.empty() ? std::move(default_text) : target;
  definition.take = [target = &target, read](const std::vector<std::string>& values) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(*target, read(values.back()));
    return Status::ok();
  };
  return definition;
}

ValueDefinition many_texts(std::vector<std::string>& target, std::string kind, std::string shown, Read read) {
  ValueDefinition definition{.kind = std::move(kind), .shown = std::move(shown)};
  definition.default_text = fmt::format("{}", fmt::join(target, " "));
  definition.max_values = kManyValues;
  definition.is_repeatable = true;
  definition.take = [target = &target, read](const std::vector<std::string>& values) -> Status {
    std::vector<std::string> kept(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      DARKROOM_ASSIGN_OR_RETURN(kept[i], read(values[i]));
    }
    *target = std::move(kept);
    return Status::ok();
  };
  return definition;
}

ScalarValue<double> real(double& target, std::string kind, std::string shown, Result<double> (*parse)(std::string_view)) {
  return ScalarValue<double>(target, std::move(kind), std::move(shown), parse, [](double value) { return format_number(value); });
}

bool is_device(std::string_view text) {
  if (text == "auto" || text == "cpu" || text == "cuda") {
    return true;
  }
  constexpr std::string_view kPrefix = "cuda:";
  const std::string_view index = text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : std::string_view();
  return !index.empty() && index.size() <= 3 && std::all_of(index.begin(), index.end(), [](char c) { return c >= '0' && c <= '9'; });
}

ValueDefinition switch_to(bool& target, bool value) {
  ValueDefinition definition{.kind = "switch", .shown = "", .default_text = target == value ? "on" : "off"};
  definition.min_values = 0;
  definition.max_values = 0;
  definition.take = [target = &target, value](const std::vector<std::string>& values) -> Status {
    if (values.back() != "true" && values.back() != "false") {
      return Status::invalid_argument("is a switch and takes no value, got:", quote_value(values.back()));
    }
    *target = values.back() == "true" ? value : !value;
    return Status::ok();
  };
  return definition;
}

}  // namespace

namespace value {

ScalarValue<double> number(double& target) { return real(target, "number", "X", parse_number); }
ScalarValue<double> percent(double& target) { return real(target, "percent", "PERCENT", parse_percent).least(0).most(100).unit("percent"); }
ScalarValue<double> seconds(double& target) { return real(target, "seconds", "SECONDS", parse_seconds).unit("seconds"); }
ScalarValue<double> minutes(double& target) { return real(target, "minutes", "MINUTES", parse_minutes).unit("minutes"); }

ValueDefinition choice_of(std::vector<std::string> names, std::vector<std::string> later, size_t current,
                          std::function<void(size_t)> keep) {
  ValueDefinition definition{.kind = "choice", .shown = fmt::format("{}", fmt::join(names, "|"))};
  definition.words = names;
  definition.later = later;
  definition.default_text = current < names.size() ? names[current] : "";
  definition.take = [names = std::move(names), later = std::move(later),
                     keep = std::move(keep)](const std::vector<std::string>& values) -> Status {
    const std::string& value = values.back();
    const auto found = std::find(names.begin(), names.end(), value);
    if (found != names.end()) {
      keep(static_cast<size_t>(found - names.begin()));
      return Status::ok();
    }
    if (std::find(later.begin(), later.end(), value) != later.end()) {
      return Status::invalid_argument(fmt::format("{} is not built yet; it takes {} as yet", value, fmt::join(names, ", ")));
    }
    return Status::invalid_argument(fmt::format("must be {}{}, got:", names.size() == 1 ? "" : "one of ", fmt::join(names, ", ")),
                                    quote_value(value) + suggestion(value, names));
  };
  return definition;
}

ValueDefinition choice(std::string& target, std::vector<std::string> names, std::vector<std::string> later) {
  const auto current = static_cast<size_t>(std::find(names.begin(), names.end(), target) - names.begin());
  return choice_of(names, std::move(later), current, [target = &target, names](size_t index) { *target = names[index]; });
}

ValueDefinition text(std::string& target, std::string shown, std::string empty_name) {
  ValueDefinition definition = one_text(target, "text", std::move(shown), empty_name, read_text);
  if (!empty_name.empty()) {
    definition.words = {empty_name};
    definition.take = [take = definition.take, target = &target, empty_name](const std::vector<std::string>& values) {
      DARKROOM_RETURN_IF_ERROR(take(values));
      if (*target == empty_name) {
        target->clear();
      }
      return Status::ok();
    };
  }
  return definition;
}

ValueDefinition text_or_number(ValueDefinition definition) {
  definition.may_be_number = true;
  return definition;
}

ValueDefinition free_text(std::string& target, std::string shown) { return one_text(target, "text", std::move(shown), "", read_any); }

ValueDefinition path(std::string& target, std::string shown, std::string default_text) {
  return one_text(target, "path", std::move(shown), std::move(default_text), read_path);
}
ValueDefinition folder(std::string& target, std::string shown, std::string default_text) {
  return one_text(target, "folder", std::move(shown), std::move(default_text), read_path);
}
ValueDefinition uri(std::string& target, std::string shown, std::string default_text) {
  return one_text(target, "uri", std::move(shown), std::move(default_text), read_uri);
}

ValueDefinition texts(std::vector<std::string>& target, std::string shown) {
  return many_texts(target, "text", std::move(shown), read_text);
}
ValueDefinition uris(std::vector<std::string>& target, std::string shown) { return many_texts(target, "uri", std::move(shown), read_uri); }
ValueDefinition paths(std::vector<std::string>& target, std::string shown) {
  return many_texts(target, "path", std::move(shown), read_path);
}
ValueDefinition free_texts(std::vector<std::string>& target, std::string shown) {
  return many_texts(target, "text", std::move(shown), read_any);
}
ValueDefinition repeated_texts(std::vector<std::string>& target, std::string shown) {
  ValueDefinition definition = texts(target, std::move(shown));
  definition.max_values = 1;
  return definition;
}

ValueDefinition picture_size(int& width, int& height) {
  ValueDefinition definition{.kind = "size", .shown = "WxH", .unit = "pixels"};
  definition.default_text = width > 0 && height > 0 ? fmt::format("{}x{}", width, height) : "the model's";
  definition.take = [width = &width, height = &height](const std::vector<std::string>& values) -> Status {
    const std::string& value = values.back();
    const size_t cross = value.find('x');
    int sides[2] = {0, 0};
    for (int i = 0; i < 2 && cross != std::string::npos; ++i) {
      const auto side = parse_integer<int, parse_count>(i == 0 ? value.substr(0, cross) : value.substr(cross + 1));
      sides[i] = side.is_ok() ? *side : 0;
    }
    if (sides[0] < 1 || sides[1] < 1) {
      return Status::invalid_argument("must be WIDTHxHEIGHT in pixels, such as 512x512, got:", quote_value(value));
    }
    *width = sides[0];
    *height = sides[1];
    return Status::ok();
  };
  return definition;
}

ValueDefinition device(std::string& target, bool later_gpu) {
  ValueDefinition definition{.kind = "device", .shown = later_gpu ? "auto|cpu" : "auto|cpu|cuda[:I]", .default_text = target};
  definition.words = later_gpu ? std::vector<std::string>{"auto", "cpu"} : std::vector<std::string>{"auto", "cpu", "cuda"};
  definition.take = [target = &target, later_gpu](const std::vector<std::string>& values) -> Status {
    const std::string& value = values.back();
    if (!is_device(value)) {
      return Status::invalid_argument("must be auto, cpu, cuda or cuda:I, got:", quote_value(value));
    }
    if (later_gpu && value.starts_with("cuda")) {
      return Status::invalid_argument(value + " is not built yet for this verb; it runs on the cpu as yet");
    }
    *target = value;
    return Status::ok();
  };
  return definition;
}

ValueDefinition number_and_path(int& number, std::string& path, std::string shown) {
  ValueDefinition definition{.kind = "number_and_path", .shown = std::move(shown), .default_text = "none"};
  definition.min_values = 2;
  definition.max_values = 2;
  definition.take = [number = &number, path = &path](const std::vector<std::string>& values) -> Status {
    DARKROOM_RETURN_IF_ERROR(ValueDefinition(count(*number).least(1).most(9999)).take({values.at(0)}));
    DARKROOM_ASSIGN_OR_RETURN(*path, read_path(values.at(1)));
    return Status::ok();
  };
  return definition;
}

ValueDefinition toggle(bool& target) { return switch_to(target, true); }
ValueDefinition toggle_off(bool& target) { return switch_to(target, false); }

}  // namespace value

}  // namespace darkroom
