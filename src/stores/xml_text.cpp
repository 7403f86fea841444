#include "xml_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

constexpr std::array<std::pair<std::string_view, char>, 5> kXmlEntities = {
    {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}}};

bool is_xml_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool begins_xml_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' || static_cast<unsigned char>(c) >= 0x80;
}

bool goes_on_xml_name(char c) { return begins_xml_name(c) || (c >= '0' && c <= '9') || c == '-' || c == '.'; }

Status xml_failure(std::string_view what, size_t at) {
  return Status::corrupt_data("the XML reply is not understood: " + std::string(what) + " (byte):", at);
}

/// Valid UTF-8 without control characters, which XML 1.0 does not allow even in comments.
Status check_xml_characters(std::string_view document) {
  for (size_t at = 0; at < document.size();) {
    const auto byte = static_cast<unsigned char>(document[at]);
    if (byte < 0x20 && !is_xml_space(document[at])) {
      return xml_failure("a control character", at);
    }
    if (byte < 0x80) {
      ++at;
      continue;
    }
    const Utf8Character character = first_character(document.substr(at));
    if (!character.is_valid) {
      return xml_failure("bytes that are no UTF-8", at);
    }
    at += character.num_bytes;
  }
  return Status::ok();
}

/// Reads one document from front to back; `at_` only grows. Each read_... and skip_... begins at what it is named after.
class XmlDocumentReader {
 public:
  explicit XmlDocumentReader(std::string_view document) : document_(document) {}

  /// Begins at byte `start`, behind a byte order mark.
  Result<XmlElement> read_document(size_t start) {
    at_ = start;
    skip_spaces();
    if (is_next("<?xml") && at_ + 5 < document_.size() && is_xml_space(document_[at_ + 5])) {
      DARKROOM_RETURN_IF_ERROR(read_declaration());
    }
    DARKROOM_RETURN_IF_ERROR(skip_between_elements());
    XmlElement root;
    DARKROOM_RETURN_IF_ERROR(read_element(root, 1));
    DARKROOM_RETURN_IF_ERROR(skip_between_elements());
    if (at_ < document_.size()) {
      return fail("it goes on after its root element");
    }
    return root;
  }

 private:
  Status fail(std::string_view what) const { return xml_failure(what, at_); }
  Status fail_inside(std::string_view what, const std::string& name) const { return fail(fmt::format("{} <{}>", what, name)); }
  bool is_next(std::string_view text) const { return document_.substr(at_).starts_with(text); }
  bool is_at_end() const { return at_ == document_.size(); }

  bool skip_spaces() {
    const size_t before = at_;
    while (!is_at_end() && is_xml_space(document_[at_])) {
      ++at_;
    }
    return at_ > before;
  }

  Status skip_past(std::string_view end, std::string_view what) {
    const size_t found = document_.find(end, at_);
    if (found == std::string_view::npos) {
      return fail(fmt::format("it ends inside a {}", what));
    }
    at_ = found + end.size();
    return Status::ok();
  }

  Status skip_comment() {
    at_ += 4;
    return skip_past("-->", "comment");
  }

  Status skip_between_elements() {
    while (true) {
      skip_spaces();
      if (is_next("<!--")) {
        DARKROOM_RETURN_IF_ERROR(skip_comment());
      } else if (is_next("<?")) {
        DARKROOM_RETURN_IF_ERROR(skip_past("?>", "processing instruction"));
      } else {
        return Status::ok();
      }
    }
  }

  Status read_declaration() {
    at_ += 5;
    while (true) {
      skip_spaces();
      if (is_next("?>")) {
        at_ += 2;
        return Status::ok();
      }
      const size_t start = at_;
      std::string name;
      std::string value;
      DARKROOM_RETURN_IF_ERROR(read_attribute(name, value));
      value = ascii_lower(std::move(value));
      if (name == "encoding" && value != "utf-8" && value != "us-ascii") {
        at_ = start;
        return fail("it is in another encoding than UTF-8");
      }
    }
  }

  Status read_name(std::string& name) {
    const size_t start = at_;
    if (is_at_end() || !begins_xml_name(document_[at_])) {
      return fail("a name is missing");
    }
    while (!is_at_end() && goes_on_xml_name(document_[at_])) {
      ++at_;
    }
    if (at_ - start > kMaxXmlNameBytes) {
      at_ = start;
      return fail("a name is too long");
    }
    name = document_.substr(start, at_ - start);
    return Status::ok();
  }

  Status read_attribute(std::string& name, std::string& value) {
    DARKROOM_RETURN_IF_ERROR(read_name(name));
    skip_spaces();
    if (!is_next("=")) {
      return fail("an attribute has no value");
    }
    ++at_;
    skip_spaces();
    if (!is_next("\"") && !is_next("'")) {
      return fail("an attribute's value has no quotes");
    }
    const char quote = document_[at_++];
    while (!is_at_end() && document_[at_] != quote) {
      if (document_[at_] == '<') {
        return fail("a < in an attribute's value");
      }
      DARKROOM_RETURN_IF_ERROR(read_characters(quote, value));
    }
    if (is_at_end()) {
      return fail("it ends inside an attribute's value");
    }
    ++at_;
    return Status::ok();
  }

  /// One reference, or the text up to the next "<", "&" or `end`. Line ends are read as \n (XML 1.0, section 2.11).
  Status read_characters(char end, std::string& text) {
    if (document_[at_] == '&') {
      return read_reference(text);
    }
    for (; !is_at_end() && document_[at_] != '<' && document_[at_] != '&' && document_[at_] != end; ++at_) {
      append_character(text);
    }
    return Status::ok();
  }

  void append_character(std::string& text) const {
    if (document_[at_] != '\r') {
      text += document_[at_];
    } else if (!document_.substr(at_ + 1).starts_with('\n')) {
      text += '\n';
    }
  }

  Status read_reference(std::string& text) {
    constexpr size_t kLongest = 12;  // &#x0010FFFF; and no unbounded search for the semicolon.
    const std::string_view ahead = document_.substr(at_, kLongest);
    const size_t semicolon = ahead.find(';');
    if (semicolon == std::string_view::npos) {
      return fail("a & that begins no reference");
    }
    const std::string_view name = ahead.substr(1, semicolon - 1);
    if (name.starts_with('#')) {
      DARKROOM_RETURN_IF_ERROR(append_numbered(name.substr(1), text));
    } else {
      const auto entity = std::find_if(kXmlEntities.begin(), kXmlEntities.end(), [&](const auto& known) { return known.first == name; });
      if (entity == kXmlEntities.end()) {
        return fail("a reference to an unknown entity");
      }
      text += entity->second;
    }
    at_ += semicolon + 1;
    return Status::ok();
  }

  Status append_numbered(std::string_view digits, std::string& text) const {
    const int base = digits.starts_with('x') ? 16 : 10;
    digits.remove_prefix(base == 16 ? 1 : 0);
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size();
    if (!is_number || number == 0 || number > 0x10FFFF || (number >= 0xD800 && number <= 0xDFFF)) {
      return fail("a reference to no character");
    }
    append_utf8(text, number);
    return Status::ok();
  }

  /// Past the start tag; `is_empty` where it is an empty-element tag.
  Status read_start_tag(XmlElement& element, bool& is_empty) {
    ++at_;
    DARKROOM_RETURN_IF_ERROR(read_name(element.name));
    while (true) {
      const bool spaces = skip_spaces();
      is_empty = is_next("/>");
      if (is_empty || is_next(">")) {
        at_ += is_empty ? 2 : 1;
        return Status::ok();
      }
      if (is_at_end() || !spaces) {
        return fail_inside(is_at_end() ? "it ends inside the tag" : "an unexpected character inside the tag", element.name);
      }
      std::string name;
      std::string value;
      DARKROOM_RETURN_IF_ERROR(read_attribute(name, value));
    }
  }

  Status read_element(XmlElement& element, int depth) {
    if (!is_next("<")) {
      return fail(is_at_end() ? "there is no root element" : "text outside of the root element");
    }
    if (is_next("<!")) {
      return fail("a document type or another declaration, which no store sends");
    }
    if (depth > kMaxXmlDepth) {
      return fail("its elements nest too deep");
    }
    if (++num_elements_ > kMaxXmlElements) {
      return fail("it has too many elements");
    }
    bool is_empty = false;
    DARKROOM_RETURN_IF_ERROR(read_start_tag(element, is_empty));
    return is_empty ? Status::ok() : read_content(element, depth);
  }

  /// Past the end tag.
  Status read_content(XmlElement& element, int depth) {
    while (!is_next("</")) {
      if (is_at_end()) {
        return fail_inside("it ends inside the element", element.name);
      }
      if (document_[at_] != '<') {
        DARKROOM_RETURN_IF_ERROR(read_characters('<', element.text));
      } else if (is_next("<!--")) {
        DARKROOM_RETURN_IF_ERROR(skip_comment());
      } else if (is_next("<?")) {
        DARKROOM_RETURN_IF_ERROR(skip_past("?>", "processing instruction"));
      } else if (is_next("<![CDATA[")) {
        DARKROOM_RETURN_IF_ERROR(read_character_data(element.text));
      } else {
        element.children.emplace_back();
        DARKROOM_RETURN_IF_ERROR(read_element(element.children.back(), depth + 1));
      }
    }
    return read_end_tag(element);
  }

  Status read_character_data(std::string& text) {
    at_ += 9;
    const size_t end = document_.find("]]>", at_);
    if (end == std::string_view::npos) {
      return fail("it ends inside a CDATA section");
    }
    for (; at_ < end; ++at_) {
      append_character(text);
    }
    at_ += 3;
    return Status::ok();
  }

  Status read_end_tag(const XmlElement& element) {
    const size_t start = at_;
    at_ += 2;
    std::string name;
    DARKROOM_RETURN_IF_ERROR(read_name(name));
    skip_spaces();
    if (!is_next(">")) {
      return fail_inside("the end tag has no end of", element.name);
    }
    if (name != element.name) {
      at_ = start;
      return fail_inside("another end tag than that of", element.name);
    }
    ++at_;
    return Status::ok();
  }

  std::string_view document_;
  size_t at_ = 0;
  size_t num_elements_ = 0;
};

}  // namespace

Result<XmlElement> parse_xml(std::string_view document) {
  if (document.size() > kMaxXmlBytes) {
    return Status::corrupt_data("the XML reply is too long (largest, bytes):", kMaxXmlBytes, document.size());
  }
  DARKROOM_RETURN_IF_ERROR(check_xml_characters(document));
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const bool marked = document.starts_with(kByteOrderMark);
  return XmlDocumentReader(document).read_document(marked ? kByteOrderMark.size() : 0);
}

std::string escape_xml(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    const auto entity = std::find_if(kXmlEntities.begin(), kXmlEntities.end(), [&](const auto& known) { return known.second == c; });
    if (entity != kXmlEntities.end()) {
      escaped += fmt::format("&{};", entity->first);
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
      escaped += fmt::format("&#{};", static_cast<int>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace darkroom
