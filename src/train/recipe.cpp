#include "darkroom/train/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "darkroom/core/typing_mistakes.h"
#include "darkroom/core/utf8.h"
#include "darkroom/toml/parse_toml.h"
#include "recipe_fields.h"

namespace darkroom {
namespace {

using FieldValue = decltype(RecipeField::value);

std::string full_name(const RecipeField& field) { return fmt::format("{}.{}", field.section, field.key); }

Status unknown_key(const std::vector<RecipeField>& fields, const std::string& name) {
  const auto nearest =
      std::ranges::min_element(fields, {}, [&](const RecipeField& field) { return typing_mistakes(full_name(field), name); });
  return Status::invalid_argument(fmt::format("the recipe has no field '{}'; did you mean '{}'?", name, full_name(*nearest)));
}

std::string_view type_name(const FieldValue& value) {
  constexpr std::string_view kNames[] = {"true or false", "a whole number", "a number", "a text in quotes", "a list of texts"};
  return kNames[value.index()];
}

template <typename T>
bool assign(const toml::node& node, T* target) {
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    const auto* array = node.as_array();
    if (array == nullptr || !std::all_of(array->begin(), array->end(), [](const auto& item) { return item.is_string(); })) {
      return false;
    }
    target->clear();
    for (const auto& item : *array) {
      target->push_back(**item.as_string());
    }
    return true;
  } else if constexpr (std::is_same_v<T, double>) {
    const auto value = node.value<double>();  // Takes whole numbers, too.
    if (!value || node.is_boolean()) {
      return false;
    }
    *target = *value;
    return true;
  } else {
    const auto value = node.value_exact<T>();
    if (value) {
      *target = *value;
    }
    return value.has_value();
  }
}

Status set_field(const RecipeField& field, const toml::node& node) {
  if (std::visit([&](auto* target) { return assign(node, target); }, field.value)) {
    return {};
  }
  return Status::invalid_argument(fmt::format("the recipe's field '{}' must be {}, got:", full_name(field), type_name(field.value)),
                                  fmt::format("{}", (std::ostringstream() << toml::node_view<const toml::node>(node)).str()));
}

const RecipeField* find_field(const std::vector<RecipeField>& fields, std::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const RecipeField& field) { return full_name(field) == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      out += '\\';
      out += character;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += character;
    }
  }
  return out + '"';
}

std::string print_number(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string print_value(const FieldValue& value) {
  struct Printer {
    std::string operator()(const bool* flag) const { return *flag ? "true" : "false"; }
    std::string operator()(const int64_t* number) const { return fmt::format("{}", *number); }
    std::string operator()(const double* number) const { return print_number(*number); }
    std::string operator()(const std::string* text) const { return toml_text(*text); }
    std::string operator()(const std::vector<std::string>* texts) const {
      std::string out = "[";
      for (const auto& text : *texts) {
        out += (out.size() > 1 ? ", " : "") + toml_text(text);
      }
      return out + "]";
    }
  };
  return std::visit(Printer{}, value);
}

bool is_fixed(FieldRole role, const Recipe& recipe) {
  const bool has_pictures = !recipe.data.raw_path.empty();
  switch (role) {
    case FieldRole::kFree:
      return false;
    case FieldRole::kFixedForRun:
      return true;
    case FieldRole::kFixedForPictures:
      return has_pictures;
    case FieldRole::kFixedForEncoding:
      return has_pictures && recipe.objective.kind == "diffusion";
  }
  return true;
}

}  // namespace

Result<Recipe> parse_recipe(std::string_view text, std::string_view name) {
  DARKROOM_ASSIGN_OR_RETURN(const toml::table table, parse_toml(text, name));
  Recipe recipe;
  const auto fields = recipe_fields(recipe);
  for (const auto& [section, node] : table) {
    const auto* keys = node.as_table();
    if (keys == nullptr) {
      return unknown_key(fields, std::string(section.str())).with_context(name);
    }
    for (const auto& [key, value] : *keys) {
      const std::string full = fmt::format("{}.{}", section.str(), key.str());
      const RecipeField* field = find_field(fields, full);
      if (field == nullptr) {
        return unknown_key(fields, full).with_context(name);
      }
      if (auto status = set_field(*field, value); !status.is_ok()) {
        return status.with_context(name);
      }
    }
  }
  return recipe;
}

Result<Recipe> load_recipe(FileSystem& files, const std::string& path) {
  auto text = read_file(files, path);
  if (!text.is_ok()) {
    return Status::invalid_argument("cannot read the recipe; name a file such as recipes/tiny.toml:", text.status().message());
  }
  return parse_recipe(*text, path);
}

Status set_recipe_field(Recipe& recipe, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return Status::invalid_argument("--set takes section.key=value, got:", assignment);
  }
  const std::string name(assignment.substr(0, equals));
  const std::string value(assignment.substr(equals + 1));
  const auto fields = recipe_fields(recipe);
  const RecipeField* field = find_field(fields, name);
  if (field == nullptr) {
    return unknown_key(fields, name);
  }
  if (const auto [shown, is_changed] = replace_invalid_utf8(value); is_changed) {
    return Status::invalid_argument(fmt::format("the recipe's field '{}' must be UTF-8, got:", name), shown);
  }
  const bool is_text = std::holds_alternative<std::string*>(field->value);
  const bool bare = is_text && (value.empty() || value.front() != '"');
  auto table = parse_toml("value = " + (bare ? toml_text(value) : value), "--set " + name);
  if (!table.is_ok()) {
    return Status::invalid_argument(fmt::format("the recipe's field '{}' must be {}, got:", name, type_name(field->value)), value);
  }
  return set_field(*field, *table->get("value"));
}

Result<RecipeFieldKind> recipe_field_kind(std::string_view name) {
  Recipe recipe;
  const auto fields = recipe_fields(recipe);
  const RecipeField* field = find_field(fields, name);
  if (field == nullptr) {
    return unknown_key(fields, std::string(name));
  }
  return static_cast<RecipeFieldKind>(field->value.index());  // In the order of the variant.
}

Result<std::string> recipe_field_text(const Recipe& recipe, std::string_view name) {
  Recipe copy = recipe;
  const auto fields = recipe_fields(copy);
  const RecipeField* field = find_field(fields, name);
  if (field == nullptr) {
    return unknown_key(fields, std::string(name));
  }
  const auto* const* text = std::get_if<std::string*>(&field->value);
  return text != nullptr ? **text : print_value(field->value);
}

std::string recipe_to_toml(const Recipe& recipe) {
  Recipe copy = recipe;
  std::string out;
  std::string_view section;
  for (const auto& field : recipe_fields(copy)) {
    if (field.section != section) {
      out += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", field.section);
      section = field.section;
    }
    out += fmt::format("{} = {}\n", field.key, print_value(field.value));
  }
  return out;
}

nlohmann::ordered_json recipe_to_json(const Recipe& recipe) {
  Recipe copy = recipe;
  auto sections = nlohmann::ordered_json::object();
  for (const auto& field : recipe_fields(copy)) {
    std::visit([&](const auto* value) { sections[std::string(field.section)][std::string(field.key)] = *value; }, field.value);
  }
  return sections;
}

nlohmann::json recipe_agreement(const Recipe& recipe) {
  // What may differ between machines and changes no bit.
  constexpr std::string_view kOwn[] = {"model.path",         "data.path",       "data.raw_path",  "data.memory_bytes",
                                       "data.batches_ahead", "validation.path", "runtime.workers"};
  Recipe copy = recipe;
  auto agreement = nlohmann::json::object();
  for (const auto& field : recipe_fields(copy)) {
    const std::string name = full_name(field);
    if (std::find(std::begin(kOwn), std::end(kOwn), name) == std::end(kOwn)) {
      agreement[name] = print_value(field.value);
    }
  }
  agreement["validation.path is set"] = !recipe.validation.path.empty();  // All ranks take part in it.
  return agreement;
}

std::vector<std::string> conflicting_fields(const Recipe& now, const Recipe& before) {
  Recipe copies[] = {now, before};
  const auto is = recipe_fields(copies[0]);
  const auto was = recipe_fields(copies[1]);
  std::vector<std::string> conflicts;
  for (size_t i = 0; i < is.size(); ++i) {
    const std::string is_text = print_value(is[i].value);
    const std::string was_text = print_value(was[i].value);
    if (is_text != was_text && is_fixed(is[i].role, now)) {
      conflicts.push_back(fmt::format("{} (was {}, is {})", full_name(is[i]), was_text, is_text));
    }
  }
  return conflicts;
}

}  // namespace darkroom
