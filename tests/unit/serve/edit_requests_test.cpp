#include "darkroom/serve/edit_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace darkroom {
namespace {

using testing::HasSubstr;

ModelFacts edited_model() {
  return {.name = "tiny", .native_size = 64, .size_multiple = 8, .samplers = {"ddim", "euler"}, .default_sampler = "ddim"};
}

using Fields = std::vector<std::pair<std::string, std::string>>;  // A name that begins with @ is a file's.

Result<ImageRequest> form(const Fields& fields, const std::string& type = "multipart/form-data; boundary=b") {
  std::string body;
  for (const auto& [name, text] : fields) {
    const bool is_file = name.starts_with('@');
    body += "--b\r\nContent-Disposition: form-data; name=\"" + name.substr(is_file ? 1 : 0) + "\"" + (is_file ? "; filename=\"x\"" : "") +
            "\r\n\r\n" + text + "\r\n";
  }
  return read_openai_edit(type, body + "--b--\r\n", edited_model(), RequestLimits{});
}

Result<ImageRequest> json_edit(std::string_view body) {
  return read_openai_edit("application/json", body, edited_model(), RequestLimits{});
}

Result<ImageRequest> imagined(std::string_view query) { return read_imagine(query, edited_model(), RequestLimits{}); }

std::string refusal_of_edit(const Result<ImageRequest>& request) {
  EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument);
  return std::string(request.status().message());
}

TEST(edit_requests, reads_a_form) {
  const ImageRequest request = form({{"@image", "\x89PNG"},
                                     {"prompt", "12"},
                                     {"n", "2"},
                                     {"size", "128x64"},
                                     {"seed", "18446744073709551615"},
                                     {"steps", "10"},
                                     {"strength", "0.3"},
                                     {"guidance_scale", "2.5"},
                                     {"negative_prompt", "dog"},
                                     {"sampler", "euler"},
                                     {"model", "tiny"},
                                     {"response_format", "b64_json"},
                                     {"stream", "false"},
                                     {"user", "me"},
                                     {"input_fidelity", "low"}})
                                   .value();
  ASSERT_EQ(request.pictures.size(), 2U);
  const PictureSpec& first = request.pictures.front();
  EXPECT_EQ(first.prompt, "12");  // Of a text field, a number is a text.
  EXPECT_EQ(first.negative, "dog");
  EXPECT_EQ(first.seed, UINT64_MAX);
  EXPECT_EQ(first.num_steps, 10);
  EXPECT_EQ(first.strength, 0.3);
  EXPECT_EQ(first.num_steps_taken(), 10);  // Until its picture is decoded.
  EXPECT_EQ(first.width, 128);
  EXPECT_EQ(first.sampler, "euler");
  EXPECT_EQ(request.inputs, (std::vector<InputPicture>{{.field = "image", .text = "\x89PNG"}}));
  EXPECT_EQ(request.form, ReplyForm::kOpenAi);
  EXPECT_EQ(form({{"image[]", "data:image/png;base64,aGk="}, {"prompt", "x"}})->inputs.front().text, "aGk=");
}

TEST(edit_requests, reads_json) {
  for (const char* picture : {R"("image":"aGk=")", R"("image":["aGk="])", R"("images":[{"image_url":"data:image/jpeg;base64,aGk="}])",
                              R"("image":{"image_url":"aGk="})"}) {
    const auto request = json_edit(std::string(R"({"prompt":"x","n":1,)") + picture + "}");
    ASSERT_TRUE(request.is_ok()) << picture << request.status().to_string();
    ASSERT_EQ(request->inputs.size(), 1U);
    EXPECT_EQ(request->inputs.front().text, "aGk=");
    EXPECT_EQ(request->pictures.front().strength, 0.8);
  }
}

TEST(edit_requests, names_what_is_wrong_in_a_form) {
  const std::vector<std::pair<Fields, std::string>> cases = {
      {{{"@image", "x"}}, "prompt"},
      {{{"prompt", "x"}}, "one picture in the field image"},
      {{{"prompt", "x"}, {"@image", "x"}, {"@image[]", "y"}}, "so many: 2"},
      {{{"prompt", "x"}, {"image", "https://example.com/x.png"}}, "image must be a picture"},
      {{{"prompt", "x"}, {"@image", "x"}, {"@mask", "y"}}, "mask"},
      {{{"prompt", "x"}, {"@image", "x"}, {"@other", "y"}}, "other"},
      {{{"prompt", "x"}, {"@image", "x"}, {"n", "two"}}, "n must be"},
      {{{"prompt", "x"}, {"@image", "x"}, {"n", "[1]"}}, "n must be"},
      {{{"prompt", "x"}, {"@image", "x"}, {"stream", "1"}}, "stream must be"},
      {{{"prompt", "x"}, {"@image", "x"}, {"strength", "0"}}, "strength"},
      {{{"prompt", "x"}, {"@image", "x"}, {"strength", "1.5"}}, "strength"},
      {{{"prompt", "x"}, {"@image", "x"}, {"stepz", "4"}}, "stepz"},
      {{{"prompt", "x"}, {"@image", "x"}, {"prompt", "y"}}, "once: prompt"},
      {{{"prompt", "\xFF"}, {"@image", "x"}}, "UTF-8: prompt"},
  };
  for (const auto& [fields, part] : cases) {
    EXPECT_THAT(refusal_of_edit(form(fields)), HasSubstr(part));
  }
  EXPECT_THAT(refusal_of_edit(form({}, "multipart/form-data")), HasSubstr("boundary"));
  EXPECT_EQ(form({{"@image", "x"}, {"prompt", "x"}, {"model", "dall-e-2"}}).status().code(), StatusCode::kNotFound);
}

TEST(edit_requests, names_what_is_wrong_in_json) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt":"x"})", "image"},
      {R"({"prompt":"x","image":5})", "image must be"},
      {R"({"prompt":"x","image":[["aGk="]]})", "image must be a list of pictures"},
      {R"({"prompt":"x","images":[{"file_id":"f"}]})", "images[0]"},
      {R"({"prompt":"x","image":"a","images":["b"]})", "so many: 2"},
      {R"({"prompt":"x","images":["a",1,[]]})", "images must be one picture, or a list of one, got so many: 3"},
      {R"({"prompt":"x","image":{"image_url":"http://localhost/x"}})", "image must be"},
      {R"({"prompt":"x","image":"a","mask":"b"})", "mask"},
      {"{", "JSON"},
  };
  for (const auto& [body, part] : cases) {
    EXPECT_THAT(refusal_of_edit(json_edit(body)), HasSubstr(part)) << body;
  }
}

TEST(edit_requests, imagine_reads_its_query) {
  const ImageRequest request =
      imagined("prompt=a%20red+apple%2C%20%C3%A9&img_size=128&seed=4&steps=3&&guidance_scale=1&sampler=ddim").value();
  const PictureSpec& picture = request.pictures.front();
  EXPECT_EQ(picture.prompt, "a red apple, \xC3\xA9");
  EXPECT_EQ(picture.width, 128);
  EXPECT_EQ(picture.height, 128);
  EXPECT_EQ(picture.seed, 4U);
  EXPECT_EQ(picture.num_steps, 3);
  EXPECT_EQ(request.form, ReplyForm::kPng);
  EXPECT_EQ(imagined("prompt=x")->pictures.front().width, 64);
  EXPECT_EQ(imagined("prompt=5")->pictures.front().prompt, "5");
}

TEST(edit_requests, imagine_names_what_is_wrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "needs a prompt"},
      {"prompt=", "needs a prompt"},
      {"prompt", "needs a prompt"},
      {"prompt=a%2", "got: %2"},
      {"prompt=a%zz", "got: %zz"},
      {"prompt=%", "got: %"},
      {"prompt=%FF", "UTF-8: prompt"},
      {"prompt=x&prompt=y", "once: prompt"},
      {"prompt=x&img_size=63", "img_size"},
      {"prompt=x&img_size=", "img_size"},
      {"prompt=x&size=64", "size"},
      {"prompt=x&steps=0", "steps"},
      {"prompt=x&seed=-1", "seed"},
  };
  for (const auto& [query, part] : cases) {
    EXPECT_THAT(refusal_of_edit(imagined(query)), HasSubstr(part)) << query;
  }
  std::string many = "prompt=x";
  for (int i = 0; i < 40; ++i) {
    many += "&a" + std::to_string(i) + "=1";
  }
  EXPECT_THAT(refusal_of_edit(imagined(many)), HasSubstr("so many fields"));
}

}  // namespace
}  // namespace darkroom
