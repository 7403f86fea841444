#include "darkroom/prompts/picture_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "some_pictures.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using Json = nlohmann::ordered_json;

std::string refused(const Json& record) {
  const auto read = read_picture_record(record.dump(), "out/pictures.json");
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument) << record.dump();
  return read.status().message();
}

TEST(PictureRecord, comes_back_as_it_was) {
  const PictureRecord record = some_record();
  const std::string text = picture_record_to_json(record);
  EXPECT_EQ(read_picture_record(text, "x").value(), record);
  EXPECT_EQ(Json::parse(text)["format_version"], 1);
  EXPECT_EQ(read_picture_record(picture_record_to_json({}), "x").value(), PictureRecord());
}

TEST(PictureRecord, has_a_line_for_each_picture) {
  const std::string text = picture_record_to_json(some_record());
  EXPECT_THAT(text, HasSubstr("\n  {\"file\":\"apples/00000.png\",\"sha256\":"));
  EXPECT_THAT(text, HasSubstr("\n  {\"file\":\"apples/00001.png\",\"sha256\":"));
}

TEST(PictureRecord, what_is_no_record_is_refused) {
  for (const char* text : {"", "[]", "3", "{", "null"}) {
    EXPECT_THAT(read_picture_record(text, "x.json").status().message(), "this is no record of pictures (pictures.json): x.json");
  }
  EXPECT_EQ(refused(Json::object()), "out/pictures.json: format_version must be 1, got: nothing");
  EXPECT_EQ(refused({{"format_version", 2}}), "out/pictures.json: format_version must be 1, got: 2");
}

TEST(PictureRecord, fields_that_are_missing_or_bad_are_named) {
  const Json good = Json::parse(picture_record_to_json(some_record()));
  const auto changed = [&](const std::function<void(Json&)>& change) {
    Json record = good;
    change(record);
    return refused(record);
  };
  EXPECT_EQ(changed([](Json& record) { record.erase("model"); }), "out/pictures.json: model must be a text, got: nothing");
  EXPECT_EQ(changed([](Json& record) { record["weights"] = 3; }), "out/pictures.json: weights must be a text, got: 3");
  EXPECT_EQ(changed([](Json& record) { record["threads"] = -1; }), "out/pictures.json: threads must be a whole number, got: -1");
  EXPECT_EQ(changed([](Json& record) { record["fingerprints"] = 1; }), "out/pictures.json: fingerprints must be an object, got: 1");
  EXPECT_EQ(changed([](Json& record) { record["fingerprints"]["unet"] = 1; }), "out/pictures.json: unet must be a text, got: 1");
  EXPECT_EQ(changed([](Json& record) { record.erase("pictures"); }), "out/pictures.json: pictures must be a list, got: nothing");
  EXPECT_EQ(changed([](Json& record) { record["pictures"][1]["file"] = record["pictures"][0]["file"]; }),
            "out/pictures.json: two pictures have the file: apples/00000.png");
  EXPECT_EQ(changed([](Json& record) { record["pictures"][1] = 7; }), "out/pictures.json: picture 2: must be an object, got: 7");
  EXPECT_EQ(changed([](Json& record) { record["pictures"][1]["steps"] = 0; }),
            "out/pictures.json: picture 2: steps must be a whole number from 1 to 1000000, got: 0");
  EXPECT_EQ(changed([](Json& record) { record["pictures"][0].erase("guidance"); }), "out/pictures.json: picture 1: guidance is missing");
  EXPECT_EQ(changed([](Json& record) { record["pictures"][0]["sha256"] = "abc"; }),
            "out/pictures.json: picture 1: sha256 must be 64 hex digits, got: \"abc\"");
  EXPECT_THAT(changed([](Json& record) { record["pictures"][0]["init_image_sha256"] = "abc"; }), HasSubstr("init_image_sha256 must be"));
}

// A record may come from somebody else, and its names become paths.
TEST(PictureRecord, names_that_lead_out_of_the_folder_are_refused) {
  for (const char* file :
       {"", "a.png", "/00000.png", "../00000.png", "a/../00000.png", "a/b/00000.png", "/etc/00000.png", "a/00000.jpg", "a/0.png",
        "a/00000.png/", "_tmp/00000.png", "-a/00000.png", "a b/00000.png", "a/0000x.png", "a/000000000000000000000.png"}) {
    Json record = Json::parse(picture_record_to_json(some_record()));
    record["pictures"][0]["file"] = file;
    EXPECT_THAT(refused(record), AllOf(StartsWith("out/pictures.json: picture 1: file must be JOB/NUMBER.png, got: "), HasSubstr(file)));
  }
}

TEST(PictureIdentity, depends_on_everything_but_the_files_own_place) {
  const PictureRecord record = some_record();
  const std::string identity = picture_identity(record.origin, record.pictures[0]);
  EXPECT_EQ(identity.size(), 64U);
  RecordedPicture elsewhere = record.pictures[0];
  elsewhere.file = "other/00007.png";
  elsewhere.sha256 = std::string(64, '0');
  elsewhere.picture.style = "named otherwise";
  EXPECT_EQ(picture_identity(record.origin, elsewhere), identity);

  std::set<std::string> identities = {identity};
  size_t num_changes = 1;
  const auto expect_another = [&](const PictureOrigin& origin, const RecordedPicture& picture) {
    identities.insert(picture_identity(origin, picture));
    EXPECT_EQ(identities.size(), ++num_changes);
  };
  for (const auto member :
       {&PictureOrigin::version, &PictureOrigin::model, &PictureOrigin::weights, &PictureOrigin::frozen, &PictureOrigin::tokenizer_dialect,
        &PictureOrigin::prediction_type, &PictureOrigin::device, &PictureOrigin::precision}) {
    PictureOrigin origin = record.origin;
    origin.*member += "!";
    expect_another(origin, record.pictures[0]);
  }
  PictureOrigin origin = record.origin;
  origin.threads = 9;
  expect_another(origin, record.pictures[0]);
  origin = record.origin;
  origin.fingerprints["unet"] = "another";
  expect_another(origin, record.pictures[0]);
  RecordedPicture picture = record.pictures[0];
  picture.init_image_sha256 = std::string(64, '1');
  expect_another(record.origin, picture);
  for (const std::string& name : picture_field_names()) {
    picture = record.pictures[0];
    const FieldValue old = picture_field(picture.picture.fields, name);
    const FieldValue value = name == "prompt_syntax"                    ? FieldValue(std::string("weighted"))
                             : name == "long_prompts"                   ? FieldValue(std::string("chunks"))
                             : std::holds_alternative<std::string>(old) ? FieldValue(std::get<std::string>(old) + "!")
                             : std::holds_alternative<uint64_t>(old)    ? FieldValue(std::get<uint64_t>(old) + 1)
                                                                        : FieldValue(0.25);
    ASSERT_TRUE(set_picture_field(picture.picture.fields, name, value).is_ok()) << name;
    expect_another(record.origin, picture);
  }
}

TEST(PictureModelCheck, another_part_is_named) {
  const PictureOrigin origin = some_record().origin;
  EXPECT_TRUE(check_same_model(origin.fingerprints, origin.fingerprints).is_ok());
  EXPECT_TRUE(check_same_model({}, origin.fingerprints).is_ok());
  auto other = origin.fingerprints;
  other["vae"] = "ff";
  const Status status = check_same_model(origin.fingerprints, other);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("another model (part, recorded, this one): vae"));
  other.erase("vae");
  EXPECT_THAT(check_same_model(origin.fingerprints, other).message(), HasSubstr("nothing"));
}

}  // namespace
}  // namespace darkroom
