#include "resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void touch(const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << "x";
}

/// Sets a variable of the environment while it lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

TEST(ResourceFoldersTest, an_installed_program_looks_beside_its_own_folder_only) {
  const TemporaryFolder tree;
  EXPECT_THAT(resource_folders(tree.path("bin/darkroom"), ""), ElementsAre(tree.path("share/darkroom")));
}

TEST(ResourceFoldersTest, a_program_of_a_build_folder_looks_in_its_source_tree) {
  const TemporaryFolder tree;
  touch(tree.path("include/darkroom/core/version.h"));
  for (const char* program : {"build/darkroom", "build/release/darkroom", "build/release/tests/demo_test"}) {
    EXPECT_EQ(resource_folders(tree.path(program), "").back(), tree.path()) << program;
  }
}

TEST(ResourceFoldersTest, a_source_tree_four_levels_up_is_somebody_elses) {
  const TemporaryFolder tree;
  touch(tree.path("include/darkroom/core/version.h"));
  EXPECT_THAT(resource_folders(tree.path("a/b/c/d/darkroom"), ""), ElementsAre(tree.path("a/b/c/share/darkroom")));
}

TEST(ResourceFoldersTest, the_variable_replaces_every_other_folder) {
  EXPECT_THAT(resource_folders("/usr/bin/darkroom", "/elsewhere"), ElementsAre("/elsewhere"));
}

TEST(FindResourceTest, a_test_program_finds_the_models_of_the_source_tree_from_any_working_folder) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path("/");
  const auto found = find_resource("models/tiny/tokenizer");
  std::filesystem::current_path(before);
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_TRUE(std::filesystem::exists(*found + "/merges.txt")) << *found;
}

TEST(FindResourceTest, the_folder_of_the_variable_wins) {
  const TemporaryFolder share;
  touch(share.path("models/tiny/tokenizer/merges.txt"));
  const ScopedVariable variable("DARKROOM_SHARE", share.path());
  const auto found = find_resource("models/tiny/tokenizer");
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_EQ(*found, share.path("models/tiny/tokenizer"));
}

TEST(FindResourceTest, a_file_that_the_variables_folder_lacks_is_not_taken_from_elsewhere) {
  const TemporaryFolder share;
  const ScopedVariable variable("DARKROOM_SHARE", share.path());
  const auto found = find_resource("models/tiny/tokenizer");
  ASSERT_FALSE(found.is_ok());
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(found.status().to_string(), HasSubstr("DARKROOM_SHARE"));
  EXPECT_THAT(found.status().to_string(), HasSubstr("models/tiny/tokenizer"));
  EXPECT_THAT(found.status().to_string(), HasSubstr(share.path()));
}

TEST(FindResourceTest, a_missing_file_is_an_error_that_names_it_and_where_it_was_looked_for) {
  const auto found = find_resource("no/such/file");
  ASSERT_FALSE(found.is_ok());
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(found.status().to_string(), HasSubstr("no/such/file"));
  EXPECT_THAT(found.status().to_string(), HasSubstr("share/darkroom"));
}

TEST(FindPythonTest, the_variable_wins_and_must_name_a_file) {
  const TemporaryFolder folder;
  touch(folder.path("python"));
  {
    const ScopedVariable variable("DARKROOM_PYTHON", folder.path("python"));
    const auto found = find_python();
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(*found, folder.path("python"));
  }
  const ScopedVariable variable("DARKROOM_PYTHON", folder.path("absent"));
  const auto missing = find_python();
  ASSERT_FALSE(missing.is_ok());
  EXPECT_THAT(missing.status().to_string(), HasSubstr(folder.path("absent")));
}

TEST(FindPythonTest, an_installed_tree_brings_a_link_to_the_machines_python) {
  const TemporaryFolder tree;
  touch(tree.path("usr/bin/python3.11"));
  std::filesystem::create_directories(tree.path("lib/darkroom/python/bin"));
  std::filesystem::create_symlink(tree.path("usr/bin/python3.11"), tree.path("lib/darkroom/python/bin/python"));
  const auto found = python_beside(tree.path("bin/darkroom"));
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_EQ(*found, tree.path("lib/darkroom/python/bin/python"));
}

TEST(FindPythonTest, a_tree_made_for_another_version_of_python_names_it) {
  const TemporaryFolder tree;
  std::filesystem::create_directories(tree.path("lib/darkroom/python/bin"));
  std::filesystem::create_symlink(tree.path("usr/bin/python3.11"), tree.path("lib/darkroom/python/bin/python"));
  const auto missing = python_beside(tree.path("bin/darkroom"));
  ASSERT_FALSE(missing.is_ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().to_string(), HasSubstr("install python3.11"));
  EXPECT_THAT(missing.status().to_string(), HasSubstr(tree.path("usr/bin/python3.11")));
}

TEST(FindDecoderTest, it_lies_beside_the_program_or_in_the_folder_above_a_test) {
  const TemporaryFolder tree;
  const auto missing = decoder_beside(tree.path("build/tests/demo_test"));
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("--no-sandbox"));
  EXPECT_THAT(missing.status().message(), HasSubstr(tree.path("build/tests/darkroom-decoder")));
  touch(tree.path("build/darkroom-decoder"));
  EXPECT_EQ(*decoder_beside(tree.path("build/tests/demo_test")), tree.path("build/darkroom-decoder"));
  EXPECT_EQ(*decoder_beside(tree.path("build/darkroom")), tree.path("build/darkroom-decoder"));
  touch(tree.path("build/tests/darkroom-decoder"));
  EXPECT_EQ(*decoder_beside(tree.path("build/tests/demo_test")), tree.path("build/tests/darkroom-decoder"));
}

}  // namespace
}  // namespace darkroom
