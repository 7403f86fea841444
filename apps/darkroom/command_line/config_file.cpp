#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "darkroom/files/file_system.h"
#include "darkroom/toml/parse_toml.h"
#include "given_flags.h"
#include "nearest_name.h"

namespace darkroom {
namespace {

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a text in quotes";
    case toml::node_type::integer:
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return text->get();
  }
  if (const auto* integer = node.as_integer()) {
    return fmt::format("{}", integer->get());
  }
  if (const auto* number = node.as_floating_point()) {
    return fmt::format("{}", number->get());
  }
  return node.as_boolean()->get() ? "true" : "false";
}

bool takes_numbers(const ValueDefinition& value) {
  constexpr std::string_view kNumeric[] = {"integer", "number", "bytes", "seconds", "minutes", "percent"};
  return value.may_be_number || std::find(std::begin(kNumeric), std::end(kNumeric), value.kind) != std::end(kNumeric);
}

// What TOML type a value of this kind has, for messages.
std::string_view wanted_type(const ValueDefinition& value) {
  return value.max_values == 0  ? "true or false"
         : value.may_be_number  ? "a number, or a text in quotes"
         : takes_numbers(value) ? "a number, or a text with a unit"
                                : "a text in quotes";
}

bool fits(const ValueDefinition& value, const toml::node& node) {
  if (value.max_values == 0) {
    return node.is_boolean();
  }
  return node.is_string() || (takes_numbers(value) && node.is_number());
}

/// Reads the keys of one table into `given`.
class TableReader {
 public:
  TableReader(const std::string& path, const std::string& verb, const std::vector<const FlagDefinition*>& flags)
      : path_(path), verb_(verb), flags_(flags) {}

  Status read(const toml::table& table, GivenFlags& given) const {
    for (const auto& [key, node] : table) {
      DARKROOM_RETURN_IF_ERROR(read_key(std::string(key.str()), node, given));
    }
    return Status::ok();
  }

  Status read_key(const std::string& key, const toml::node& node, GivenFlags& given) const;

 private:
  Status unknown_key(const std::string& key, const toml::node& node) const {
    std::vector<std::string> keys;
    for (const FlagDefinition* flag : flags_) {
      if (!flag->is_positional && !flag->is_later && flag->name != "--config") {
        keys.push_back(flag->key());
      }
    }
    return failure(node, fmt::format("{} has no setting {}{}", verb_, quote_value(key), suggestion(key, keys)));
  }

  Status failure(const toml::node& node, const std::string& what) const {
    return Status::invalid_argument(fmt::format("{}, line {}: {}", path_, node.source().begin.line, what));
  }

  const std::string& path_;
  const std::string& verb_;
  const std::vector<const FlagDefinition*>& flags_;
};

Status TableReader::read_key(const std::string& key, const toml::node& node, GivenFlags& given) const {
  const auto found = std::find_if(flags_.begin(), flags_.end(), [&](const FlagDefinition* flag) { return flag->key() == key; });
  if (found == flags_.end()) {
    return unknown_key(key, node);
  }
  const FlagDefinition& flag = **found;
  if (flag.is_positional || flag.name == "--config") {
    return failure(node, fmt::format("{} is given on the command line, not in a configuration file", key));
  }
  std::vector<std::string> values;
  const bool is_list = node.is_array();
  if (is_list && flag.value.max_values < 2 && !flag.value.is_repeatable) {
    return failure(node, fmt::format("{} must be {}, not a list", key, wanted_type(flag.value)));
  }
  const auto take = [&](const toml::node& item) {
    // A pair such as number and path holds both types.
    const bool is_text_or_number = item.is_string() || item.is_number();
    const bool is_good = flag.is_later                          ? is_text_or_number || item.is_boolean()
                         : flag.value.kind == "number_and_path" ? is_text_or_number
                                                                : fits(flag.value, item);
    if (!is_good) {
      return failure(item, fmt::format("{} must be {}, not {}", key, wanted_type(flag.value), type_name(item)));
    }
    values.push_back(text_of(item));
    return Status::ok();
  };
  if (is_list) {
    for (const toml::node& item : *node.as_array()) {
      DARKROOM_RETURN_IF_ERROR(take(item));
    }
  } else {
    DARKROOM_RETURN_IF_ERROR(take(node));
  }
  if (!flag.is_later && static_cast<int>(values.size()) < flag.value.min_values) {
    return failure(node, fmt::format("{} needs {} values", key, flag.value.min_values));
  }
  given[&flag] = std::move(values);
  return Status::ok();
}

// The table of a verb: [download], or [models.init].
const toml::table* table_of(const toml::table& root, const std::string& verb) {
  const size_t space = verb.find(' ');
  const toml::table* table = root[verb.substr(0, space)].as_table();
  return space == std::string::npos || table == nullptr ? table : (*table)[verb.substr(space + 1)].as_table();
}

// The second words of the verbs of a family: init, check, ... of models; none for what is no family.
std::vector<std::string> members_of(const std::vector<std::string>& verbs, const std::string& family) {
  std::vector<std::string> members;
  for (const std::string& verb : verbs) {
    if (verb.starts_with(family + " ")) {
      members.push_back(verb.substr(family.size() + 1));
    }
  }
  return members;
}

// A family's table holds tables of its verbs and nothing else: whatever stood there otherwise would be read by no verb.
Status check_family_table(const std::string& path, const std::string& family, const std::vector<std::string>& members,
                          const toml::table& table) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const bool is_member = std::find(members.begin(), members.end(), name) != members.end();
    if (is_member && node.is_table()) {
      continue;
    }
    const std::string what = node.is_table() ? fmt::format("{} has no {}, it has {}{}", family, quote_value(name), fmt::join(members, ", "),
                                                           suggestion(name, members))
                                             : fmt::format("[{}] holds tables of its verbs only, such as [{}.{}], not the setting {}",
                                                           family, family, members.front(), quote_value(name));
    return Status::invalid_argument(fmt::format("{}, line {}: {}", path, node.source().begin.line, what));
  }
  return Status::ok();
}

}  // namespace

Result<GivenFlags> read_config_file(const std::string& path, const std::string& verb, const std::vector<std::string>& verbs,
                                    const std::vector<const FlagDefinition*>& flags) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string content, read_file(local_files(), path));
  DARKROOM_ASSIGN_OR_RETURN(const toml::table root, parse_toml(content, path));
  GivenFlags given;
  const TableReader reader(path, verb, flags);
  for (const auto& [key, node] : root) {  // Tables of verbs are for those verbs.
    const std::string name(key.str());
    const toml::table* table = node.as_table();
    const std::vector<std::string> members = members_of(verbs, name);
    if (table != nullptr && !members.empty()) {
      DARKROOM_RETURN_IF_ERROR(check_family_table(path, name, members, *table));
    } else if (table == nullptr || std::find(verbs.begin(), verbs.end(), name) == verbs.end()) {
      DARKROOM_RETURN_IF_ERROR(reader.read_key(name, node, given));
    }
  }
  if (const toml::table* table = table_of(root, verb)) {
    DARKROOM_RETURN_IF_ERROR(reader.read(*table, given));  // The verb's own table wins over the keys at the top.
  }
  return given;
}

}  // namespace darkroom
