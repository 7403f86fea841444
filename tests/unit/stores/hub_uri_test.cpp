#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "darkroom/core/shown_uri.h"
#include "darkroom/stores/hub.h"
#include "stores/hub_documents.h"
#include "stores/sha1.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

HubUri uri(const std::string& text) {
  const Result<HubUri> parsed = HubUri::parse(text);
  EXPECT_TRUE(parsed.is_ok()) << text << ": " << parsed.status().to_string();
  return parsed.is_ok() ? *parsed : HubUri{};
}

TEST(hub_uri, reads_repository_revision_and_path) {
  const HubUri file = uri("hf://datasets/laion/laion2B-en@main/data/part-?.parquet");
  EXPECT_EQ(file.repo, (HubRepo{HubRepoKind::kDataset, "laion/laion2B-en"}));
  EXPECT_EQ(file.revision, "main");
  EXPECT_EQ(file.path, "data/part-?.parquet");
  EXPECT_FALSE(file.is_table);
  const HubUri model = uri("hf://org/a.model_1");
  EXPECT_EQ(model.repo, (HubRepo{HubRepoKind::kModel, "org/a.model_1"}));
  EXPECT_EQ(model.revision, "");
  EXPECT_EQ(model.path, "");
  EXPECT_EQ(uri("hf://org/model/unet/").path, "unet");
}

TEST(hub_uri, a_revision_may_hold_slashes) {
  EXPECT_EQ(uri("hf://datasets/a/b@refs%2Fconvert%2Fparquet/default/train").revision, "refs/convert/parquet");
  const HubUri plain = uri("hf://datasets/a/b@refs/convert/parquet/default/train/0000.parquet");
  EXPECT_EQ(plain.revision, "refs/convert/parquet");
  EXPECT_EQ(plain.path, "default/train/0000.parquet");
  EXPECT_EQ(uri("hf://a/b@refs/pr/12/x.json").revision, "refs/pr/12");
  EXPECT_EQ(uri("hf://datasets/a/b@~parquet/x").revision, "refs/convert/parquet");
  EXPECT_EQ(plain.to_string(), "hf://datasets/a/b@refs%2Fconvert%2Fparquet/default/train/0000.parquet");
}

TEST(hub_uri, config_and_split_are_a_table) {
  const HubUri table = uri("hf://datasets/a/b?config=en%20x&split=train");
  EXPECT_TRUE(table.is_table);
  EXPECT_EQ(table.config, "en x");
  EXPECT_EQ(table.split, "train");
  EXPECT_EQ(uri("hf://datasets/a/b?split=test").config, "");
  EXPECT_EQ(table.to_string(), "hf://datasets/a/b?config=en%20x&split=train");
}

TEST(hub_uri, is_read_again_as_it_was_written) {
  for (const char* text :
       {"hf://a/b", "hf://a/b@v1/x/y z.txt", "hf://datasets/a/b@refs%2Fpr%2F1/a%20b", "hf://datasets/a/b?config=c&split=s"}) {
    EXPECT_EQ(uri(text).to_string(), text);
  }
}

TEST(hub_uri, refuses_what_is_none) {
  for (const char* text : {"https://huggingface.co/a/b",
                           "hf://",
                           "hf://a",
                           "hf://datasets/a",
                           "hf:///a/b",
                           "hf://a/",
                           "hf://a/..",
                           "hf://a/.git",
                           "hf://a b/c",
                           "hf://a/b/../c",
                           "hf://a/b//c",
                           "hf://a/b/./c",
                           "hf://a/b@%zz",
                           "hf://a/b@%2",
                           "hf://a/b@%0a",
                           "hf://a/b@..%2Fx",
                           "hf://datasets/a/b?config=",
                           "hf://datasets/a/b?config=x&config=y",
                           "hf://datasets/a/b?config=x&other=1",
                           "hf://datasets/a/b/file?config=x",
                           "hf://datasets/a/b@main?split=x",
                           "hf://a/b?config=x"}) {
    const Result<HubUri> parsed = HubUri::parse(text);
    ASSERT_FALSE(parsed.is_ok()) << text;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(parsed.status().message().ends_with(shown_uri(text))) << parsed.status().message();
  }
}

struct Around {
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;

  Result<HubOptions> find() const {
    return find_hub_options({.environment = [this](const std::string& name) -> std::optional<std::string> {
                               const auto found = variables.find(name);
                               return found == variables.end() ? std::nullopt : std::optional(found->second);
                             },
                             .read_file = [this](const std::string& path) -> Result<std::string> {
                               const auto found = files.find(path);
                               return found == files.end() ? Result<std::string>(Status::not_found("no file", path)) : found->second;
                             }});
  }
  std::optional<std::string> token() const { return find().value().token; }
};

TEST(hub_options, take_the_token_of_the_first_place_that_has_one) {
  Around around{.variables = {{"HOME", "/h"}}, .files = {}};
  EXPECT_EQ(around.token(), std::nullopt);
  around.files["/h/.cache/huggingface/token"] = "of-home\n";
  EXPECT_EQ(around.token(), "of-home");
  around.variables["XDG_CACHE_HOME"] = "/cache";
  EXPECT_EQ(around.token(), std::nullopt);
  around.files["/cache/huggingface/token"] = " of-cache \r\n";
  EXPECT_EQ(around.token(), "of-cache");
  around.variables["HF_HOME"] = "~/hf";
  around.files["/h/hf/token"] = "of-hf-home";
  EXPECT_EQ(around.token(), "of-hf-home");
  around.variables["HF_TOKEN_PATH"] = "/t";
  around.files["/t"] = "of-path";
  EXPECT_EQ(around.token(), "of-path");
  around.variables["HUGGING_FACE_HUB_TOKEN"] = "of-old-variable";
  EXPECT_EQ(around.token(), "of-old-variable");
  around.variables["HF_TOKEN"] = " \r\n";  // Empty: none.
  EXPECT_EQ(around.token(), "of-old-variable");
  around.variables["HF_TOKEN"] = "of-\nvariable\n";
  EXPECT_EQ(around.token(), "of-variable");
  around.variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "True";
  EXPECT_EQ(around.token(), std::nullopt);
}

TEST(hub_options, take_endpoint_and_switches) {
  Around around;
  EXPECT_EQ(around.find()->endpoint, "https://huggingface.co");
  EXPECT_FALSE(around.find()->is_offline);
  around.variables = {{"HF_ENDPOINT", "http://mirror:8080/hub/"}, {"HF_HUB_OFFLINE", "YES"}};
  EXPECT_EQ(around.find()->endpoint, "http://mirror:8080/hub");
  EXPECT_TRUE(around.find()->is_offline);
  around.variables["HF_HUB_OFFLINE"] = "0";
  EXPECT_FALSE(around.find()->is_offline);
  around.variables["HF_ENDPOINT"] = "ftp://mirror";
  EXPECT_EQ(around.find().status().code(), StatusCode::kInvalidArgument);
}

TEST(hub_options, never_show_a_token) {
  const Around around{.variables = {{"HF_TOKEN", "sec ret\x01token"}}, .files = {}};
  const Status refused = around.find().status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), Not(HasSubstr("ret")));
}

TEST(hub_options, a_token_file_that_cannot_be_read_is_an_error) {
  const auto denied = [](const std::string& path) -> Result<std::string> { return Status::failed_precondition("no permission", path); };
  const auto no_variable = [](const std::string&) { return std::optional<std::string>(); };
  EXPECT_EQ(find_hub_options({.environment = no_variable, .read_file = denied}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(hub_documents, read_a_tree) {
  const std::string git(40, 'a');
  const std::string hash(64, 'b');
  const auto files = read_hub_tree(R"([{"type":"directory","oid":"x","size":0,"path":"unet"},
    {"type":"file","oid":")" + git + R"(","size":12,"path":"unet/config.json","new":[1]},
    {"type":"file","oid":")" + git + R"(","size":3,"path":"w.bin","lfs":{"oid":")" +
                                       hash + R"(","size":5000000000,"pointerSize":3}}])",
                                   "hf://a/b");
  ASSERT_TRUE(files.is_ok()) << files.status().to_string();
  ASSERT_EQ(files->size(), 3u);
  EXPECT_TRUE((*files)[0].is_folder);
  EXPECT_EQ((*files)[1].git_sha1, git);
  EXPECT_EQ((*files)[1].size_bytes, 12);
  EXPECT_EQ((*files)[1].sha256, "");
  EXPECT_EQ((*files)[2].sha256, hash);
  EXPECT_EQ((*files)[2].size_bytes, 5'000'000'000);
}

TEST(hub_documents, refuse_paths_that_lead_elsewhere_and_lies) {
  for (const char* path : {"", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".", "a/.", "a\\u0000b", "a\\nb"}) {
    const auto files = read_hub_tree(fmt::format(R"([{{"type":"file","oid":"","size":1,"path":"{}"}}])", path), "hf://a/b");
    EXPECT_EQ(files.status().code(), StatusCode::kCorruptData) << path;
    EXPECT_TRUE(files.status().message().ends_with("hf://a/b")) << files.status().message();
  }
  for (const char* text :
       {"", "{}", "[1]", R"([{"path":"a","type":"link","size":1}])", R"([{"path":"a","type":"file","size":-1}])",
        R"([{"path":"a","type":"file","size":1.5}])", R"([{"path":"a","type":"file","size":18446744073709551615}])",
        R"([{"path":"a","type":"file","size":1,"oid":"XY"}])", R"([{"path":"a","type":"file","size":1,"lfs":{"oid":"12"}}])"}) {
    EXPECT_EQ(read_hub_tree(text, "hf://a/b").status().code(), StatusCode::kCorruptData) << text;
  }
  EXPECT_EQ(read_hub_tree(std::string(100'000, '['), "hf://a/b").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_hub_commit(R"({"sha":"main"})", "hf://a/b").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_hub_splits(R"({"a":{"b":1}})", "hf://a/b").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_hub_splits("[]", "hf://a/b").status().code(), StatusCode::kCorruptData);
}

TEST(hub_documents, find_the_next_page) {
  EXPECT_EQ(next_link("<https://h/api?cursor=a%3D>; rel=\"next\""), "https://h/api?cursor=a%3D");
  EXPECT_EQ(next_link("<https://h/first>; rel=\"first\", <https://h/x,y>; title=\"t\"; rel=next"), "https://h/x,y");
  for (const char* none : {"", "https://h/a; rel=next", "<https://h/a>", "<https://h/a>; rel=\"prev\"", "<https://h/a; rel=\"next\""}) {
    EXPECT_EQ(next_link(none), std::nullopt) << none;
  }
  EXPECT_EQ(plain_etag("W/\"abc\""), "abc");
  EXPECT_EQ(plain_etag("\"abc\""), "abc");
  EXPECT_EQ(plain_etag("abc"), "abc");
}

// FIPS 180-4's examples, and git's name of an empty blob.
TEST(sha1, equals_the_published_digests) {
  const auto digest = [](const std::string& text, size_t piece) {
    Sha1 sha1;
    for (size_t i = 0; i < text.size(); i += piece) {
      sha1.update(std::as_bytes(std::span(text).subspan(i, std::min(piece, text.size() - i))));
    }
    return sha1.finish_hex();
  };
  EXPECT_EQ(digest("", 1), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(digest("abc", 1), "a9993e364706816aba3e25717850c26c9cd0d89d");
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  for (const size_t piece : {1u, 3u, 55u, 56u, 64u}) {
    EXPECT_EQ(digest(two_blocks, piece), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  }
  EXPECT_EQ(digest(std::string(1'000'000, 'a'), 63), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  EXPECT_EQ(digest(std::string("blob 0\0", 7), 7), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

}  // namespace
}  // namespace darkroom
