#include "serve/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/byte_mutations.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

const std::string kForm =
    "--b\r\n"
    "Content-Disposition: form-data; name=\"prompt\"\r\n"
    "\r\n"
    "a red apple\r\n"
    "--b\r\n"
    "content-disposition: FORM-DATA; name=image; filename=\"a \\\"b\\\";c.png\"\r\n"
    "Content-Type: image/png\r\n"
    "\r\n"
    "\x89PNG\r\n--\r\n--c\r\n"
    "\r\n--b--\r\n";

std::string refusal(std::string_view body, const FormLimits& limits = {}) {
  const auto form = read_form(body, "b", limits);
  return form.is_ok() ? "" : std::string(form.status().message());
}

std::string with_header(const std::string& header) { return "--b\r\n" + header + "\r\n\r\nx\r\n--b--"; }

TEST(multipart, splits_a_form_into_its_parts) {
  const auto form = read_form(kForm, "b").value();
  ASSERT_EQ(form.size(), 2U);
  EXPECT_EQ(form[0].name, "prompt");
  EXPECT_FALSE(form[0].is_file);
  EXPECT_EQ(form[0].body, "a red apple");
  EXPECT_EQ(form[1].name, "image");
  EXPECT_TRUE(form[1].is_file);
  EXPECT_EQ(form[1].body, "\x89PNG\r\n--\r\n--c\r\n");
  EXPECT_TRUE(read_form("--b--\r\n", "b")->empty());
  EXPECT_EQ(read_form(with_header("Content-Disposition: form-data; name=\"a\""), "b")->front().body, "x");
  EXPECT_EQ(read_form("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--b--", "b")->front().body, "");
}

TEST(multipart, refuses_what_is_no_form) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "begin with its boundary"},
      {"preamble\r\n" + kForm, "begin with its boundary"},
      {kForm + "epilogue", "behind its last boundary"},
      {kForm.substr(0, kForm.size() - 9), "no boundary ends it; number: 2"},
      {"--bx\r\n\r\n\r\n--b--", "ends in no line end"},
      {"--b\nContent-Disposition: form-data; name=a\n\nx\n--b--", "ends in no line end"},
      {"--b\r\n\r\nx\r\n--b--", "one Content-Disposition"},
      {"--b\r\nContent-Disposition: form-data; name=a\r\nx\r\n--b--", "does not end"},
      {with_header("Content-Type: text/plain"), "one Content-Disposition"},
      {with_header("Content-Disposition: attachment; name=\"a\""), "form-data with a name"},
      {with_header("Content-Disposition: form-data"), "no name"},
      {with_header("Content-Disposition: form-data; name=\"\""), "no name"},
      {with_header("Content-Disposition: form-data; name=\"a"), "form-data with a name"},
      {with_header("Content-Disposition: form-data; name=\"a\" b"), "form-data with a name"},
      {with_header("Content-Disposition: form-data; name=a; name=b"), "form-data with a name"},
      {with_header("Content-Disposition: form-data; name=a; name*=utf-8''b"), "parameter name"},
      {with_header("Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b"), "one Content-Disposition"},
      {with_header("Content-Disposition: form-data; name=a\r\n folded"), "no field"},
      {with_header("Content-Disposition: form-data; name=a\r\nX: \n"), "no field"},
      {with_header("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64"), "transfer encoding"},
  };
  for (const auto& [body, part] : cases) {
    EXPECT_THAT(refusal(body), HasSubstr(part)) << body;
  }
}

TEST(multipart, has_bounds_on_parts_and_their_headers) {
  std::string body;
  for (int i = 0; i < 3; ++i) {
    body += "--b\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n";
  }
  body += "--b--";
  EXPECT_EQ(refusal(body, {.max_parts = 3}), "");
  EXPECT_THAT(refusal(body, {.max_parts = 2}), HasSubstr("so many parts: 2"));
  const std::string header = "Content-Disposition: form-data; name=\"" + std::string(100, 'n') + "\"";
  EXPECT_EQ(refusal(with_header(header), {.max_part_header_bytes = header.size() + 6}), "");
  EXPECT_THAT(refusal(with_header(header), {.max_part_header_bytes = header.size() + 5}), HasSubstr("does not end"));
}

TEST(multipart, reads_the_boundary_of_a_content_type) {
  EXPECT_EQ(form_boundary("multipart/form-data; boundary=abc").value(), "abc");
  EXPECT_EQ(form_boundary("Multipart/Form-Data ; charset=utf-8; BOUNDARY=\"a b'c\"").value(), "a b'c");
  for (const char* type : {"", "application/json", "multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=a",
                           "multipart/form-data; boundary=\"a \"", "multipart/form-data; boundary=\"a\x80\"",
                           "multipart/form-data; boundary=a; boundary=b", "multipart/form-data; boundary=a b"}) {
    EXPECT_FALSE(form_boundary(type).is_ok()) << type;
  }
  EXPECT_TRUE(form_boundary("multipart/form-data; boundary=" + std::string(70, 'a')).is_ok());
  EXPECT_FALSE(form_boundary("multipart/form-data; boundary=" + std::string(71, 'a')).is_ok());
}

std::string written(const std::vector<FormPart>& parts, const std::string& boundary) {
  std::string form;
  for (const FormPart& part : parts) {
    std::string name;
    for (const char c : part.name) {
      name += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
    form += "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"" + (part.is_file ? "; filename=x" : "") +
            "\r\n\r\n" + std::string(part.body) + "\r\n";
  }
  return form + "--" + boundary + "--";
}

// What is read lies within what was sent, and says the same when it is written again.
TEST(multipart, reads_mutations_without_harm) {
  const std::vector<std::string> originals = {kForm, with_header("Content-Disposition: form-data; name=a"),
                                              "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n--b\r\n\r\n--b--"};
  int num_read = 0;
  for (uint64_t number = 0; number < 5000; ++number) {
    const std::string body = mutate_bytes(originals, 20261125, number);
    const auto form = read_form(body, "b");
    if (!form.is_ok()) {
      EXPECT_EQ(form.status().code(), StatusCode::kInvalidArgument);
      continue;
    }
    ++num_read;
    for (const FormPart& part : *form) {
      ASSERT_TRUE(part.body.data() >= body.data() && part.body.data() + part.body.size() <= body.data() + body.size()) << number;
    }
    const std::string again = written(*form, "another");
    const auto second = read_form(again, "another");
    ASSERT_TRUE(second.is_ok()) << number << " " << second.status().to_string();
    ASSERT_EQ(second->size(), form->size()) << number;
    for (size_t i = 0; i < form->size(); ++i) {
      EXPECT_EQ((*second)[i].name, (*form)[i].name) << number;
      EXPECT_EQ((*second)[i].body, (*form)[i].body) << number;
      EXPECT_EQ((*second)[i].is_file, (*form)[i].is_file) << number;
    }
  }
  EXPECT_GT(num_read, 100);
}

}  // namespace
}  // namespace darkroom
