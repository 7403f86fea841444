#include "stores/aws_profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Profiles and settings as {name: {setting=value, ...}, ...}, or the failure.
std::string shape_of_file(std::string_view text, AwsFile file = AwsFile::kConfig) {
  const auto profiles = read_aws_profiles(text, file);
  if (!profiles.is_ok()) {
    EXPECT_EQ(profiles.status().code(), StatusCode::kInvalidArgument);
    return profiles.status().message();
  }
  std::string shape;
  for (const auto& [name, settings] : *profiles) {
    shape += name + "{";
    for (const auto& [setting, value] : settings) {
      shape += fmt::format("{}={};", setting, value);
    }
    shape += "}";
  }
  return shape;
}

std::string not_understood(std::string_view what, int line) {
  return fmt::format("a shared AWS file is not understood: {} (line): {}", what, line);
}

TEST(AwsProfiles, reads_profiles_and_their_settings) {
  EXPECT_EQ(shape_of_file(""), "");
  EXPECT_EQ(shape_of_file("[profile foo]"), "foo{}");
  EXPECT_EQ(shape_of_file("[profile foo]\nb = 1\na=2\n[profile bar]\nc =\n"), "bar{c=;}foo{a=2;b=1;}");
  EXPECT_EQ(shape_of_file("[profile foo]\r\na = 1\r\n"), "foo{a=1;}");
  EXPECT_EQ(shape_of_file("[profile foo]\na = v=w==\n"), "foo{a=v=w==;}");
  EXPECT_EQ(shape_of_file("[profile foo]\na \t=  \tone two \t"), "foo{a=one two;}");
  EXPECT_EQ(shape_of_file("[profile foo]\na = \xC3\xA4\xF0\x9F\x98\x82"), "foo{a=\xC3\xA4\xF0\x9F\x98\x82;}");
  EXPECT_EQ(shape_of_file("\t \n[profile foo]\n\t\n \na = 1\n\t \n[profile bar]\n \t"), "bar{}foo{a=1;}");
  EXPECT_EQ(shape_of_file("\xEF\xBB\xBF[profile foo]\na = 1"), "foo{a=1;}");
}

TEST(AwsProfiles, the_two_files_write_a_profiles_name_differently) {
  EXPECT_EQ(shape_of_file("[foo]\na = 1\n[default]\nb = 2\n[profile bar]\nc = 3\n[profilefoo]\nd = 4"), "bar{c=3;}default{b=2;}");
  EXPECT_EQ(shape_of_file("[foo]\na = 1\n[default]\nb = 2\n[profile bar]\nc = 3\n[profilefoo]\nd = 4", AwsFile::kCredentials),
            "default{b=2;}foo{a=1;}profilefoo{d=4;}");
  EXPECT_EQ(shape_of_file("[sso-session foo]\na = 1\n[services s]\nb = 2\n[plugins]\nc = 3\n[profile]\nd = 4\n[profile ]\ne = 5"),
            "sso-session foo{a=1;}");
  EXPECT_EQ(shape_of_file("[sso-session]\na = 1\n[sso-session ]\nb = 2\n[sso-sessions c]\nd = 3\n[sso-session a!b]\ne = 4"), "");
  EXPECT_EQ(shape_of_file("[sso-session foo]\na = 1", AwsFile::kCredentials), "");
}

TEST(AwsProfiles, names_of_profiles_are_trimmed_keep_their_case_and_hold_known_characters) {
  EXPECT_EQ(shape_of_file("[profile \tfoo \t]\na = 1\n[   profile bar    ]\n[profile\tbaz]"), "bar{}baz{}foo{a=1;}");
  EXPECT_EQ(shape_of_file("[ \tfoo ]\na = 1", AwsFile::kCredentials), "foo{a=1;}");
  EXPECT_EQ(shape_of_file("[profile Some-thing:long/the_1%only.foo@bar+]\n[profile foo!bar]\na = 1\n[profile in valid]\nb = 2"),
            "Some-thing:long/the_1%only.foo@bar+{}");
  EXPECT_EQ(shape_of_file("[profile foo]\na = 1\n[profile in valid]\na = 2\n s = 3\n[profile bar]\na = 4"), "bar{a=4;}foo{a=1;}");
}

TEST(AwsProfiles, what_stands_twice_is_joined_and_the_last_counts) {
  EXPECT_EQ(shape_of_file("[profile foo]\na = 1\nb = 2\n[profile bar]\n[profile foo]\nb = 3\nc = 4\nc = 5"), "bar{}foo{a=1;b=3;c=5;}");
  EXPECT_EQ(shape_of_file("[profile foo]\nName = 1\n[profile foo]\nname = 2\nA_B-9 = 3"), "foo{a_b-9=3;name=2;}");
}

TEST(AwsProfiles, a_default_profile_with_the_prefix_makes_the_other_void) {
  EXPECT_EQ(shape_of_file("[profile default]\na = 1\n[default]\nb = 2"), "default{a=1;}");
  EXPECT_EQ(shape_of_file("[default]\nb = 2\n[profile default]\na = 1"), "default{a=1;}");
  EXPECT_EQ(shape_of_file("[profile default]\na = 1\n[default]\nb = 2\n[profile default]\nc = 3"), "default{a=1;c=3;}");
}

TEST(AwsProfiles, comments_begin_lines_or_stand_behind_white_space) {
  EXPECT_EQ(shape_of_file("# c\n; c\n[profile foo] # c\na = 1 # c ; c\nb = 2 ; c\n[profile bar];c\n[profile baz]#c"),
            "bar{}baz{}foo{a=1;b=2;}");
  EXPECT_EQ(shape_of_file(";\n[profile foo];\na = 1 ;\nb = #2\nc = ;"), "foo{a=1;b=;c=;}");
  EXPECT_EQ(shape_of_file("[profile foo]\na = 1; c\nb = 2# c\nc =#3\td\t#e"), "foo{a=1; c;b=2# c;c=#3\td;}");
  EXPECT_EQ(shape_of_file("[profile foo]\n  # indented\na = 1\n  ; indented\n"), "foo{a=1;}");
}

TEST(AwsProfiles, indented_lines_go_on_with_a_value) {
  EXPECT_EQ(shape_of_file("[profile foo]\na = 1\n \t -2 \t \n -3 # no comment\nb = 4"), "foo{a=1\n-2\n-3 # no comment;b=4;}");
  EXPECT_EQ(shape_of_file("[profile foo]\ns3 =\n x = 1\n\t \n y =\n in valid = 2\nb = 3"), "foo{b=3;s3=\nx = 1\ny =\nin valid = 2;}");
  EXPECT_EQ(shape_of_file("[profile foo]\na = 1\nin valid = 2\n goes on\nb = 3"), "foo{a=1;b=3;}");
}

TEST(AwsProfiles, names_the_line_that_is_not_understood_and_never_shows_it) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"SECRET = 1", not_understood("a setting stands before the first section", 1)},
      {"\n  SECRET", not_understood("a setting stands before the first section", 2)},
      {"[profile SECRET", not_understood("a section's name does not end with ]", 1)},
      {"[profile SECRET] x", not_understood("a section's name does not end with ]", 1)},
      {"[", not_understood("a section's name does not end with ]", 1)},
      {"[profile foo]\n\nSECRET : 2", not_understood("a setting has no =", 3)},
      {"[foo]\nSECRET", not_understood("a setting has no =", 2)},  // Of a skipped section as well.
      {"[profile foo]\n= SECRET", not_understood("a setting has no name", 2)},
      {"[profile foo]\n -SECRET", not_understood("an indented line continues no setting", 2)},
      {"[profile foo]\na = 1\n[profile foo]\n -SECRET", not_understood("an indented line continues no setting", 4)},
      {"[profile foo]\ns3 =\n SECRET", not_understood("an indented setting has no =", 3)},
      {"[profile foo]\ns3 =\n = SECRET", not_understood("an indented setting has no name", 3)},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_EQ(shape_of_file(text), want) << text;
    EXPECT_THAT(shape_of_file(text), Not(HasSubstr("SECRET")));
  }
}

TEST(AwsProfiles, bounds_the_file) {
  const std::string start = "[profile foo]\na=";
  EXPECT_THAT(shape_of_file(start + std::string(kMaxAwsFileBytes - start.size(), 'x')), HasSubstr("foo{a=xxx"));
  EXPECT_EQ(shape_of_file(start + std::string(kMaxAwsFileBytes - start.size() + 1, 'x')),
            "a shared AWS file is too long (largest, bytes): 1048576 1048577");
}

TEST(AwsProfiles, any_changed_byte_is_read_or_refused) {
  const std::string whole = "# c\n[default]\na = 1 ; c\n b\n[profile foo]\ns3 =\n x = 1\n\n[profile default] # c\naws_access_key_id = 2\n";
  std::mt19937 random(17);
  size_t num_refused = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::string changed = whole;
    for (int change = 0; change < 3; ++change) {
      changed[random() % changed.size()] = static_cast<char>(random() % 256);
    }
    num_refused += read_aws_profiles(changed, round % 2 == 0 ? AwsFile::kConfig : AwsFile::kCredentials).is_ok() ? 0 : 1;
  }
  EXPECT_GT(num_refused, 500);
  EXPECT_LT(num_refused, 4'500);
}

}  // namespace
}  // namespace darkroom
