#include "man_page.h"

#include <fmt/format.h>

#include "help_text.h"

namespace darkroom {
namespace {

// Text that roff prints as it is: no requests, no escapes, hyphens that can be copied.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return !out.empty() && (out.front() == '.' || out.front() == '\'') ? "\\&" + out : out;
}

std::string roff_flag(const FlagDefinition& flag) {
  std::string head = "\\fB" + roff(flag.name) + "\\fR";
  if (!flag.is_positional && !flag.value.shown.empty()) {
    head += " \\fI" + roff(flag.value.shown) + "\\fR";
  }
  const std::string note = value_note(flag);
  return fmt::format(".TP\n{}{}\n{}\n", head, flag.value.max_values == kManyValues ? "..." : "",
                     roff(flag.help + (note.empty() ? "" : " " + note)));
}

std::string roff_verb(const CommandLine& line, const VerbDefinition& verb) {
  std::string text = fmt::format(".SS {}\n{}\n.PP\n.nf\n{}\n.fi\n", roff(verb.name()), roff(verb.summary()), roff(usage_line(line, verb)));
  for (const FlagDefinition& flag : verb.flags()) {
    if (!flag.is_later) {
      text += roff_flag(flag);
    }
  }
  for (const VerbExample& example : verb.examples()) {
    text += fmt::format(".PP\n{}:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(example.what), roff(example.command));
  }
  return text;
}

constexpr std::string_view kExitCodes = R"(.SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
the job failed; the message says why, what is safe and how to go on
.TP
.B 2
refused from flags or configuration alone
.TP
.B 3
finished, but too many rows failed
.TP
.BR 130 ", " 143
stopped by SIGINT or SIGTERM after committing what was complete; the same command goes on from there
.SH ENVIRONMENT
.TP
.B NO_COLOR
when it is set and not empty, nothing is coloured
)";

}  // namespace

std::string man_page(const CommandLine& line) {
  std::string name = line.program();
  std::string text = fmt::format(".TH {} 1 \"\" \"{} {}\" \"User Commands\"\n", roff(name), roff(name), roff(line.version()));
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(line.summary()));
  text += fmt::format(".SH SYNOPSIS\n.B {}\n.I VERB\n[flags]\n", roff(name));
  text +=
      ".SH DESCRIPTION\nFlags override \\fB\\-\\-config\\fR, which overrides defaults. Counts may be written as 10k or 1e6, sizes as 50MB "
      "or 64KiB, times as 500ms or 2min.\n.SH VERBS\n";
  for (const VerbDefinition& verb : line.verbs()) {
    if (!verb.is_hidden()) {
      text += roff_verb(line, verb);
    }
  }
  text += ".SH FLAGS OF EVERY VERB\n";
  if (!line.verbs().empty()) {
    const VerbDefinition& any = line.verbs().front();
    const auto flags = line.flags_of(any);
    for (size_t i = any.flags().size(); i < flags.size(); ++i) {
      text += roff_flag(*flags[i]);
    }
  }
  return text + std::string(kExitCodes);
}

}  // namespace darkroom
