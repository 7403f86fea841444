#include "self_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "completion.h"
#include "darkroom/core/nested_text.h"
#include "help_text.h"
#include "man_page.h"

namespace darkroom {
namespace {

struct HelpFlags {
  std::vector<std::string> verb;
  bool json = false;
  bool parse = false;
};

nlohmann::json parse_line(const CommandLineMaker& make, const std::string& text) {
  const auto arguments = parse_json(text);
  if (!arguments.is_array() || !std::all_of(arguments.begin(), arguments.end(), [](const auto& word) { return word.is_string(); })) {
    return {{"exit_code", 2}, {"message", "not a JSON list of texts"}, {"hint", "give one list a line: [\"inspect\", \"--help\"]"}};
  }
  const auto line = make();
  Call call;
  const auto refusal = line->read(arguments.get<std::vector<std::string>>(), call);
  if (refusal) {
    return {{"exit_code", 2}, {"message", refusal->message}, {"hint", refusal->hint}};
  }
  return {{"exit_code", 0},
          {"verb", call.verb == nullptr ? "" : call.verb->name()},
          {"text", call.text},
          {"settings", call.settings},
          {"given", call.given}};
}

Result<int> run_help(const CommandLine& line, const CommandLineMaker& make, const HelpFlags& flags) {
  if (flags.json) {
    DARKROOM_RETURN_IF_ERROR(print_text(definitions_json(line).dump(1) + "\n"));
    return 0;
  }
  if (flags.parse) {
    for (std::string text; std::getline(std::cin, text);) {
      DARKROOM_RETURN_IF_ERROR(print_text(parse_line(make, text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
    }
    return 0;
  }
  std::vector<std::string> arguments = flags.verb;
  arguments.emplace_back("--help");
  Call call;
  const auto refusal = make()->read(arguments, call);
  if (refusal) {
    return Status::invalid_argument(refusal->message);
  }
  DARKROOM_RETURN_IF_ERROR(print_text(call.text));
  return 0;
}

}  // namespace

Status print_text(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Status::unavailable("cannot write to the standard output");
  }
  return Status::ok();
}

void add_self_description(CommandLine& line, const CommandLineMaker& make) {
  const auto shell = std::make_shared<std::string>();  // Shared by the flags and the action, as below.
  VerbDefinition& completion = line.add_verb("completion", "completion of verbs, flags and values for a shell, to the standard output");
  completion.positional("SHELL", value::choice(*shell, completion_shells()), "bash, zsh or fish").required();
  completion.example(fmt::format("{} completion bash > ~/.local/share/bash-completion/completions/{}", line.program(), line.program()),
                     "for the bash of this account");
  completion.run([shell, &line](VerbContext&) -> Result<int> {
    DARKROOM_RETURN_IF_ERROR(print_text(completion_script(line, *shell)));
    return 0;
  });

  VerbDefinition& man = line.add_verb("man", "the manual page, to the standard output");
  man.example(fmt::format("{} man | man -l -", line.program()), "read it");
  man.run([&line](VerbContext&) -> Result<int> {
    DARKROOM_RETURN_IF_ERROR(print_text(man_page(line)));
    return 0;
  });

  const auto flags = std::make_shared<HelpFlags>();
  VerbDefinition& help = line.add_verb("help", "print the help of a verb");
  help.positional("VERB", value::texts(flags->verb, "VERB"), "the verb to explain; without one, the program");
  help.flag("--json", value::toggle(flags->json), "all definitions of flags, for programs");
  help.flag("--parse", value::toggle(flags->parse), "read command lines (a JSON list a line) and say what becomes of each");
  help.hide();
  help.run([flags, make, &line](VerbContext&) { return run_help(line, make, *flags); });
}

}  // namespace darkroom
