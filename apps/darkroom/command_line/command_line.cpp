#include "command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "darkroom/core/shown_uri.h"
#include "given_flags.h"
#include "help_text.h"
#include "nearest_name.h"

namespace darkroom {
namespace {

bool asks_for_help(const std::string& word) { return word == "--help" || word == "-h"; }

Status take_values(const FlagDefinition& flag, const std::vector<std::string>& values) {
  if (flag.is_later) {
    if (!flag.later_value.empty() && values.size() == 1 && values.front() == flag.later_value) {
      return Status::ok();
    }
    return Status::invalid_argument(flag.later_value.empty()
                                        ? flag.name + " is not built yet"
                                        : fmt::format("{} is not built yet, only its default {} is taken", flag.name, flag.later_value));
  }
  const Status status = flag.value.take(values);
  return status.is_ok() ? status : Status::invalid_argument(flag.name + " " + status.message());
}

std::string setting_text(const FlagDefinition& flag, const std::vector<std::string>& values, std::string_view where) {
  std::string text = flag.name;
  for (const std::string& value : values) {
    text += " " + quote_value(without_uri_secrets(value));
  }
  return fmt::format("{} ({})", text, where);
}

Status take_all(const std::vector<const FlagDefinition*>& flags, const GivenFlags& given, std::string_view where, Call& call) {
  for (const FlagDefinition* flag : flags) {  // In the order of the help, so that of several mistakes always the same is told.
    const auto values = given.find(flag);
    if (values != given.end()) {
      DARKROOM_RETURN_IF_ERROR(take_values(*flag, values->second));
      call.settings.push_back(setting_text(*flag, values->second, where));
      call.given[flag->name] = values->second;
    }
  }
  return Status::ok();
}

// `switch = false` of a configuration file gives none.
bool is_given(const GivenFlags& given, const std::string& name) {
  return std::any_of(given.begin(), given.end(), [&](const auto& entry) {
    return entry.first->name == name && (entry.second.empty() || entry.second.back() != "false");
  });
}

Status check_required(const std::string& verb, const std::vector<const FlagDefinition*>& flags, const GivenFlags& given) {
  for (const FlagDefinition* flag : flags) {
    if (flag->is_required && !given.contains(flag) && (flag->unless.empty() || !is_given(given, flag->unless))) {
      return Status::invalid_argument(fmt::format("{} needs {}{}: {}", verb, flag->name,
                                                  flag->is_positional || flag->value.shown.empty() ? "" : " " + flag->value.shown,
                                                  flag->help));
    }
  }
  return Status::ok();
}

// What is said and would do nothing was meant otherwise.
Status check_companions(const std::vector<const FlagDefinition*>& flags, const GivenFlags& given) {
  for (const FlagDefinition* flag : flags) {
    if (!flag->with.empty() && given.contains(flag) && !is_given(given, flag->with)) {
      return Status::invalid_argument(fmt::format("{} needs {}, too: {}", flag->name, flag->with, flag->help));
    }
  }
  return Status::ok();
}

}  // namespace

CommandLine::CommandLine(std::string program, std::string summary, std::string version)
    : program_(std::move(program)), summary_(std::move(summary)), version_(std::move(version)), shared_definition_("", "") {
  shared_definition_.group("Every verb");
  shared_definition_.flag("--config", value::path(shared_.config_path, "FILE.toml", "none"),
                          "flags as TOML, one `flag = value` a line; flags of the command line win");
  shared_definition_.flag("--json-summary", value::path(shared_.summary_path, "PATH", "none"),
                          "write the closing summary as JSON; of a job that failed or was stopped it has the counts and an `error`");
  shared_definition_.flag("--quiet", value::toggle(shared_.quiet), "say warnings and errors only");
  shared_definition_.flag("--verbose", value::toggle(shared_.verbose), "say more: settings, stages");
}

VerbDefinition& CommandLine::add_verb(std::string name, std::string summary) {
  groups_.push_back(group_);
  return verbs_.emplace_back(std::move(name), std::move(summary));
}

const std::string& CommandLine::group_of(const VerbDefinition& verb) const {
  for (size_t i = 0; i < verbs_.size(); ++i) {
    if (&verbs_[i] == &verb) {
      return groups_[i];
    }
  }
  return group_;
}

std::vector<const FlagDefinition*> CommandLine::flags_of(const VerbDefinition& verb) const {
  std::vector<const FlagDefinition*> flags;
  for (const auto* definition : {&verb, &shared_definition_}) {
    for (const FlagDefinition& flag : definition->flags()) {
      flags.push_back(&flag);
    }
  }
  return flags;
}

const VerbDefinition* CommandLine::find_verb(std::string_view name) const {
  const auto found = std::find_if(verbs_.begin(), verbs_.end(), [&](const VerbDefinition& verb) { return verb.name() == name; });
  return found == verbs_.end() ? nullptr : &*found;
}

std::optional<Refusal> CommandLine::unknown_verb(const std::vector<std::string>& arguments) const {
  const std::string one = arguments[0];
  const std::string two = arguments.size() > 1 ? one + " " + arguments[1] : one;
  const std::string hint = fmt::format("run `{} --help` for the verbs", program_);
  for (const std::string& name : later_verbs_) {
    if (name == one || name == two) {
      return Refusal{fmt::format("`{} {}` is not built yet", program_, name), hint};
    }
  }
  const auto family = std::find_if(families_.begin(), families_.end(), [&](const auto& candidate) { return candidate.first == one; });
  std::vector<std::string> names;
  for (const VerbDefinition& verb : verbs_) {
    const size_t space = verb.name().find(' ');
    if (family != families_.end()) {
      if (verb.name().substr(0, space) == one) {
        names.push_back(verb.name().substr(space + 1));
      }
    } else if (!verb.is_hidden()) {
      names.push_back(verb.name().substr(0, space));
    }
  }
  if (family != families_.end()) {
    const std::string known = fmt::format("{}", fmt::join(names, ", "));
    const std::string family_hint = fmt::format("run `{} {} --help`", program_, one);
    if (arguments.size() < 2) {
      return Refusal{fmt::format("{} needs one of: {}", one, known), family_hint};
    }
    return Refusal{fmt::format("{} has no {}, it has {}{}", one, quote_value(arguments[1]), known, suggestion(arguments[1], names)),
                   family_hint};
  }
  if (one.starts_with("-")) {
    return Refusal{fmt::format("the verb comes first: {} VERB {} ...", program_, quote_value(one)), hint};
  }
  return Refusal{fmt::format("there is no verb {}{}", quote_value(one), suggestion(one, names)), hint};
}

std::optional<Refusal> CommandLine::choose_verb(const std::vector<std::string>& arguments, size_t& num_words, Call& call) const {
  if (arguments.empty()) {
    return Refusal{fmt::format("{} needs a verb", program_), fmt::format("run `{} --help` for the verbs", program_)};
  }
  const std::string& first = arguments[0];
  num_words = 1;
  call.verb = find_verb(first);
  if (call.verb == nullptr && arguments.size() > 1) {
    num_words = 2;
    call.verb = find_verb(first + " " + arguments[1]);
  }
  if (call.verb != nullptr) {
    return std::nullopt;
  }
  if (asks_for_help(first)) {
    call.text = program_help(*this);
    return std::nullopt;
  }
  if (first == "--version") {
    call.text = version_ + "\n";
    return std::nullopt;
  }
  const bool is_family = std::any_of(families_.begin(), families_.end(), [&](const auto& family) { return family.first == first; });
  if (is_family && arguments.size() > 1 && asks_for_help(arguments[1])) {
    call.text = family_help(*this, first);
    return std::nullopt;
  }
  return unknown_verb(arguments);
}

std::optional<Refusal> CommandLine::read(const std::vector<std::string>& arguments, Call& call) {
  size_t num_words = 0;
  if (auto refusal = choose_verb(arguments, num_words, call); refusal || call.verb == nullptr) {
    return refusal;
  }
  const std::string& name = call.verb->name();
  const auto flags = flags_of(*call.verb);
  const auto read_flags = [&]() -> Status {
    DARKROOM_ASSIGN_OR_RETURN(Arguments sorted,
                              sort_arguments(name, flags, {arguments.begin() + static_cast<std::ptrdiff_t>(num_words), arguments.end()}));
    if (sorted.asks_for_help) {
      call.text = verb_help(*this, *call.verb);
      call.verb = nullptr;
      return Status::ok();
    }
    DARKROOM_RETURN_IF_ERROR(take_all(flags, sorted.given, "command line", call));
    if (!shared_.config_path.empty()) {
      std::vector<std::string> names;
      for (const VerbDefinition& verb : verbs_) {
        names.push_back(verb.name());
      }
      names.insert(names.end(), later_verbs_.begin(), later_verbs_.end());
      const auto read = read_config_file(shared_.config_path, name, names, flags);
      if (!read.is_ok()) {
        return read.status().with_context("--config");
      }
      GivenFlags configured = *read;
      std::erase_if(configured, [&](const auto& item) { return sorted.given.contains(item.first); });
      const Status status = take_all(flags, configured, shared_.config_path, call);
      if (!status.is_ok()) {
        return status.with_context("--config " + shared_.config_path);
      }
      sorted.given.merge(configured);
    }
    DARKROOM_RETURN_IF_ERROR(check_required(name, flags, sorted.given));
    return check_companions(flags, sorted.given);
  };
  const Status status = read_flags();
  if (status.is_ok()) {
    return std::nullopt;
  }
  return Refusal{status.message(), fmt::format("run `{} {} --help` for the flags", program_, name)};
}

}  // namespace darkroom
