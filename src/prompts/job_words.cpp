#include "job_words.h"

namespace darkroom {

Result<FieldValue> toml_value(const toml::node& node) {
  if (const auto whole = node.value_exact<int64_t>()) {
    return *whole >= 0 ? FieldValue(static_cast<uint64_t>(*whole)) : FieldValue(static_cast<double>(*whole));
  }
  if (const auto number = node.value_exact<double>()) {
    return FieldValue(*number);
  }
  if (const auto* text = node.as_string()) {
    return FieldValue(text->get());
  }
  return Status::invalid_argument("must be a number or a text in quotes, got:", shown_toml(node));
}

// A text without places, its doubled braces single.
Result<std::string> literal_text(std::string_view text) {
  DARKROOM_ASSIGN_OR_RETURN(const PromptTemplate parsed, PromptTemplate::parse(text));
  if (!parsed.names().empty()) {
    return Status::invalid_argument(
        fmt::format("has a place {{{0}}}, which only prompts may have; write {{{{{0}}}}} for the text itself", parsed.names().front()));
  }
  std::string literal = parsed.fill({});
  if (literal.size() > kMostPromptBytes) {
    return Status::invalid_argument(fmt::format("has more than {} bytes:", kMostPromptBytes), literal.size());
  }
  return literal;
}

const PromptStyle* find_style(TomlFields& fields, const std::string& key, const std::string& name, const StylesByName& styles) {
  const auto found = styles.find(name);
  if (found == styles.end() && name != kNoStyle) {
    fields.fail(key, unknown_name("the style", name, styles));
  }
  return found == styles.end() ? nullptr : &found->second;
}

}  // namespace darkroom
