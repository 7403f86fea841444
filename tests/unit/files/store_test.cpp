#include "darkroom/files/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "support/poor_files.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

enum class Disk { kLocal, kMemory, kNoNoReplace, kNoLocks, kNeither };

std::string name_of_disk(Disk disk) {
  return std::array{"local", "memory", "no_no_replace", "no_locks", "neither"}.at(static_cast<size_t>(disk));
}

/// Every kind of file system keeps the same contract.
class AnyStore : public testing::TestWithParam<Disk> {
 protected:
  bool is_local() const { return GetParam() == Disk::kLocal; }
  bool has_no_replace() const { return GetParam() != Disk::kNoNoReplace && GetParam() != Disk::kNeither; }
  std::string at(const std::string& name) const { return join_path(root_, name); }
  void put(const std::string& name, std::string_view text) { ASSERT_TRUE(store_->replace_small(at(name), text).is_ok()) << name; }
  std::string text_of(const std::string& name) { return store_->read_small(at(name)).value(); }
  std::vector<std::string> all_names() {
    std::vector<std::string> names;
    const auto page = [&](std::span<const FileInfo> files) {
      for (const FileInfo& file : files) {
        names.push_back(file.path.substr(root_.size() + 1));
      }
      return Status::ok();
    };
    EXPECT_TRUE(store_->list_tree(root_, {}, page).is_ok());
    return names;
  }
  Result<PublishOutcome> publish(const std::string& name, std::string_view text) {
    DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<PendingObject> object, store_->begin_object(root_, name));
    DARKROOM_RETURN_IF_ERROR(object->write_text(text));
    return object->publish();
  }

  void SetUp() override {
    FileSystem& whole = is_local() ? local_files() : memory_;
    const bool has_locks = GetParam() != Disk::kNoLocks && GetParam() != Disk::kNeither;
    poor_ = std::make_unique<PoorFiles>(whole, Poverty{.has_no_replace = has_no_replace(), .has_locks = has_locks});
    store_ = make_posix_store(*poor_, is_local() ? "file" : "memory");
    ASSERT_TRUE(whole.create_folders(root_).is_ok());
  }

  TemporaryFolder folder_;
  MemoryFileSystem memory_;
  std::string root_ = folder_.path();
  std::unique_ptr<PoorFiles> poor_;
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(Disks, AnyStore, testing::Values(Disk::kLocal, Disk::kMemory, Disk::kNoNoReplace, Disk::kNoLocks, Disk::kNeither),
                         [](const auto& info) { return name_of_disk(info.param); });

TEST_P(AnyStore, shows_nothing_of_an_object_before_publish_and_all_after) {
  auto object = store_->begin_object(root_, "part").value();
  const std::string first = "one ";
  const std::string second = "two";
  const std::array<std::span<const std::byte>, 2> pieces = {std::as_bytes(std::span(first)), std::as_bytes(std::span(second))};
  ASSERT_TRUE(object->write(pieces).is_ok());
  ASSERT_TRUE(object->write_text(" three").is_ok());
  EXPECT_EQ(object->num_bytes(), 13);
  EXPECT_EQ(object->describe(), store_->uri_of(at("part")));
  EXPECT_EQ(store_->stat(at("part")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(object->publish().value(), PublishOutcome::kPublished);
  object.reset();
  EXPECT_EQ(text_of("part"), "one two three");
  EXPECT_THAT(all_names(), ElementsAre("part"));
}

TEST_P(AnyStore, publishes_an_object_without_bytes) {
  EXPECT_EQ(publish("part", "").value(), PublishOutcome::kPublished);
  EXPECT_EQ(text_of("part"), "");
}

TEST_P(AnyStore, keeps_the_first_of_two_objects) {
  auto first = store_->begin_object(root_, "part").value();
  auto second = store_->begin_object(root_, "part").value();
  ASSERT_TRUE(first->write_text("first").is_ok());
  ASSERT_TRUE(second->write_text("second").is_ok());
  EXPECT_EQ(second->publish().value(), PublishOutcome::kPublished);
  EXPECT_EQ(first->publish().value(), PublishOutcome::kAlreadyThere);
  first.reset();
  second.reset();
  EXPECT_EQ(publish("part", "third").value(), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(text_of("part"), "second");
  EXPECT_THAT(all_names(), ElementsAre("part"));
}

TEST_P(AnyStore, takes_everything_back_that_was_not_published) {
  auto object = store_->begin_object(root_, "part").value();
  ASSERT_TRUE(object->write_text("rows").is_ok());
  object.reset();
  auto folder = store_->begin_folder(root_, "step").value();
  ASSERT_TRUE(store_->replace_small((folder->folder() / "weights").path, "bytes").is_ok());
  folder.reset();
  EXPECT_THAT(all_names(), IsEmpty());
}

TEST_P(AnyStore, takes_object_names_as_long_as_a_disk_does_and_of_any_bytes) {
  for (const std::string& name :
       {std::string(255, 'n'), std::string(255, 'm'), std::string("100 % \xff\n\".commit-1"), std::string("\xc3\xa4")}) {
    EXPECT_EQ(publish(name, name).value(), PublishOutcome::kPublished) << name;
    EXPECT_EQ(publish(name, "other").value(), PublishOutcome::kAlreadyThere) << name;
    EXPECT_EQ(text_of(name), name);
  }
  EXPECT_EQ(all_names().size(), 4u);
}

TEST_P(AnyStore, refuses_names_that_are_paths) {
  EXPECT_THROW((void)store_->begin_object(root_, "a/b"), CheckFailure);
  EXPECT_THROW((void)store_->begin_object(root_, ""), CheckFailure);
  EXPECT_THROW((void)store_->begin_folder(root_, "a/b"), CheckFailure);
}

TEST_P(AnyStore, publishes_a_folder_with_its_record_once) {
  for (const PublishOutcome want : {PublishOutcome::kPublished, PublishOutcome::kAlreadyThere}) {
    auto folder = store_->begin_folder(root_, "step-1").value();
    ASSERT_TRUE(store_->replace_small((folder->folder() / "state.txt").path, "x").is_ok());
    auto weights = store_->begin_object((folder->folder() / "unet").path, "weights").value();
    ASSERT_TRUE(weights->write_text("bytes").is_ok());
    ASSERT_EQ(weights->publish().value(), PublishOutcome::kPublished);
    EXPECT_FALSE((Location{store_.get(), at("step-1")}.exists().value() && want == PublishOutcome::kPublished));
    EXPECT_EQ(folder->publish("state.json", "{}").value(), want);
  }
  EXPECT_THAT(all_names(), ElementsAre("step-1/state.json", "step-1/state.txt", "step-1/unet/weights"));
  EXPECT_EQ(text_of("step-1/state.json"), "{}");
  const auto entries = store_->list(at("step-1/unet")).value();
  EXPECT_EQ(entries.size(), 1u) << "no _tmp is published";
  EXPECT_EQ(store_->list(root_).value().size(), 1u) << "no _tmp is left beside it";
}

TEST_P(AnyStore, publishes_a_folder_without_a_record_but_none_that_is_empty) {
  auto empty = store_->begin_folder(root_, "model").value();
  EXPECT_EQ(empty->publish("", "").status().code(), StatusCode::kFailedPrecondition);
  auto folder = store_->begin_folder(root_, "model").value();
  ASSERT_TRUE(store_->replace_small((folder->folder() / "config.json").path, "{}").is_ok());
  EXPECT_EQ(folder->publish("", "").value(), PublishOutcome::kPublished);
  EXPECT_THROW((void)folder->publish("", ""), CheckFailure);
  EXPECT_THAT(all_names(), ElementsAre("model/config.json"));
}

TEST_P(AnyStore, a_record_that_was_written_as_a_file_is_an_error) {
  auto folder = store_->begin_folder(root_, "model").value();
  ASSERT_TRUE(store_->replace_small((folder->folder() / "state.json").path, "{}").is_ok());
  EXPECT_EQ(folder->publish("state.json", "{}").status().code(), StatusCode::kAlreadyExists);
  folder.reset();
  EXPECT_THAT(all_names(), IsEmpty());
}

TEST_P(AnyStore, creates_a_small_object_once) {
  EXPECT_TRUE(store_->create_small(at("claims/7"), "first").value());
  EXPECT_FALSE(store_->create_small(at("claims/7"), "second").value());
  EXPECT_EQ(text_of("claims/7"), "first");
  ASSERT_TRUE(store_->replace_small(at("claims/7"), "third").is_ok());
  EXPECT_EQ(text_of("claims/7"), "third");
  EXPECT_FALSE(store_->create_small(at("claims/7"), "fourth").value());
  ASSERT_TRUE(store_->remove(at("claims/7")).is_ok());
  ASSERT_TRUE(store_->remove(at("claims/7")).is_ok());
  EXPECT_THAT(all_names(), IsEmpty());
  EXPECT_TRUE(store_->create_small(at("claims/7"), "fifth").value());
  EXPECT_EQ(text_of("claims/7"), "fifth");
}

TEST_P(AnyStore, a_folder_of_objects_is_no_object) {
  put("folder/inner", "x");
  EXPECT_FALSE(store_->create_small(at("folder"), "bytes").value());
  EXPECT_EQ(store_->remove(at("folder")).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->read_small(at("folder")).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(store_->replace_small(at("folder"), "bytes").is_ok());
  EXPECT_THAT(all_names(), ElementsAre("folder/inner"));
}

TEST_P(AnyStore, reads_small_objects_up_to_the_bound) {
  for (const size_t size : {0u, 1u, 4095u, 4096u, 4097u, 100'003u}) {
    put("object", std::string(size, 'x'));
    EXPECT_EQ(store_->read_small(at("object"), static_cast<int64_t>(size)).value(), std::string(size, 'x'));
    if (size > 0) {
      const Result<std::string> text = store_->read_small(at("object"), static_cast<int64_t>(size) - 1);
      EXPECT_EQ(text.status().code(), StatusCode::kCorruptData);
      EXPECT_THAT(text.status().message(), HasSubstr(at("object")));
    }
  }
  EXPECT_EQ(store_->read_small(at("none")).status().code(), StatusCode::kNotFound);
}

TEST_P(AnyStore, reads_the_end_of_an_object) {
  put("object", "0123456789");
  for (const auto& [num_bytes, want] : {std::pair<int64_t, std::string>{0, ""}, {1, "9"}, {10, "0123456789"}, {11, "0123456789"}}) {
    const ObjectTail tail = store_->read_tail(at("object"), num_bytes).value();
    EXPECT_EQ(tail.bytes, want);
    EXPECT_EQ(tail.size_bytes, 10);
  }
  EXPECT_EQ(store_->read_tail(at("none"), 4).status().code(), StatusCode::kNotFound);
}

TEST_P(AnyStore, reads_many_ranges_and_says_when_the_file_is_too_short) {
  put("object", "0123456789");
  const auto file = store_->open_input(at("object")).value();
  std::string out = "????";
  const auto bytes = std::as_writable_bytes(std::span(out));
  const std::array<std::span<std::byte>, 3> buffers = {bytes.first(1), bytes.subspan(1, 0), bytes.subspan(1)};
  const std::array<ByteRange, 3> ranges = {{{.offset = 9, .num_bytes = 1}, {.offset = 3, .num_bytes = 0}, {.offset = 2, .num_bytes = 3}}};
  ASSERT_TRUE(file->read_ranges(ranges, buffers).is_ok());
  EXPECT_EQ(out, "9234");
  const std::array<ByteRange, 3> late = {{{.offset = 9, .num_bytes = 1}, {.offset = 3, .num_bytes = 0}, {.offset = 8, .num_bytes = 3}}};
  const Status cut = file->read_ranges(late, buffers);
  EXPECT_EQ(cut.code(), StatusCode::kCorruptData);
  EXPECT_THAT(cut.message(), testing::AllOf(HasSubstr(at("object")), HasSubstr("8 3 2")));
  EXPECT_THROW((void)file->read_ranges(std::span(ranges).first(2), buffers), CheckFailure);
}

TEST_P(AnyStore, lists_a_tree_in_byte_order_of_the_paths) {
  for (const char* name : {"b/2", "b.x", "b-", "a", "b/c/1", "Z", "b0", "\xc3\xa9"}) {
    put(name, "x");
  }
  EXPECT_THAT(all_names(), ElementsAre("Z", "a", "b-", "b.x", "b/2", "b/c/1", "b0", "\xc3\xa9"));
}

TEST_P(AnyStore, moves_an_object_and_again) {
  put("a/part", "bytes");
  ASSERT_TRUE(store_->move_object(at("a/part"), at("old/part")).is_ok());
  EXPECT_THAT(all_names(), ElementsAre("old/part"));
  EXPECT_TRUE(store_->move_object(at("a/part"), at("old/part")).is_ok()) << "after a crash it is done again";
  put("a/part", "bytes");
  EXPECT_TRUE(store_->move_object(at("a/part"), at("old/part")).is_ok()) << "as a store leaves it that copies and was killed";
  EXPECT_THAT(all_names(), ElementsAre("old/part"));
  EXPECT_EQ(text_of("old/part"), "bytes");
}

TEST_P(AnyStore, moves_nothing_over_another_object) {
  for (const char* other : {"BYTES", "longer bytes", ""}) {
    put("a", "bytes");
    put("b", other);
    EXPECT_EQ(store_->move_object(at("a"), at("b")).code(), StatusCode::kAlreadyExists);
    EXPECT_EQ(text_of("a"), "bytes");
    EXPECT_EQ(text_of("b"), other);
  }
  EXPECT_EQ(store_->move_object(at("none"), at("nowhere")).code(), StatusCode::kNotFound);
  EXPECT_THROW((void)store_->move_object(at("a"), at("./a")), CheckFailure);
}

TEST_P(AnyStore, moves_over_another_object_and_again) {
  put("a", "bytes");
  put("old/a", "of long ago");
  ASSERT_TRUE(store_->move_over(at("a"), at("old/a")).is_ok());
  EXPECT_THAT(all_names(), ElementsAre("old/a"));
  EXPECT_EQ(text_of("old/a"), "bytes");
  EXPECT_TRUE(store_->move_over(at("a"), at("old/a")).is_ok()) << "as who comes second";
  EXPECT_EQ(text_of("old/a"), "bytes");
  EXPECT_EQ(store_->move_over(at("none"), at("nowhere")).code(), StatusCode::kNotFound);
  EXPECT_THROW((void)store_->move_over(at("a"), at("./a")), CheckFailure);
}

TEST_P(AnyStore, knows_how_the_first_wins) {
  EXPECT_EQ(store_->first_wins(root_).value(), has_no_replace() ? FirstWins::kAtomic : FirstWins::kCommitRecord);
  EXPECT_THAT(all_names(), IsEmpty());
}

TEST_P(AnyStore, names_places) {
  const Location root{store_.get(), root_};
  const Location place = root / "folder" / "name";
  EXPECT_EQ(place.path, at("folder/name"));
  EXPECT_EQ(place.name(), "name");
  EXPECT_EQ(place.parent().path, at("folder"));
  EXPECT_EQ(place.uri(), is_local() ? place.path : "memory://" + place.path);
  EXPECT_EQ(store_->local_path("/x"), is_local() ? std::optional<std::string>("/x") : std::nullopt);
  EXPECT_TRUE(store_->is_writable());
  EXPECT_FALSE(place.exists().value());
  put("folder/name", "");
  EXPECT_TRUE(place.exists().value());
}

TEST(ListTree, hands_over_pages_and_stops_between_them) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.create_folders("in").is_ok());
  for (int file = 0; file < 2500; ++file) {
    ASSERT_TRUE(files.create(fmt::format("in/{:04}", file)).is_ok());
  }
  const auto store = make_posix_store(files, "memory");
  std::vector<size_t> sizes;
  std::stop_source stop;
  const auto count = [&](std::span<const FileInfo> page) {
    sizes.push_back(page.size());
    return Status::ok();
  };
  ASSERT_TRUE(store->list_tree("in", stop.get_token(), count).is_ok());
  EXPECT_THAT(sizes, ElementsAre(1000u, 1000u, 500u));
  const auto refuse = [](std::span<const FileInfo>) { return Status::corrupt_data("enough"); };
  EXPECT_EQ(store->list_tree("in", stop.get_token(), refuse).code(), StatusCode::kCorruptData);
  sizes.clear();
  const auto stop_at_once = [&](std::span<const FileInfo> page) {
    stop.request_stop();
    return count(page);
  };
  EXPECT_EQ(store->list_tree("in", stop.get_token(), stop_at_once).code(), StatusCode::kCancelled);
  EXPECT_THAT(sizes, ElementsAre(1000u));
  EXPECT_EQ(store->list_tree("none", {}, count).code(), StatusCode::kNotFound);
}

TEST(ListTree, goes_64_folders_deep_and_no_deeper) {
  MemoryFileSystem files;
  std::string folder = "in";
  for (int depth = 0; depth < 64; ++depth) {
    folder += "/d";
  }
  ASSERT_TRUE(files.create_folders(folder).is_ok());
  const auto store = make_posix_store(files, "memory");
  const auto ignore = [](std::span<const FileInfo>) { return Status::ok(); };
  EXPECT_TRUE(store->list_tree("in", {}, ignore).is_ok());
  ASSERT_TRUE(files.create_folders(folder + "/d").is_ok());
  EXPECT_EQ(store->list_tree("in", {}, ignore).code(), StatusCode::kFailedPrecondition);
}

/// Files that rename, and then say that what was to be renamed is not there, as NFS does when it asks again after a lost reply.
class ForgetfulFiles final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    const Status renamed = ForwardingFiles::rename_no_replace(from, to);
    return renamed.is_ok() ? Status::not_found("no such file", from) : renamed;
  }
};

TEST(LostReply, an_object_is_visible_after_it) {
  MemoryFileSystem memory;
  ForgetfulFiles files(memory);
  const auto store = make_posix_store(files, "memory");
  auto object = store->begin_object("out", "part").value();
  ASSERT_TRUE(object->write_text("rows").is_ok());
  EXPECT_EQ(object->publish().value(), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(store->read_small("out/part").value(), "rows");
}

/// Files where a small object goes and comes again between two steps of whoever looks at it.
class RestlessFiles final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    return is_absent(path) ? Result<std::unique_ptr<InputFile>>(Status::not_found("gone", path)) : ForwardingFiles::open_input(path);
  }
  Result<FileInfo> stat(const std::string& path) override {
    return is_absent(path) ? Result<FileInfo>(Status::not_found("gone", path)) : ForwardingFiles::stat(path);
  }
  int num_absent = 0;

 private:
  bool is_absent(const std::string& path) { return path == "out/claim/_content" && num_absent > 0 && num_absent-- > 0; }
};

TEST(SmallObject, that_goes_and_comes_again_is_looked_at_again) {
  MemoryFileSystem memory;
  PoorFiles poor(memory, {.has_no_replace = false, .has_locks = true});
  RestlessFiles files(poor);
  const auto store = make_posix_store(files, "memory");
  ASSERT_TRUE(store->create_small("out/claim", "first").value());
  files.num_absent = 1;
  EXPECT_EQ(store->read_small("out/claim").value(), "first");
  files.num_absent = 1;
  EXPECT_TRUE(store->replace_small("out/claim", "second").is_ok());
  EXPECT_EQ(store->read_small("out/claim").value(), "second");
  files.num_absent = 1;
  EXPECT_TRUE(store->remove("out/claim").is_ok());
  EXPECT_FALSE(memory.exists("out/claim").value());
}

TEST(LocalStore, is_the_disk_of_this_machine) {
  const TemporaryFolder folder;
  ASSERT_TRUE(local_store().replace_small(folder.path("a"), "x").is_ok());
  EXPECT_EQ(read_file(local_files(), folder.path("a")).value(), "x");
  EXPECT_EQ(local_store().scheme(), "file");
}

}  // namespace
}  // namespace darkroom
