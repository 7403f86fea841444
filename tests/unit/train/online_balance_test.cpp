#include "train/online_balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

using testing::HasSubstr;

/// Two encoders that made 600 rows in 20 s of work each, of 30 s.
FleetReport two_encoders() { return {.encoders = 2, .rows = 600, .encoder_seconds = 60, .encoder_idle_seconds = 20, .encoder_rows = 600}; }

TEST(online_balance, says_how_many_encoders_would_keep_up_with_a_trainer_that_waits) {
  const OnlineBalance balance = balance_of(two_encoders(), 30, 20, 600);
  EXPECT_DOUBLE_EQ(balance.trainer_rows_per_second, 60);
  EXPECT_DOUBLE_EQ(balance.encoder_rows_per_second, 15);
  EXPECT_EQ(balance.encoders_to_match, 4);
  EXPECT_THAT(balance.to_text(), HasSubstr("the trainer waited 20.0 s of 30.0 s"));
  EXPECT_THAT(balance.to_text(), HasSubstr("4 would match"));
  const nlohmann::json json = balance.to_json();
  EXPECT_EQ(json["encoders_to_match"], 4);
  EXPECT_EQ(json["encoder_idle_seconds"], 20);
  EXPECT_EQ(json["rows_per_second_of_an_encoder"], 15);
}

TEST(online_balance, a_part_of_an_encoder_is_one) {
  EXPECT_EQ(balance_of(two_encoders(), 600, 0, 600).encoders_to_match, 1);
  EXPECT_EQ(balance_of(two_encoders(), 30, 0, 451).encoders_to_match, 2);
}

TEST(online_balance, knows_nothing_where_nothing_was_measured) {
  for (const OnlineBalance& balance :
       {balance_of({}, 10, 5, 100), balance_of(two_encoders(), 0, 0, 0), balance_of(two_encoders(), 5, 9, 100)}) {
    EXPECT_EQ(balance.encoders_to_match, 0);
    EXPECT_THAT(balance.to_text(), HasSubstr("too little"));
  }
}

}  // namespace
}  // namespace darkroom
