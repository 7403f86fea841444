#include "darkroom/compare/dataset_pictures.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "darkroom/image/png.h"
#include "support/temporary_folder.h"
#include "support/watched_decoder.h"

namespace darkroom {
namespace {

TEST(DatasetPictures, are_decoded_by_the_given_decoder_alone) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("a.png"), encode_png(Image::filled(40, 48, 3, 200))).is_ok());
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("a.txt"), "a grey square").is_ok());
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("b.png"), "\x89PNG\r\n\x1a\n and no more").is_ok());
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("b.txt"), "a broken one").is_ok());
  int num_pictures = 0;
  Status lost;
  WatchedDecoder decoder([&] {
    ++num_pictures;
    return lost;
  });
  std::vector<std::string> captions;
  const auto visit = [&](DatasetPicture row) {
    captions.push_back(row.caption + (row.picture.is_ok() ? "" : ": " + row.picture.error().name()));
    if (row.picture.is_ok()) {
      EXPECT_EQ(*row.picture, Image::filled(32, 32, 3, 200));
    }
    return Status::ok();
  };
  const Status visited = visit_dataset_pictures(local_files(), folder.path(), {.resolution = 32}, decoder, {}, visit);
  ASSERT_TRUE(visited.is_ok()) << visited.to_string();
  EXPECT_EQ(captions.size(), 2u);
  EXPECT_EQ(captions.front(), "a grey square");
  EXPECT_EQ(num_pictures, 2);
  lost = Status::unavailable("the decoder is lost");
  EXPECT_EQ(visit_dataset_pictures(local_files(), folder.path(), {.resolution = 32}, decoder, {}, visit).message(), "the decoder is lost");
}

}  // namespace
}  // namespace darkroom
