#include "completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

bool is_shown(const FlagDefinition& flag) { return !flag.is_later && !flag.is_positional; }

bool takes_file(const FlagDefinition& flag) {
  return flag.value.kind == "path" || flag.value.kind == "uri" || flag.value.kind == "number_and_path";
}

std::string first_word(const std::string& name) { return name.substr(0, name.find(' ')); }

/// What may stand first: verbs, and the first words of verbs of two words; with what is said about them.
std::vector<std::pair<std::string, std::string>> first_words(const CommandLine& line) {
  std::vector<std::pair<std::string, std::string>> words;
  for (const VerbDefinition& verb : line.verbs()) {
    if (!verb.is_hidden() && verb.name().find(' ') == std::string::npos) {
      words.emplace_back(verb.name(), verb.summary());
    }
  }
  words.insert(words.end(), line.families().begin(), line.families().end());
  return words;
}

std::vector<const VerbDefinition*> family_members(const CommandLine& line, const std::string& family) {
  std::vector<const VerbDefinition*> members;
  for (const VerbDefinition& verb : line.verbs()) {
    if (verb.name().starts_with(family + " ")) {
      members.push_back(&verb);
    }
  }
  return members;
}

std::vector<std::string> flag_words(const CommandLine& line, const VerbDefinition& verb) {
  std::vector<std::string> words = {"--help"};
  for (const FlagDefinition* flag : line.flags_of(verb)) {
    if (is_shown(*flag)) {
      words.push_back(flag->name);
    }
  }
  return words;
}

/// Choices of the verb's positionals, such as the names of `bench`.
std::vector<std::string> positional_words(const VerbDefinition& verb) {
  std::vector<std::string> words;
  for (const FlagDefinition& flag : verb.flags()) {
    if (flag.is_positional) {
      words.insert(words.end(), flag.value.words.begin(), flag.value.words.end());
    }
  }
  return words;
}

constexpr std::string_view kBashHead = R"(# Completion of {0} for bash. Made by `{0} completion bash`: do not edit.
_{0}_words() {{
  mapfile -t COMPREPLY < <(compgen -W "$2" -- "$1")
}}
_{0}_files() {{
  compopt -o filenames 2>/dev/null # Only for files: a folder that is named like a verb must not get a slash.
  mapfile -t COMPREPLY < <(compgen "$2" -- "$1")
}}
_{0}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    _{0}_words "$word" "{1} --help --version"
    return
  fi
)";

constexpr std::string_view kBashFoot = R"(  esac
}}
complete -o bashdefault -F _{0} {0}
)";

std::string bash_words(const CommandLine& line, const std::vector<std::string>& words) {
  return fmt::format("_{}_words \"$word\" \"{}\"", line.program(), fmt::join(words, " "));
}

std::string bash_files(const CommandLine& line, const char* kind) { return fmt::format("_{}_files \"$word\" {}", line.program(), kind); }

std::string bash_verb(const CommandLine& line, const VerbDefinition& verb) {
  std::map<std::string, std::vector<std::string>> flags_by_reply;  // What to answer after these flags.
  for (const FlagDefinition* flag : line.flags_of(verb)) {
    if (!is_shown(*flag) || flag->value.max_values == 0) {
      continue;
    }
    if (!flag->value.words.empty()) {
      flags_by_reply[bash_words(line, flag->value.words)].push_back(flag->name);
    } else {
      flags_by_reply[takes_file(*flag)              ? bash_files(line, "-f")
                     : flag->value.kind == "folder" ? bash_files(line, "-d")
                                                    : ":"]
          .push_back(flag->name);
    }
  }
  std::string text = fmt::format("    \"{}\")\n      case \"$before\" in\n", verb.name());
  for (const auto& [reply, flags] : flags_by_reply) {
    text += fmt::format("        {}) {}; return ;;\n", fmt::join(flags, "|"), reply);
  }
  const std::vector<std::string> choices = positional_words(verb);
  return text + fmt::format("      esac\n      if [[ $word == -* ]]; then {}; else {}; fi ;;\n", bash_words(line, flag_words(line, verb)),
                            choices.empty() ? bash_files(line, "-f") : bash_words(line, choices));
}

std::string bash_script(const CommandLine& line) {
  std::vector<std::string> words;
  for (const auto& word : first_words(line)) {
    words.push_back(word.first);
  }
  std::string text = fmt::format(kBashHead, line.program(), fmt::join(words, " "));
  for (const auto& family : line.families()) {
    std::vector<std::string> seconds;
    for (const VerbDefinition* verb : family_members(line, family.first)) {
      seconds.push_back(verb->name().substr(family.first.size() + 1));
    }
    text += fmt::format("  if [ \"$verb\" = {} ]; then\n    if [ \"$COMP_CWORD\" -eq 2 ]; then\n", family.first);
    text += fmt::format("      {}\n      return\n    fi\n", bash_words(line, seconds));
    text += "    verb=\"$verb ${COMP_WORDS[2]}\"\n  fi\n";
  }
  text += "  case \"$verb\" in\n";
  for (const VerbDefinition& verb : line.verbs()) {
    if (!verb.is_hidden()) {
      text += bash_verb(line, verb);
    }
  }
  return text + fmt::format(kBashFoot, line.program());
}

// In single quotes; zsh's and fish's own characters escaped.
std::string quoted(const std::string& text, std::string_view escaped) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (escaped.find(c) != std::string_view::npos) {
      out += '\\';
    }
    out += c;
  }
  return out + "'";
}

std::string zsh_value(const FlagDefinition& flag) {
  if (!flag.value.words.empty()) {
    return fmt::format("({})", fmt::join(flag.value.words, " "));
  }
  return takes_file(flag) ? "_files" : flag.value.kind == "folder" ? "_files -/" : " ";
}

std::string zsh_arguments(const CommandLine& line, const VerbDefinition& verb) {
  constexpr std::string_view kEscaped = "[]:\\";
  std::string text = "_arguments \\\n";
  for (const FlagDefinition* flag : line.flags_of(verb)) {
    if (!is_shown(*flag)) {
      continue;
    }
    // _arguments' own syntax: '*' before a flag that may come again, [help], then :message:action a value.
    std::string spec = (flag->value.is_repeatable ? "*" : "") + flag->name;
    std::string help;
    for (const char c : flag->help) {
      help += kEscaped.find(c) == std::string_view::npos ? std::string(1, c) : "\\" + std::string(1, c);
    }
    spec += "[" + help + "]";
    for (int i = 0; i < std::min(flag->value.max_values, flag->value.min_values); ++i) {
      spec += ":value:" + zsh_value(*flag);
    }
    text += "        " + quoted(spec, "") + " \\\n";
  }
  const std::vector<std::string> choices = positional_words(verb);
  const std::string words = choices.empty() ? "*:file:_files" : fmt::format("*:word:({})", fmt::join(choices, " "));
  return text + "        '--help[print this]' \\\n        " + quoted(words, "") + "\n";
}

std::string zsh_cases(const CommandLine& line, const std::vector<const VerbDefinition*>& verbs, size_t prefix) {
  std::string text;
  for (const VerbDefinition* verb : verbs) {
    text += fmt::format("      {}) {}      ;;\n", verb->name().substr(prefix), zsh_arguments(line, *verb));
  }
  return text;
}

std::string zsh_list(const std::vector<std::pair<std::string, std::string>>& words) {
  std::string text;
  for (const auto& [word, summary] : words) {
    text += "      " + quoted(word + ":" + summary, "") + "\n";
  }
  return text;
}

std::string zsh_script(const CommandLine& line) {
  std::string text = fmt::format("#compdef {0}\n# Completion of {0} for zsh. Made by `{0} completion zsh`: do not edit.\n", line.program());
  for (const auto& [family, summary] : line.families()) {
    std::vector<std::pair<std::string, std::string>> words;
    for (const VerbDefinition* verb : family_members(line, family)) {
      words.emplace_back(verb->name().substr(family.size() + 1), verb->summary());
    }
    text +=
        fmt::format("_{}_{}() {{\n  if (( CURRENT == 2 )); then\n    local -a verbs=(\n{}    )\n", line.program(), family, zsh_list(words));
    text += "    _describe verb verbs\n    return\n  fi\n  shift words\n  (( CURRENT-- ))\n  case $words[1] in\n";
    text += zsh_cases(line, family_members(line, family), family.size() + 1) + "  esac\n}\n";
  }
  std::vector<const VerbDefinition*> verbs;
  for (const VerbDefinition& verb : line.verbs()) {
    if (!verb.is_hidden() && verb.name().find(' ') == std::string::npos) {
      verbs.push_back(&verb);
    }
  }
  text +=
      fmt::format("_{}() {{\n  if (( CURRENT == 2 )); then\n    local -a verbs=(\n{}    )\n", line.program(), zsh_list(first_words(line)));
  text += "    _describe verb verbs\n    return\n  fi\n  shift words\n  (( CURRENT-- ))\n  case $words[1] in\n" + zsh_cases(line, verbs, 0);
  for (const auto& family : line.families()) {
    text += fmt::format("      {1}) _{0}_{1} ;;\n", line.program(), family.first);
  }
  // Autoloaded, the file is the first call's body and must complete itself; sourced, it registers the function.
  constexpr std::string_view kFoot = R"(  esac
}}
if [ "$funcstack[1]" = _{0} ]; then
  _{0} "$@"
else
  compdef _{0} {0}
fi
)";
  return text + fmt::format(kFoot, line.program());
}

std::string fish_flag(const std::string& program, const std::string& condition, const FlagDefinition& flag) {
  std::string text = fmt::format("complete -c {} -n {} -l {} -d {}", program, quoted(condition, "\\"), flag.key(), quoted(flag.help, "\\"));
  if (flag.value.max_values == 0) {
    return text + "\n";
  }
  if (!flag.value.words.empty()) {
    return text + fmt::format(" -x -a {}\n", quoted(fmt::format("{}", fmt::join(flag.value.words, " ")), "\\"));
  }
  return text + (takes_file(flag) || flag.value.kind == "folder" ? " -r -F\n" : " -x\n");
}

std::string fish_script(const CommandLine& line) {
  const std::string& program = line.program();
  std::string text = fmt::format("# Completion of {0} for fish. Made by `{0} completion fish`: do not edit.\n", program);
  for (const auto& [word, summary] : first_words(line)) {
    text += fmt::format("complete -c {} -n __fish_use_subcommand -f -a {} -d {}\n", program, word, quoted(summary, "\\"));
  }
  for (const VerbDefinition& verb : line.verbs()) {
    if (verb.is_hidden()) {
      continue;
    }
    std::string condition = "__fish_seen_subcommand_from " + verb.name();
    if (const size_t space = verb.name().find(' '); space != std::string::npos) {
      const std::string first = "__fish_seen_subcommand_from " + first_word(verb.name());
      const std::string second = verb.name().substr(space + 1);
      text += fmt::format("complete -c {} -n {} -f -a {} -d {}\n", program, quoted(first, "\\"), second, quoted(verb.summary(), "\\"));
      condition = first + "; and __fish_seen_subcommand_from " + second;
    }
    if (const auto choices = positional_words(verb); !choices.empty()) {
      text += fmt::format("complete -c {} -n {} -f -a {}\n", program, quoted(condition, "\\"),
                          quoted(fmt::format("{}", fmt::join(choices, " ")), "\\"));
    }
    for (const FlagDefinition* flag : line.flags_of(verb)) {
      if (is_shown(*flag)) {
        text += fish_flag(program, condition, *flag);
      }
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> completion_shells() { return {"bash", "zsh", "fish"}; }

std::string completion_script(const CommandLine& line, const std::string& shell) {
  if (shell == "bash") {
    return bash_script(line);
  }
  if (shell == "zsh") {
    return zsh_script(line);
  }
  DARKROOM_CHECK(shell == "fish", "a completion for a shell that is not listed:", shell);
  return fish_script(line);
}

}  // namespace darkroom
