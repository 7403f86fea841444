#include "tables/picture_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "unit/tables/table_rows.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A folder of pictures in memory.
class PictureFolder : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    const Status status = put_file(files_, "in/" + name, bytes);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  std::unique_ptr<TableReader> open() {
    auto table = open_table(files_, "in/");
    EXPECT_TRUE(table.is_ok()) << table.status().to_string();
    return table.is_ok() ? *std::move(table) : nullptr;
  }
  std::vector<std::string> column(const std::string& name) {
    const auto batch = read_range(*open(), 0, 1000, {name});
    EXPECT_TRUE(batch.is_ok()) << batch.status().to_string();
    return batch.is_ok() ? texts(*batch, name) : std::vector<std::string>();
  }
  Status failure() { return open_table(files_, "in/").status(); }

  MemoryFileSystem files_;
};

TEST_F(PictureFolder, a_row_is_a_picture_in_byte_order_of_the_paths) {
  for (const char* name :
       {"b.png", "a/z.JPG", "a.jpg", "a/b/c.webp", "a-x.jpeg", "README.md", "x.json", "_hidden/x.jpg", ".x.jpg", "a/_x.jpg"}) {
    put(name, std::string("bytes of ") + name);
  }
  put("b.txt", "a bee\n");
  put("a/z.txt", "zed");
  put("a/c.txt", "nobody's");
  const auto table = open();
  EXPECT_EQ(table->format(), TableFormat::kFolder);
  EXPECT_EQ(*table->num_rows(), 5);
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("image", "caption", "file_name"));
  EXPECT_THAT(column("file_name"), ElementsAre("a-x.jpeg", "a.jpg", "a/b/c.webp", "a/z.JPG", "b.png"));
  EXPECT_THAT(column("caption"), ElementsAre("", "", "", "zed", "a bee"));
  EXPECT_THAT(column("image"),
              ElementsAre("bytes of a-x.jpeg", "bytes of a.jpg", "bytes of a/b/c.webp", "bytes of a/z.JPG", "bytes of b.png"));
}

TEST_F(PictureFolder, any_range_gives_the_rows_of_the_whole) {
  std::vector<std::string> names;
  for (int i = 0; i < 23; ++i) {
    names.push_back(fmt::format("{:02}.jpg", i));
    put(names.back(), std::string(static_cast<size_t>(i), 'p'));
  }
  const auto table = open();
  for (int64_t first = 0; first < 25; ++first) {
    for (const int64_t count : {0, 1, 5, 100}) {
      const auto begin = names.begin() + std::min<int64_t>(first, 23);
      const auto end = names.begin() + std::min<int64_t>(first + count, 23);
      EXPECT_EQ(texts(*read_range(*table, first, count, {"file_name", "image"}, {.batch_bytes = 10, .max_batch_rows = 3}), "file_name"),
                std::vector<std::string>(begin, end));
    }
  }
}

TEST_F(PictureFolder, the_identity_is_that_of_pictures_and_their_captions) {
  put("a.jpg", "one");
  put("a.txt", "caption");
  const auto identity = open()->identity();
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->size_bytes, 10);
  put("README.txt", "of no row");
  EXPECT_EQ(open()->identity()->sha256, identity->sha256);
  put("b.jpg", "two");
  EXPECT_NE(open()->identity()->sha256, identity->sha256);
  ASSERT_TRUE(files_.remove_file("in/b.jpg").is_ok());
  EXPECT_EQ(open()->identity()->sha256, identity->sha256);
  put("a.txt", "a longer caption");
  EXPECT_NE(open()->identity()->sha256, identity->sha256);
}

TEST_F(PictureFolder, a_picture_that_changed_since_the_listing_is_an_error_and_a_long_text_costs_its_row) {
  put("a.jpg", "one");
  put("b.jpg", "two");
  put("b.txt", std::string(2 << 20, 'x'));
  const auto table = open();
  const auto range = *table->read_rows(0, 5, {"caption"});
  EXPECT_THAT(texts(*read_all(*range), "caption"), ElementsAre("", "<null>"));
  EXPECT_EQ(range->num_malformed_rows(), 1);
  put("a.jpg", "another one");
  const Status status = read_range(*table, 0, 5).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("in/a.jpg"));
  ASSERT_TRUE(files_.remove_file("in/a.jpg").is_ok());
  EXPECT_EQ(read_range(*table, 0, 5).status().code(), StatusCode::kNotFound);
}

TEST_F(PictureFolder, an_imagefolder_joins_its_metadata_with_the_pictures) {
  put("train/b.png", "bee");
  put("train/a.png", "ay");
  put("metadata.jsonl", R"({"file_name": "train/b.png", "text": "a bee", "stars": 5, "image": "i"}
{"file_name": "./train/a.png", "text": "an ay"}
)");
  const auto table = open();
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("image", "file_name", "text", "stars", "input_image"));
  EXPECT_EQ(*table->num_rows(), 2);
  EXPECT_THAT(column("image"), ElementsAre("bee", "ay"));
  EXPECT_THAT(column("text"), ElementsAre("a bee", "an ay"));
  EXPECT_THAT(column("stars"), ElementsAre("5", "<null>"));
  EXPECT_THAT(column("input_image"), ElementsAre("i", "<null>"));
  EXPECT_THAT(texts(*read_range(*table, 1, 5, {"text", "image"}), "image"), ElementsAre("ay"));
}

TEST_F(PictureFolder, a_renamed_column_takes_no_name_that_is_there) {
  put("a.jpg", "ay");
  put("metadata.jsonl", R"({"file_name": "a.jpg", "image": "i", "input_image": "j", "Image": "k"})");
  EXPECT_THAT(open()->schema()->field_names(), ElementsAre("image", "file_name", "input_input_image", "input_image", "input_Image"));
  EXPECT_THAT(column("input_input_image"), ElementsAre("i"));
  EXPECT_THAT(column("input_image"), ElementsAre("j"));
  EXPECT_THAT(column("image"), ElementsAre("ay"));
}

TEST_F(PictureFolder, an_imagefolder_may_have_a_csv) {
  put("a.jpg", "ay");
  put("b.jpg", "bee");
  put("metadata.csv", "caption,file_name\n\"one, two\",b.jpg\nthree,a.jpg\n");
  EXPECT_THAT(column("caption"), ElementsAre("one, two", "three"));
  EXPECT_THAT(column("image"), ElementsAre("bee", "ay"));
}

TEST_F(PictureFolder, what_metadata_names_is_looked_for_in_the_folder_alone) {
  ASSERT_TRUE(put_file(files_, "secret.jpg", "secret").is_ok());
  ASSERT_TRUE(put_file(files_, "in/_hidden.jpg", "hidden").is_ok());
  put("a.jpg", "ay");
  std::string metadata;
  for (const char* name :
       {"../secret.jpg", "/secret.jpg", "a/../../secret.jpg", "_hidden.jpg", "", "missing.jpg", "metadata.jsonl", "a.jpg"}) {
    metadata += fmt::format("{{\"file_name\": \"{}\", \"text\": \"t\"}}\n", name);
  }
  put("metadata.jsonl", metadata + "garbage\n{\"text\": \"nameless\"}\n{\"file_name\": 7}\n");
  const auto range = *open()->read_rows(0, 100, {"image"});
  EXPECT_THAT(texts(*read_all(*range), "image"),
              ElementsAre("<null>", "<null>", "<null>", "<null>", "<null>", "<null>", "<null>", "ay", "<null>", "<null>", "<null>"));
  EXPECT_EQ(range->num_malformed_rows(), 10);
}

TEST_F(PictureFolder, pictures_bound_the_batches_of_an_imagefolder) {
  std::string metadata;
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) {
    names.push_back(fmt::format("{:02}.jpg", i));
    put(names.back(), std::string(100, 'p'));
    metadata += fmt::format("{{\"file_name\": \"{}\", \"caption\": \"{}\"}}\n", names.back(), i);
  }
  put("metadata.jsonl", metadata);
  const auto table = open();
  const auto range = *table->read_rows(3, 10, {"file_name", "image"}, {.batch_bytes = 250});
  EXPECT_EQ((*range->next())->num_rows(), 3);
  EXPECT_EQ(texts(*read_range(*table, 3, 10, {"file_name", "image"}, {.batch_bytes = 250}), "file_name"),
            std::vector<std::string>(names.begin() + 3, names.begin() + 13));
}

TEST_F(PictureFolder, metadata_that_cannot_be_used_is_refused_by_name) {
  put("a.jpg", "ay");
  put("metadata.jsonl", "{\"name\": \"a.jpg\"}\n");
  EXPECT_EQ(failure().code(), StatusCode::kNotFound);
  EXPECT_THAT(failure().message(), testing::AllOf(HasSubstr("metadata.jsonl"), HasSubstr("file_name")));
  put("metadata.csv", "file_name\na.jpg\n");
  EXPECT_THAT(failure().message(), testing::AllOf(HasSubstr("metadata.jsonl"), HasSubstr("metadata.csv")));
  ASSERT_TRUE(files_.remove_file("in/metadata.csv").is_ok());
  put("metadata.jsonl", "no json\n");
  EXPECT_EQ(failure().code(), StatusCode::kCorruptData);
}

TEST_F(PictureFolder, a_metadata_edit_of_one_size_is_another_folder) {
  put("a.jpg", "ay");
  put("metadata.jsonl", "{\"file_name\": \"a.jpg\", \"text\": \"one\"}\n");
  const auto identity = *open()->identity();
  put("metadata.jsonl", "{\"file_name\": \"a.jpg\", \"text\": \"two\"}\n");
  EXPECT_EQ(open()->identity()->size_bytes, identity.size_bytes);
  EXPECT_NE(open()->identity()->sha256, identity.sha256);
}

}  // namespace
}  // namespace darkroom
