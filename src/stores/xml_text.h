#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

// The XML that an object store answers with comes from outside: everything about it is bounded.
inline constexpr size_t kMaxXmlBytes = 5'000'000;
inline constexpr int kMaxXmlDepth = 8;
inline constexpr size_t kMaxXmlElements = 100'000;  ///< Ten times a full page of a listing; an empty element costs 4 bytes of text only.
inline constexpr size_t kMaxXmlNameBytes = 128;

/// One element. Its attributes are checked and dropped; the name keeps its prefix.
struct XmlElement {
  std::string name;
  std::string text;  ///< All text that stands directly in the element, joined, references replaced.
  std::vector<XmlElement> children;
};

/// The root element of a document in UTF-8 (XML 1.0, fifth edition, without a document type). Takes linear time.
/// Accepted and dropped: a byte order mark, white space before the declaration (S3 sends some to keep a slow request's connection
/// alive), the declaration, comments, processing instructions. CDATA sections are text. References are the five predefined ones and
/// &#N; &#xN; of any character but U+0000 and surrogates: more than XML 1.0 allows, because S3 writes the control characters of a
/// key like that.
/// Errors: kCorruptData, naming the byte (from 0): above one of the limits, a document type, another encoding than UTF-8, bytes
/// that are no UTF-8, control characters, an unknown reference, tags that do not match, a document that ends too early or goes on
/// after its root.
Result<XmlElement> parse_xml(std::string_view document);

/// `text` as the text of an element: parse_xml gives back the same bytes. REQUIRES: valid UTF-8 without U+0000.
std::string escape_xml(std::string_view text);

}  // namespace darkroom
