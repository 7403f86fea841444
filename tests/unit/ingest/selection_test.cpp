#include "darkroom/ingest/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Selection, shards_are_read) {
  Selection selection;
  ASSERT_TRUE(read_shard("2/5", selection).is_ok());
  EXPECT_EQ(selection.shard, 2);
  EXPECT_EQ(selection.num_shards, 5);
  for (const char* text : {"", "/", "1", "1/", "/2", "2/2", "-1/2", "0/0", "1/2/3", "1 /2", "a/b", "0x1/2", "1.0/2"}) {
    const Status status = read_shard(text, selection);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("must be I/N"));
  }
  EXPECT_EQ(selection.num_shards, 5) << "what cannot be read changes nothing";
}

TEST(Selection, lists_of_items_are_read) {
  Selection selection;
  ASSERT_TRUE(read_items("17", selection).is_ok());
  EXPECT_THAT(selection.items, ElementsAre(17));
  ASSERT_TRUE(read_items("18,3-6,5,0", selection).is_ok());
  EXPECT_THAT(selection.items, ElementsAre(0, 3, 4, 5, 6, 18));
  EXPECT_TRUE(selection.validate().is_ok());
  for (const char* text : {"", ",", "1,", ",1", "-1", "3-", "-3", "5-3", "1--2", "one", "1;2", "99999999999999999999", "1-2-3"}) {
    EXPECT_EQ(read_items(text, selection).code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(selection.items.size(), 6u);
}

TEST(Selection, a_dash_leaves_the_choice_to_orders) {
  Selection selection;
  ASSERT_TRUE(read_items("3-6", selection).is_ok());
  ASSERT_TRUE(read_items("-", selection).is_ok());
  EXPECT_TRUE(selection.on_demand);
  EXPECT_TRUE(selection.items.empty());
  EXPECT_TRUE(selection.validate().is_ok());
  ASSERT_TRUE(read_shard("1/2", selection).is_ok());
  EXPECT_THAT(selection.validate().message(), HasSubstr("--shard"));
  selection = {};
  ASSERT_TRUE(read_items("-", selection).is_ok());
  ASSERT_TRUE(read_items("7", selection).is_ok());
  EXPECT_FALSE(selection.on_demand) << "the last flag counts";
}

TEST(Selection, lists_are_printed_as_they_are_read) {
  for (const char* text : {"0", "0-1", "0,2,4", "3-5,7,9-10", "17-18,30-39"}) {
    Selection selection;
    ASSERT_TRUE(read_items(text, selection).is_ok());
    EXPECT_EQ(print_items(selection.items), text);
  }
  EXPECT_EQ(print_items({}), "");
}

TEST(Selection, a_range_without_sense_takes_no_memory) {
  Selection selection;
  EXPECT_EQ(read_items("0-9223372036854775806", selection).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read_items("0-9223372036854775807", selection).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read_items("0-999999,5", selection).code(), StatusCode::kInvalidArgument) << "one too many";
  EXPECT_TRUE(read_items("1-999999,5", selection).is_ok());
}

}  // namespace
}  // namespace darkroom
