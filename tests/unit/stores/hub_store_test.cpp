#include "darkroom/stores/hub_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub_caller.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

class hub_store : public HubTest {
 protected:
  Store& store() { return *store_; }
  std::string at_commit(const std::string& path) const { return "org/model@" + model_commit_ + "/" + path; }
  Result<std::string> read(const InputFile& file, int64_t offset, size_t size) {
    std::string bytes(size, '\0');
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, std::as_writable_bytes(std::span(bytes))));
    bytes.resize(num_read);
    return bytes;
  }

  FakeClock clock_;
  HubClient client_ = client();
  std::unique_ptr<Store> store_ = make_hub_store(client_, clock_);
};

TEST_F(hub_store, reads_parts_asking_the_hub_once) {
  const auto file = store().open_input(at_commit("unet/a.safetensors")).value();
  EXPECT_EQ(file->size_bytes(), 5000);
  EXPECT_EQ(read(*file, 0, 10).value(), large_.substr(0, 10));
  EXPECT_EQ(read(*file, 4990, 100).value(), large_.substr(4990));
  EXPECT_EQ(read(*file, 5000, 1).value(), "");
  std::string first(7, '\0');
  std::string second(9, '\0');
  const std::vector<ByteRange> ranges = {{2000, 7}, {1000, 9}};
  const std::vector<std::span<std::byte>> out = {std::as_writable_bytes(std::span(first)), std::as_writable_bytes(std::span(second))};
  ASSERT_TRUE(file->read_ranges(ranges, out).is_ok());
  EXPECT_EQ(first, large_.substr(2000, 7));
  EXPECT_EQ(second, large_.substr(1000, 9));
  EXPECT_EQ(hub_.hub_requests().size(), 1u);
  EXPECT_EQ(hub_.bytes_requests().size(), 3u);
  const std::vector<ByteRange> beyond = {{4999, 7}};
  EXPECT_EQ(file->read_ranges(beyond, std::span(out).first(1)).code(), StatusCode::kCorruptData);
}

TEST_F(hub_store, asks_the_hub_again_when_a_place_expires) {
  const auto file = store().open_input(at_commit("unet/a.safetensors")).value();
  EXPECT_TRUE(read(*file, 0, 10).is_ok());
  hub_.expire_urls();
  EXPECT_EQ(read(*file, 10, 10).value(), large_.substr(10, 10));
  EXPECT_EQ(hub_.hub_requests().size(), 2u);
  clock_.advance(kHubPlaceAge);
  EXPECT_TRUE(read(*file, 20, 10).is_ok());
  EXPECT_EQ(hub_.hub_requests().size(), 3u);
  hub_.set_bytes_fault([](const Request&) { return Answer{http_answer(403, "never")}; });
  const Status refused = read(*file, 30, 10).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message().find("ticket"), std::string::npos) << refused.message();
}

TEST_F(hub_store, notices_a_file_that_changes_in_the_middle) {
  const auto file = store().open_input("org/model@main/unet/a.safetensors").value();
  EXPECT_TRUE(read(*file, 0, 10).is_ok());
  hub_.add("models/org/model", "main", {{"unet/a.safetensors", {bytes_of(5000, 2), true}}});
  hub_.expire_urls();
  const Status changed = read(*file, 10, 10).status();
  EXPECT_EQ(changed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(changed.message(), HasSubstr("changed"));
  const auto listed = store().open_input("org/model@main/unet/a.safetensors", 4999).value();
  EXPECT_EQ(read(*listed, 0, 1).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(hub_store, tells_of_files_and_folders) {
  EXPECT_EQ(store().stat(at_commit("README.md")).value(), (FileInfo{at_commit("README.md"), 7, false}));
  EXPECT_TRUE(store().stat(at_commit("unet")).value().is_folder);
  EXPECT_TRUE(store().stat("org/model@main").value().is_folder);
  EXPECT_EQ(store().stat(at_commit("nothing")).status().code(), StatusCode::kNotFound);
  const std::string root = "org/model@" + model_commit_;
  EXPECT_THAT(store().list(root).value(), ElementsAre(FileInfo{root + "/README.md", 7, false}, FileInfo{root + "/unet", 0, true}));
  EXPECT_THAT(store().list(root + "/unet").value(), ElementsAre(FileInfo{root + "/unet/a.safetensors", 5000, false}));
  std::vector<std::string> found;
  ASSERT_TRUE(store()
                  .list_tree(root, {},
                             [&](std::span<const FileInfo> page) {
                               std::ranges::transform(page, std::back_inserter(found), &FileInfo::path);
                               return Status::ok();
                             })
                  .is_ok());
  EXPECT_THAT(found, ElementsAre(root + "/README.md", root + "/unet/a.safetensors"));
  EXPECT_EQ(store().uri_of(root), "hf://" + root);
}

TEST_F(hub_store, says_that_nothing_is_there_only_when_the_hub_has_said_so) {
  hub_.set_hub_fault([](const Request& request) -> std::optional<Answer> {
    return request.head.find("/tree/") != std::string::npos ? std::optional(Answer{http_answer(503, "")}) : std::nullopt;
  });
  EXPECT_EQ(store().stat(at_commit("unet")).status().code(), StatusCode::kUnavailable);
}

TEST_F(hub_store, reads_tails_and_small_files) {
  const ObjectTail tail = store().read_tail(at_commit("unet/a.safetensors"), 64).value();
  EXPECT_EQ(tail.size_bytes, 5000);
  EXPECT_EQ(tail.bytes, large_.substr(4936));
  EXPECT_EQ(tail.version, sha256_hex(large_));
  EXPECT_EQ(store().read_tail(at_commit("README.md"), 100).value().bytes, "read me");
  EXPECT_EQ(store().read_tail(at_commit("README.md"), 0).value().bytes, "");
  EXPECT_EQ(store().read_small(at_commit("README.md")).value(), "read me");
  EXPECT_EQ(store().read_small(at_commit("README.md"), 6).status().code(), StatusCode::kCorruptData);
}

TEST_F(hub_store, refuses_to_be_written) {
  EXPECT_FALSE(store().is_writable());
  const auto refused = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("hf://org/model"));
  };
  refused(store().begin_object("org/model", "x").status());
  refused(store().begin_folder("org/model", "x").status());
  refused(store().replace_small("org/model/x", "a"));
  refused(store().create_small("org/model/x", "a").status());
  refused(store().remove("org/model/x"));
  refused(store().remove_tree("org/model"));
  refused(store().move_object("org/model/x", "org/model/y"));
  refused(store().sweep("org/model", {}, {}).status());
  refused(store().first_wins("org/model").status());
}

}  // namespace
}  // namespace darkroom
