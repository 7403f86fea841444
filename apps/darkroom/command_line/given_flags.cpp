#include "given_flags.h"

#include <CLI/CLI.hpp>

#include <fmt/format.h>
#include <algorithm>

#include "nearest_name.h"

namespace darkroom {
namespace {

const FlagDefinition* find_flag(const std::vector<const FlagDefinition*>& flags, std::string_view name) {
  const auto found = std::find_if(flags.begin(), flags.end(), [&](const FlagDefinition* flag) { return flag->name == name; });
  return found == flags.end() ? nullptr : *found;
}

std::vector<std::string> flag_names(const std::vector<const FlagDefinition*>& flags) {
  std::vector<std::string> names = {"--help"};
  for (const FlagDefinition* flag : flags) {
    if (!flag->is_positional && !flag->is_later) {
      names.push_back(flag->name);
    }
  }
  return names;
}

Status unknown_flag(const std::string& verb, const std::vector<const FlagDefinition*>& flags, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  return Status::invalid_argument(fmt::format("{} has no flag {}{}", verb, quote_value(name), suggestion(name, flag_names(flags))));
}

std::string with_shown(const FlagDefinition& flag) { return flag.value.shown.empty() ? flag.name : flag.name + " " + flag.value.shown; }

/// The arguments as CLI11 shall see them: --flag=value of a known flag as two words, since it would read an empty value as none.
struct Words {
  std::vector<std::string> flags_and_positionals;
  std::vector<std::string> behind_mark;  // After `--`: positionals, whatever they look like.
};

Result<Words> split_words(const std::vector<const FlagDefinition*>& flags, const std::vector<std::string>& arguments) {
  Words words;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      words.behind_mark.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    const size_t equals = argument.find('=');
    const FlagDefinition* flag = argument.starts_with("--") ? find_flag(flags, argument.substr(0, equals)) : nullptr;
    const bool takes_value = flag != nullptr && flag->value.min_values > 0;
    if (takes_value && equals != std::string::npos) {
      words.flags_and_positionals.push_back(flag->name);
      words.flags_and_positionals.push_back(argument.substr(equals + 1));
      continue;
    }
    words.flags_and_positionals.push_back(argument);
    if (!takes_value || flag->is_later) {
      continue;
    }
    for (int j = 0; j < flag->value.min_values; ++j) {
      ++i;
      if (i >= arguments.size() || arguments[i] == "--") {
        return Status::invalid_argument(
            fmt::format("{} needs {}: {}", flag->name, flag->value.min_values == 1 ? "a value" : "two values", with_shown(*flag)));
      }
      if (find_flag(flags, arguments[i]) != nullptr) {
        return Status::invalid_argument(fmt::format("{} needs a value, but the flag {} follows it; write {}={} if that is the value",
                                                    flag->name, arguments[i], flag->name, arguments[i]));
      }
      words.flags_and_positionals.push_back(arguments[i]);
    }
  }
  return words;
}

CLI::Option* add_to_parser(CLI::App& parser, const FlagDefinition& flag) {
  constexpr auto kTakeAll = CLI::MultiOptionPolicy::TakeAll;  // Too many are told by us.
  if (flag.is_later) {
    return parser.add_option(flag.name)->multi_option_policy(kTakeAll)->expected(0, kManyValues)->allow_extra_args(false);
  }
  if (flag.value.max_values == 0) {
    return parser.add_flag(flag.name)->multi_option_policy(kTakeAll);
  }
  // Without extra arguments CLI11 leaves a value in brackets alone, and a finite maximum still takes several values.
  return parser.add_option(flag.name)
      ->multi_option_policy(kTakeAll)
      ->expected(flag.value.min_values, flag.value.max_values)
      ->allow_extra_args(false);
}

/// Hands words to the positionals in their order.
Status place_positionals(const std::string& verb, const std::vector<const FlagDefinition*>& flags, const std::vector<std::string>& words,
                         GivenFlags& given) {
  size_t next = 0;
  int num_positionals = 0;
  for (const FlagDefinition* flag : flags) {
    if (!flag->is_positional) {
      continue;
    }
    ++num_positionals;
    for (int i = 0; i < flag->value.max_values && next < words.size(); ++i) {
      given[flag].push_back(words[next++]);
    }
  }
  if (next == words.size()) {
    return Status::ok();
  }
  if (num_positionals == 0) {
    return Status::invalid_argument(fmt::format("{} takes nothing but flags, got:", verb), quote_value(words[next]));
  }
  return Status::invalid_argument(fmt::format("{} takes {} beside its flags; one too many is:", verb,
                                              num_positionals == 1 ? "one word" : fmt::format("{} words", num_positionals)),
                                  quote_value(words[next]));
}

/// CLI11's part: which word is a flag, a flag's value or a positional.
Status parse_words(CLI::App& parser, const std::string& verb, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back.
  try {
    parser.parse(std::move(words));
  } catch (const CLI::RequiredError&) {
    return Status::ok();  // Told by us, after --config has been read.
  } catch (const CLI::ParseError& error) {
    return Status::internal(fmt::format("{}: this is a bug of darkroom: the arguments cannot be sorted, please report:", verb),
                            error.what());
  }
  return Status::ok();
}

}  // namespace

Result<Arguments> sort_arguments(const std::string& verb, const std::vector<const FlagDefinition*>& flags,
                                 const std::vector<std::string>& arguments) {
  Arguments sorted;
  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  sorted.asks_for_help = std::any_of(arguments.begin(), mark, [](const std::string& word) { return word == "--help" || word == "-h"; });
  if (sorted.asks_for_help) {
    return sorted;
  }
  DARKROOM_ASSIGN_OR_RETURN(const Words words, split_words(flags, arguments));
  CLI::App parser;
  parser.set_help_flag();
  parser.allow_extras();
  std::vector<std::pair<const FlagDefinition*, CLI::Option*>> options;
  std::vector<const CLI::Option*> positionals;
  const auto is_given = [&](const std::string& name) {
    return std::ranges::find(words.flags_and_positionals, name) != words.flags_and_positionals.end();
  };
  for (const FlagDefinition* flag : flags) {
    if (!flag->is_positional) {
      options.emplace_back(flag, add_to_parser(parser, *flag));
    } else if (flag->value.max_values == 1) {
      // Required ones stop a list of values before them: `--metadata a b OUT`.
      const bool is_needed = flag->is_required && !is_given(flag->unless) && positionals.size() >= words.behind_mark.size();
      positionals.push_back(parser.add_option(flag->name)->expected(1)->allow_extra_args(false)->required(is_needed));
    }
  }
  DARKROOM_RETURN_IF_ERROR(parse_words(parser, verb, words.flags_and_positionals));
  std::vector<std::string> free_words;
  for (const CLI::Option* positional : positionals) {
    free_words.insert(free_words.end(), positional->results().begin(), positional->results().end());
  }
  for (const std::string& word : parser.remaining()) {
    if (word.size() > 1 && word.front() == '-') {
      return unknown_flag(verb, flags, word);
    }
    free_words.push_back(word);
  }
  free_words.insert(free_words.end(), words.behind_mark.begin(), words.behind_mark.end());
  for (const auto& [flag, option] : options) {
    if (option->count() > 0) {
      sorted.given[flag] = option->results();
      const size_t most = static_cast<size_t>(std::max(flag->value.max_values, 1));
      if (!flag->value.is_repeatable && flag->value.max_values > 0 && option->results().size() > most) {
        return Status::invalid_argument(fmt::format("{} is given more than once", flag->name));
      }
    }
  }
  DARKROOM_RETURN_IF_ERROR(place_positionals(verb, flags, free_words, sorted.given));
  return sorted;
}

}  // namespace darkroom
