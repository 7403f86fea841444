#include "help_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace darkroom {
namespace {

constexpr size_t kWidth = 100;

/// Words at most kWidth wide, lines after the first indented.
std::string wrap(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t length = end - begin;
    if (column > indent && column + 1 + length > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(begin, length);
    column += length;
    begin = end + 1;
  }
  return out;
}

std::string entry(const std::string& head, const std::string& text, size_t indent) {
  const std::string padded = fmt::format("  {:<{}}", head, indent - 2);
  const std::string gap = padded.back() != ' ' ? "\n" + std::string(indent, ' ') : "";
  return padded + gap + wrap(text, indent) + "\n";
}

std::string flag_head(const FlagDefinition& flag) {
  const bool repeats = flag.value.max_values > 1 && flag.value.max_values == kManyValues;
  return flag.name + (flag.is_positional || flag.value.shown.empty() ? "" : " " + flag.value.shown) + (repeats ? "..." : "");
}

std::vector<std::string> groups_in_order(const std::vector<const FlagDefinition*>& flags) {
  std::vector<std::string> groups;
  for (const FlagDefinition* flag : flags) {
    if (!flag->is_later && !flag->is_positional && std::find(groups.begin(), groups.end(), flag->group) == groups.end()) {
      groups.push_back(flag->group);
    }
  }
  return groups;
}

constexpr size_t kFlagIndent = 30;
constexpr size_t kVerbIndent = 18;

}  // namespace

std::string value_note(const FlagDefinition& flag) {
  std::vector<std::string> notes;
  if (flag.value.max_values == 0) {
    return "";
  }
  std::string type = flag.value.unit;
  if (!flag.value.range.empty()) {
    type += (type.empty() ? "" : ", ") + flag.value.range;
  }
  if (!type.empty()) {
    notes.push_back(type);
  }
  const bool has_extra_words = flag.value.kind != "choice" && flag.value.kind != "device" && !flag.value.words.empty();
  if (has_extra_words) {
    notes.push_back("or " + fmt::format("{}", fmt::join(flag.value.words, ", ")));
  }
  if (flag.is_required) {
    notes.push_back(flag.unless.empty() ? "required" : "required without " + flag.unless);
  } else if (!flag.value.default_text.empty()) {
    notes.push_back("default " + flag.value.default_text);
  }
  return notes.empty() ? "" : "(" + fmt::format("{}", fmt::join(notes, "; ")) + ")";
}

std::string usage_line(const CommandLine& line, const VerbDefinition& verb) {
  std::string text = line.program() + " " + verb.name();
  for (const FlagDefinition& flag : verb.flags()) {
    if (flag.is_positional) {
      const std::string word = flag.name + (flag.value.max_values > 1 ? "..." : "");
      text += flag.is_required ? " " + word : " [" + word + "]";
    }
  }
  for (const FlagDefinition& flag : verb.flags()) {
    if (!flag.is_positional && flag.is_required) {
      text += " " + flag_head(flag);
    }
  }
  return text + " [flags]";
}

std::string verb_help(const CommandLine& line, const VerbDefinition& verb) {
  std::string text = fmt::format("{}\n\nusage: {}\n", wrap(verb.summary(), 0), usage_line(line, verb));
  const auto flags = line.flags_of(verb);
  bool has_positionals = false;
  for (const FlagDefinition* flag : flags) {
    if (flag->is_positional) {
      text += has_positionals ? "" : "\n";
      has_positionals = true;
      text += entry(flag_head(*flag), flag->help + (value_note(*flag).empty() ? "" : " " + value_note(*flag)), kFlagIndent);
    }
  }
  for (const std::string& group : groups_in_order(flags)) {
    text += "\n" + group + ":\n";
    for (const FlagDefinition* flag : flags) {
      if (!flag->is_later && !flag->is_positional && flag->group == group) {
        const std::string note = value_note(*flag);
        text += entry(flag_head(*flag), flag->help + (note.empty() ? "" : " " + note), kFlagIndent);
      }
    }
  }
  text += entry("-h, --help", "print this", kFlagIndent);
  if (!verb.examples().empty()) {
    text += "\nExamples:\n";
    for (const VerbExample& example : verb.examples()) {
      text += fmt::format("  # {}\n  {}\n", example.what, example.command);
    }
  }
  return text;
}

std::string family_help(const CommandLine& line, const std::string& family) {
  std::string text;
  for (const auto& [name, summary] : line.families()) {
    if (name == family) {
      text = fmt::format("{}\n\nusage: {} {} VERB [flags]\n\n", wrap(summary, 0), line.program(), family);
    }
  }
  for (const VerbDefinition& verb : line.verbs()) {
    if (verb.name().starts_with(family + " ")) {
      text += entry(verb.name().substr(family.size() + 1), verb.summary(), kVerbIndent);
    }
  }
  return text + fmt::format("\nrun `{} {} VERB --help` for a verb's flags\n", line.program(), family);
}

std::string program_help(const CommandLine& line) {
  std::string text = fmt::format("{}\n\nusage: {} VERB [flags]\n", wrap(line.summary(), 0), line.program());
  std::string group;
  for (const VerbDefinition& verb : line.verbs()) {
    if (verb.is_hidden()) {
      continue;
    }
    if (line.group_of(verb) != group) {
      group = line.group_of(verb);
      text += "\n" + group + ":\n";
    }
    text += entry(verb.name(), verb.summary(), kVerbIndent);
  }
  text += "\n" + entry("-h, --help", "print this, or a verb's flags and examples after its name", kVerbIndent);
  text += entry("--version", "print the version", kVerbIndent);
  return text + fmt::format("\nrun `{} VERB --help` for a verb's flags\n", line.program());
}

nlohmann::json definitions_json(const CommandLine& line) {
  nlohmann::json verbs = nlohmann::json::object();
  for (const VerbDefinition& verb : line.verbs()) {
    nlohmann::json flags = nlohmann::json::array();
    for (const FlagDefinition* flag : line.flags_of(verb)) {
      flags.push_back({{"name", flag->name},
                       {"kind", flag->value.kind},
                       {"shown", flag->value.shown},
                       {"unit", flag->value.unit},
                       {"default", flag->value.default_text},
                       {"range", flag->value.range},
                       {"words", flag->value.words},
                       {"later_words", flag->value.later},
                       {"group", flag->group},
                       {"help", flag->help},
                       {"positional", flag->is_positional},
                       {"required", flag->is_required},
                       {"only_with", flag->with},
                       {"later", flag->is_later},
                       {"accepted", flag->later_value},
                       {"repeatable", flag->value.is_repeatable},
                       {"min_values", flag->value.min_values},
                       {"max_values", flag->value.max_values}});
    }
    nlohmann::json examples = nlohmann::json::array();
    for (const VerbExample& example : verb.examples()) {
      examples.push_back({{"command", example.command}, {"what", example.what}});
    }
    verbs[verb.name()] = {{"summary", verb.summary()}, {"hidden", verb.is_hidden()}, {"flags", flags}, {"examples", examples}};
  }
  return {{"program", line.program()}, {"version", line.version()}, {"verbs", verbs}, {"later_verbs", line.later_verbs()}};
}

}  // namespace darkroom
