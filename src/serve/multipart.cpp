#include "multipart.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "darkroom/core/ascii_case.h"

namespace darkroom {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr size_t kLongestBoundary = 70;
constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";

bool is_letter_or_digit(char c) { return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z'); }
bool is_token_character(char c) { return is_letter_or_digit(c) || kTokenMarks.find(c) != std::string_view::npos; }
bool is_boundary_character(char c) { return is_letter_or_digit(c) || std::string_view("'()+_,-./:=? ").find(c) != std::string_view::npos; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

void skip_blanks(std::string_view& text) { text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size())); }

std::string_view take_token(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_token_character);
  const std::string_view token = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(token.size());
  return token;
}

/// A token, or a text in quotes in which a backslash stands before a quote or a backslash that is meant.
std::optional<std::string> take_value(std::string_view& text) {
  if (!text.starts_with('"')) {
    const std::string_view token = take_token(text);
    return token.empty() ? std::nullopt : std::optional(std::string(token));
  }
  std::string value;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return value;
    }
    const bool is_escape = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\');
    value += text[is_escape ? ++i : i];
  }
  return std::nullopt;
}

using Parameters = std::vector<std::pair<std::string, std::string>>;

/// "; name=value; other=\"a value\"", names in lower case; nothing for what is no such list, or names one of them twice.
std::optional<Parameters> read_parameters(std::string_view text) {
  Parameters parameters;
  std::set<std::string> names;
  for (skip_blanks(text); !text.empty(); skip_blanks(text)) {
    if (!text.starts_with(';')) {
      return std::nullopt;
    }
    text.remove_prefix(1);
    skip_blanks(text);
    std::string name = ascii_lower(std::string(take_token(text)));
    if (name.empty() || !text.starts_with('=')) {
      return std::nullopt;
    }
    text.remove_prefix(1);
    auto value = take_value(text);
    if (!value.has_value() || !names.insert(name).second) {
      return std::nullopt;
    }
    parameters.emplace_back(std::move(name), *std::move(value));
  }
  return parameters;
}

Status bad_part(size_t number, std::string_view why) {
  return Status::invalid_argument(fmt::format("the form's part cannot be read: {}; number:", why), number);
}

Status read_disposition(std::string_view value, size_t number, FormPart& part) {
  const std::string kind = ascii_lower(std::string(take_token(value)));
  const auto parameters = read_parameters(value);
  if (kind != "form-data" || !parameters.has_value()) {
    return bad_part(number, "its Content-Disposition must be form-data with a name");
  }
  bool has_name = false;
  for (const auto& [name, text] : *parameters) {
    if (name == "name*") {
      return bad_part(number, "its name must be in the parameter name");
    }
    if (name == "name") {
      has_name = true;
      part.name = text;
    }
    part.is_file |= name == "filename" || name == "filename*";
  }
  return has_name && !part.name.empty() ? Status::ok() : bad_part(number, "it has no name");
}

// The header of one part, without the empty line that ends it.
Status read_part_header(std::string_view header, size_t number, FormPart& part) {
  int num_dispositions = 0;
  while (!header.empty()) {
    const size_t end = std::min(header.find(kLineEnd), header.size());
    std::string_view line = header.substr(0, end);
    header.remove_prefix(std::min(end + kLineEnd.size(), header.size()));
    const std::string field = ascii_lower(std::string(take_token(line)));
    if (field.empty() || !line.starts_with(':') || line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) {
      return bad_part(number, "a line of its header is no field");
    }
    line.remove_prefix(1);
    skip_blanks(line);
    if (field == "content-disposition") {
      ++num_dispositions;
      DARKROOM_RETURN_IF_ERROR(read_disposition(line, number, part));
    } else if (field == "content-transfer-encoding") {
      const std::string coding = ascii_lower(std::string(take_token(line)));
      if (coding != "7bit" && coding != "8bit" && coding != "binary") {
        return bad_part(number, "its transfer encoding is not read");
      }
    }
  }
  return num_dispositions == 1 ? Status::ok() : bad_part(number, "it needs one Content-Disposition");
}

/// Takes the part off that follows a delimiter, and the delimiter that ends it.
Result<FormPart> take_form_part(std::string_view& body, size_t number, std::string_view delimiter, const FormLimits& limits) {
  body.remove_prefix(static_cast<size_t>(std::find_if_not(body.begin(), body.end(), is_blank) - body.begin()));
  if (!body.starts_with(kLineEnd)) {
    return bad_part(number, "its boundary ends in no line end");
  }
  const size_t header_end = body.substr(0, limits.max_part_header_bytes).find("\r\n\r\n");
  if (header_end == std::string_view::npos) {
    return bad_part(number, fmt::format("its header does not end within {} bytes", limits.max_part_header_bytes));
  }
  FormPart part;
  const size_t header_begin = std::min(header_end, kLineEnd.size());
  DARKROOM_RETURN_IF_ERROR(read_part_header(body.substr(header_begin, header_end - header_begin), number, part));
  body.remove_prefix(header_end + kLineEnd.size());  // What is left begins with the end of the empty line, as a delimiter may.
  const size_t end = body.find(delimiter);
  if (end == std::string_view::npos) {
    return bad_part(number, "no boundary ends it");
  }
  const size_t begin = std::min(kLineEnd.size(), end);
  part.body = body.substr(begin, end - begin);
  body.remove_prefix(end + delimiter.size());
  return part;
}

}  // namespace

Result<std::string> form_boundary(std::string_view content_type) {
  const size_t end = std::min(content_type.find(';'), content_type.size());
  std::string type = ascii_lower(std::string(content_type.substr(0, end)));
  type.erase(type.find_last_not_of(" \t") + 1);
  const auto parameters = read_parameters(content_type.substr(end));
  if (type == "multipart/form-data" && parameters.has_value()) {
    for (const auto& [name, value] : *parameters) {
      if (name == "boundary" && !value.empty() && value.size() <= kLongestBoundary && value.back() != ' ' &&
          std::all_of(value.begin(), value.end(), is_boundary_character)) {
        return value;
      }
    }
  }
  return Status::invalid_argument("a form's Content-Type must be multipart/form-data with a boundary of 1 to 70 characters, got:",
                                  content_type.substr(0, 2 * kLongestBoundary));
}

Result<std::vector<FormPart>> read_form(std::string_view body, std::string_view boundary, const FormLimits& limits) {
  const std::string delimiter = fmt::format("\r\n--{}", boundary);
  std::vector<FormPart> parts;
  if (!body.starts_with(std::string_view(delimiter).substr(kLineEnd.size()))) {
    return Status::invalid_argument("the form must begin with its boundary");
  }
  body.remove_prefix(delimiter.size() - kLineEnd.size());
  while (!body.starts_with("--")) {
    const size_t number = parts.size() + 1;
    if (number > limits.max_parts) {
      return Status::invalid_argument("a form may have so many parts:", limits.max_parts);
    }
    DARKROOM_ASSIGN_OR_RETURN(FormPart part, take_form_part(body, number, delimiter, limits));
    parts.push_back(std::move(part));
  }
  body.remove_prefix(2);
  if (body.find_first_not_of(" \t\r\n") != std::string_view::npos) {
    return Status::invalid_argument("the form goes on behind its last boundary; bytes:", body.size());
  }
  return parts;
}

}  // namespace darkroom
