#include "stores/xml_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "darkroom/core/utf8.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

std::string text_of_root(std::string_view document) {
  const auto root = parse_xml(document);
  return root.is_ok() ? root->text : root.status().to_string();
}

/// The message without its fixed beginning; "" where the document was accepted.
std::string refusal(std::string_view document) {
  const auto root = parse_xml(document);
  if (root.is_ok()) {
    return "";
  }
  EXPECT_EQ(root.status().code(), StatusCode::kCorruptData);
  constexpr std::string_view kBeginning = "the XML reply is not understood: ";
  const std::string& message = root.status().message();
  return message.starts_with(kBeginning) ? message.substr(kBeginning.size()) : message;
}

std::string text_repeated(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

TEST(XmlText, reads_elements_texts_and_children) {
  const auto root = parse_xml(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a xmlns='http://x/' b = \"1 &lt; 2\"><k>one</k>x<e/><k c='>'>two</k\n>y</a >\n");
  ASSERT_TRUE(root.is_ok()) << root.status().to_string();
  EXPECT_EQ(root->name, "a");
  EXPECT_EQ(root->text, "xy");
  ASSERT_EQ(root->children.size(), 3);
  EXPECT_EQ(root->children[0].name + root->children[0].text, "kone");
  EXPECT_EQ(root->children[1].name + root->children[1].text, "e");
  EXPECT_EQ(root->children[2].name + root->children[2].text, "ktwo");
}

TEST(XmlText, replaces_references) {
  EXPECT_EQ(text_of_root("<a>&lt;&gt;&amp;&quot;&apos;</a>"), "<>&\"'");
  EXPECT_EQ(text_of_root("<a>&#65;&#x42;&#x1F600;&#228;&#xE4;&#x0010FFFF;</a>"), "AB\U0001F600ää\U0010FFFF");
  EXPECT_EQ(text_of_root("<a>&amp;lt;</a>"), "&lt;");     // Once, not twice.
  EXPECT_EQ(text_of_root("<a>&#1;&#13;</a>"), "\x01\r");  // What S3 writes for a key with control characters.
}

TEST(XmlText, reads_line_ends_as_newlines) { EXPECT_EQ(text_of_root("<a>1\r\n2\r3\n4<![CDATA[\r\n]]></a>"), "1\n2\n3\n4\n"); }

TEST(XmlText, skips_comments_instructions_and_reads_cdata) {
  EXPECT_EQ(text_of_root("<!-- < & -- --><?p <x> ?><a>1<!--</a>-->2<?q </a>?>3<![CDATA[<b>&amp;]]]></a><!--z--><?r?> \n"), "123<b>&amp;]");
}

TEST(XmlText, white_space_or_a_byte_order_mark_may_come_first) {
  EXPECT_EQ(text_of_root("\xEF\xBB\xBF<a>1</a>"), "1");
  EXPECT_EQ(text_of_root(" \r\n\t <?xml version='1.0'?><a>1</a>"), "1");
  EXPECT_EQ(text_of_root("<?xml version='1.0' encoding='us-ascii' standalone='yes' ?><a>1</a>"), "1");
  EXPECT_EQ(text_of_root("<?xml-stylesheet href='x'?><a>1</a>"), "1");
}

TEST(XmlText, refuses_what_is_malformed_with_its_place) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "there is no root element (byte): 0"},
      {"  ", "there is no root element (byte): 2"},
      {"<?xml version='1.0'?>", "there is no root element (byte): 21"},
      {"hello", "text outside of the root element (byte): 0"},
      {"<a/>x", "it goes on after its root element (byte): 4"},
      {"<a/><b/>", "it goes on after its root element (byte): 4"},
      {"<a>", "it ends inside the element <a> (byte): 3"},
      {"<a><b></a>", "another end tag than that of <b> (byte): 6"},
      {"<a></A>", "another end tag than that of <a> (byte): 3"},
      {"<a></a b>", "the end tag has no end of <a> (byte): 7"},
      {"<1/>", "a name is missing (byte): 1"},
      {"< a/>", "a name is missing (byte): 1"},
      {"<a></>", "a name is missing (byte): 5"},
      {"<a!/>", "an unexpected character inside the tag <a> (byte): 2"},
      {"<a / >", "a name is missing (byte): 3"},
      {"<a b='1'c='2'/>", "an unexpected character inside the tag <a> (byte): 8"},
      {"<a b/>", "an attribute has no value (byte): 4"},
      {"<a b=1/>", "an attribute's value has no quotes (byte): 5"},
      {"<a b='<'/>", "a < in an attribute's value (byte): 6"},
      {"<a b='&x;'/>", "a reference to an unknown entity (byte): 6"},
      {"<a b='1", "it ends inside an attribute's value (byte): 7"},
      {"<a ", "it ends inside the tag <a> (byte): 3"},
      {"<a>&nbsp;</a>", "a reference to an unknown entity (byte): 3"},
      {"<a>&;</a>", "a reference to an unknown entity (byte): 3"},
      {"<a>&LT;</a>", "a reference to an unknown entity (byte): 3"},
      {"<a>a & b</a>", "a & that begins no reference (byte): 5"},
      {"<a>&thisnameistoolong;</a>", "a & that begins no reference (byte): 3"},
      {"<a>&#;</a>", "a reference to no character (byte): 3"},
      {"<a>&#x;</a>", "a reference to no character (byte): 3"},
      {"<a>&#0;</a>", "a reference to no character (byte): 3"},
      {"<a>&#-1;</a>", "a reference to no character (byte): 3"},
      {"<a>&#12a;</a>", "a reference to no character (byte): 3"},
      {"<a>&#X41;</a>", "a reference to no character (byte): 3"},
      {"<a>&#xD800;</a>", "a reference to no character (byte): 3"},
      {"<a>&#xDFFF;</a>", "a reference to no character (byte): 3"},
      {"<a>&#x110000;</a>", "a reference to no character (byte): 3"},
      {"<a>&#999999999;</a>", "a reference to no character (byte): 3"},
      {"<a><!-- </a>", "it ends inside a comment (byte): 7"},
      {"<a><?p </a>", "it ends inside a processing instruction (byte): 3"},
      {"<a><![CDATA[ </a>", "it ends inside a CDATA section (byte): 12"},
      {"<a><!ELEMENT x></a>", "a document type or another declaration, which no store sends (byte): 3"},
      {"<!DOCTYPE a><a/>", "a document type or another declaration, which no store sends (byte): 0"},
      {"<a/><!DOCTYPE a>", "it goes on after its root element (byte): 4"},
      {"<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "it is in another encoding than UTF-8 (byte): 20"},
      {"<?xml version?><a/>", "an attribute has no value (byte): 13"},
  };
  for (const auto& [document, want] : cases) {
    EXPECT_EQ(refusal(document), want) << document;
  }
}

TEST(XmlText, refuses_bytes_that_are_no_text) {
  EXPECT_EQ(refusal("<a>\xff</a>"), "bytes that are no UTF-8 (byte): 3");
  EXPECT_EQ(refusal("<a>ä\xc3</a>"), "bytes that are no UTF-8 (byte): 5");
  EXPECT_EQ(refusal("<a>\xed\xa0\x80</a>"), "bytes that are no UTF-8 (byte): 3");
  EXPECT_EQ(refusal("<a><!--\xc0\x80--></a>"), "bytes that are no UTF-8 (byte): 7");
  EXPECT_EQ(refusal(std::string("<a>\0</a>", 8)), "a control character (byte): 3");
  EXPECT_EQ(refusal("<a b='\x1b'/>"), "a control character (byte): 6");
}

TEST(XmlText, bounds_depth_elements_names_and_size) {
  const auto nested = [](int depth) {
    return text_repeated("<a>", static_cast<size_t>(depth)) + text_repeated("</a>", static_cast<size_t>(depth));
  };
  EXPECT_EQ(refusal(nested(kMaxXmlDepth)), "");
  EXPECT_EQ(refusal(nested(kMaxXmlDepth + 1)), "its elements nest too deep (byte): 24");
  EXPECT_EQ(refusal(text_repeated("<a>", 1'000'000)), "its elements nest too deep (byte): 24");
  EXPECT_EQ(refusal("<r>" + text_repeated("<a/>", kMaxXmlElements - 1) + "</r>"), "");
  EXPECT_EQ(refusal("<r>" + text_repeated("<a/>", kMaxXmlElements) + "</r>"),
            fmt::format("it has too many elements (byte): {}", 3 + 4 * (kMaxXmlElements - 1)));
  EXPECT_EQ(refusal("<" + std::string(kMaxXmlNameBytes, 'n') + "/>"), "");
  EXPECT_EQ(refusal("<" + std::string(kMaxXmlNameBytes + 1, 'n') + "/>"), "a name is too long (byte): 1");
  const auto filled = [](size_t bytes) { return "<a>" + std::string(bytes - 7, 'x') + "</a>"; };
  EXPECT_EQ(refusal(filled(kMaxXmlBytes)), "");
  EXPECT_EQ(refusal(filled(kMaxXmlBytes + 1)), "the XML reply is too long (largest, bytes): 5000000 5000001");
}

TEST(XmlText, refuses_bombs) {
  std::string laughs = "<?xml version=\"1.0\"?><!DOCTYPE lolz [<!ENTITY lol \"lol\">";
  for (int i = 1; i < 10; ++i) {
    laughs += fmt::format("<!ENTITY lol{} \"{}\">", i, text_repeated(fmt::format("&lol{};", i - 1), 10));
  }
  EXPECT_THAT(refusal(laughs + "]><lolz>&lol9;</lolz>"), HasSubstr("a document type"));
  EXPECT_THAT(refusal("<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>"), HasSubstr("a document type"));
  EXPECT_THAT(refusal("<a>&lol9;</a>"), HasSubstr("an unknown entity"));
}

const char kListing[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><!-- c --><IsTruncated>false</IsTruncated>"
    "<Contents><Key>a &amp; \xC3\xA4&#x1;</Key><ETag>&quot;0&quot;</ETag><Size>1</Size><x/></Contents><![CDATA[ ]]><?p "
    "?></ListBucketResult>";

TEST(XmlText, refuses_a_reply_cut_at_any_byte) {
  const std::string_view whole = kListing;
  EXPECT_EQ(refusal(whole), "");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(refusal(whole.substr(0, length)), "") << length;
  }
}

TEST(XmlText, any_changed_byte_is_read_or_refused) {
  std::mt19937 random(3);
  size_t num_refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string document = kListing;
    for (int change = 0; change < 2; ++change) {
      document[random() % document.size()] = static_cast<char>(random() % 256);
    }
    num_refused += parse_xml(document).is_ok() ? 0 : 1;
  }
  EXPECT_GT(num_refused, 10'000);
}

TEST(XmlText, escaped_text_comes_back) {
  EXPECT_EQ(escape_xml("a<b>&\"'\r\n\tä\x01"), "a&lt;b&gt;&amp;&quot;&apos;&#13;\n\tä&#1;");
  std::mt19937 random(5);
  for (int round = 0; round < 2'000; ++round) {
    std::string text;
    for (size_t left = random() % 30; left > 0; --left) {
      const char32_t c = random() % 3 == 0 ? 1 + random() % 0x10FFFF : 1 + random() % 127;
      append_utf8(text, c >= 0xD800 && c <= 0xDFFF ? U'?' : c);
    }
    EXPECT_EQ(text_of_root("<a>" + escape_xml(text) + "</a>"), text);
  }
}

/// An element with random children, and how it is written.
XmlElement random_element(std::mt19937& random, int depth, std::string& written) {
  XmlElement element{.name = std::string(1, static_cast<char>('a' + random() % 26)) + "-1", .text = "", .children = {}};
  written += "<" + element.name + (random() % 2 == 0 ? ">" : " q='&lt;' >");
  for (size_t left = random() % 5; left > 0; --left) {
    if (random() % 2 == 0 || depth == kMaxXmlDepth) {
      const std::string text(1 + random() % 3, static_cast<char>('!' + random() % 90));
      element.text += text;
      written += escape_xml(text) + (random() % 2 == 0 ? "<!-- - -->" : "");
    } else {
      element.children.push_back(random_element(random, depth + 1, written));
    }
  }
  written += "</" + element.name + ">";
  return element;
}

std::string shape_of(const XmlElement& element) {
  std::string shape = fmt::format("{}({})[", element.name, element.text);
  for (const XmlElement& child : element.children) {
    shape += shape_of(child);
  }
  return shape + "]";
}

TEST(XmlText, random_documents_come_back) {
  std::mt19937 random(11);
  for (int round = 0; round < 2'000; ++round) {
    std::string written;
    const XmlElement want = random_element(random, 1, written);
    const auto got = parse_xml(written);
    ASSERT_TRUE(got.is_ok()) << got.status().to_string() << "\n" << written;
    EXPECT_EQ(shape_of(*got), shape_of(want)) << written;
  }
}

}  // namespace
}  // namespace darkroom
