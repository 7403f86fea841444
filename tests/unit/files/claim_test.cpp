#include "darkroom/files/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "support/poor_files.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::system_clock;

constexpr system_clock::time_point kStart{std::chrono::hours(480'000)};

class Claims : public testing::TestWithParam<bool> {
 protected:
  Result<ClaimHolder> take(const std::string& owner, system_clock::duration later) {
    return take_claim(place_, owner, FakeClock(kStart + later));
  }
  Result<ClaimHolder> renew(const std::string& owner, system_clock::duration later) {
    return renew_claim(place_, owner, FakeClock(kStart + later));
  }

  MemoryFileSystem memory_;
  PoorFiles poor_{memory_, {.has_no_replace = GetParam(), .has_locks = true}};
  std::unique_ptr<Store> store_ = make_posix_store(poor_, "memory");
  Location place_{store_.get(), "out/_claims/000042"};
};

INSTANTIATE_TEST_SUITE_P(Disks, Claims, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "no_replace" : "commit_record"); });

TEST_P(Claims, the_first_takes_it_until_it_expires) {
  EXPECT_EQ(take("one", minutes(0)).value(), ClaimHolder::kOurs);
  EXPECT_EQ(take("two", minutes(0)).value(), ClaimHolder::kOthers);
  EXPECT_EQ(take("two", kClaimLifetime - milliseconds(1)).value(), ClaimHolder::kOthers);
  EXPECT_EQ(take("two", kClaimLifetime).value(), ClaimHolder::kOurs);
  EXPECT_EQ(take("one", kClaimLifetime).value(), ClaimHolder::kOthers);
  EXPECT_EQ(read_claim(place_).value()->owner, "two");
}

TEST_P(Claims, is_renewed_by_its_owner_alone) {
  EXPECT_EQ(renew("one", minutes(0)).value(), ClaimHolder::kOthers) << "there is none";
  EXPECT_EQ(take("one", minutes(0)).value(), ClaimHolder::kOurs);
  EXPECT_EQ(renew("two", minutes(1)).value(), ClaimHolder::kOthers);
  EXPECT_EQ(renew("one", minutes(9)).value(), ClaimHolder::kOurs);
  EXPECT_EQ(take("two", minutes(18)).value(), ClaimHolder::kOthers);
  EXPECT_EQ(take("one", minutes(18)).value(), ClaimHolder::kOurs) << "taking one's own renews it";
  EXPECT_EQ(take("two", minutes(27)).value(), ClaimHolder::kOthers);
  EXPECT_EQ(take("two", minutes(28)).value(), ClaimHolder::kOurs);
  EXPECT_EQ(renew("one", minutes(28)).value(), ClaimHolder::kOthers) << "lost";
}

TEST_P(Claims, is_given_back_by_its_owner_alone) {
  EXPECT_TRUE(release_claim(place_, "one").is_ok());
  EXPECT_EQ(take("one", minutes(0)).value(), ClaimHolder::kOurs);
  EXPECT_TRUE(release_claim(place_, "two").is_ok());
  EXPECT_EQ(take("two", minutes(1)).value(), ClaimHolder::kOthers);
  EXPECT_TRUE(release_claim(place_, "one").is_ok());
  EXPECT_FALSE(read_claim(place_).value().has_value());
  EXPECT_EQ(take("two", minutes(1)).value(), ClaimHolder::kOurs);
}

TEST_P(Claims, garbage_is_no_claim) {
  const std::string deep(1000, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"), deep, std::string(1 << 20, ' '), std::string("\xff\xfe"),
        std::string(R"({"owner":"two"})"), std::string(R"({"owner":7,"expires":1728000300000})"),
        std::string(R"({"owner":"two","expires":"soon"})"), std::string(R"({"owner":"two","expires":1.7e12})"),
        std::string(R"({"owner":"two","expires":18446744073709551615})"),
        std::string(R"({"owner":"two","expires":-9223372036854775808})")}) {
    SCOPED_TRACE(text.substr(0, 80));
    ASSERT_TRUE(store_->replace_small(place_.path, text).is_ok());
    EXPECT_TRUE(release_claim(place_, "one").is_ok());
    EXPECT_EQ(renew("one", minutes(0)).value(), ClaimHolder::kOthers);
    EXPECT_EQ(take("one", minutes(0)).value(), ClaimHolder::kOurs);
    EXPECT_EQ(read_claim(place_).value()->owner, "one");
  }
}

TEST_P(Claims, a_claim_of_the_far_future_is_none) {
  const auto start = std::chrono::floor<milliseconds>(kStart).time_since_epoch().count();
  const int64_t farthest = milliseconds(2 * kClaimLifetime).count();
  for (const auto& [expires, want] : {std::pair{start + farthest, ClaimHolder::kOthers},
                                      {start + farthest + 1, ClaimHolder::kOurs},
                                      {INT64_MAX, ClaimHolder::kOurs},
                                      {start + 1, ClaimHolder::kOthers},
                                      {start, ClaimHolder::kOurs},
                                      {int64_t{0}, ClaimHolder::kOurs}}) {
    SCOPED_TRACE(expires);
    ASSERT_TRUE(store_->replace_small(place_.path, fmt::format(R"({{"owner":"two","expires":{}}})", expires)).is_ok());
    EXPECT_EQ(take("one", minutes(0)).value(), want);
  }
}

TEST_P(Claims, owners_are_printable_and_unlike_each_other) {
  const std::string one = make_claim_owner();
  const std::string two = make_claim_owner();
  EXPECT_NE(one, two);
  EXPECT_EQ(take(one, minutes(0)).value(), ClaimHolder::kOurs);
  EXPECT_EQ(take(two, minutes(0)).value(), ClaimHolder::kOthers);
  EXPECT_EQ(take(one, minutes(1)).value(), ClaimHolder::kOurs);
  EXPECT_THROW((void)take("", minutes(0)), CheckFailure);
  EXPECT_THROW((void)take("t\xc3\xb6", minutes(0)), CheckFailure);
}

/// Files whose claims cannot be read.
class UnreadableFiles final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    return Status::unavailable("input/output error", path);
  }
};

TEST(Claim, says_when_the_store_fails) {
  MemoryFileSystem memory;
  UnreadableFiles files(memory);
  const auto store = make_posix_store(files, "memory");
  const Location place{store.get(), "out/_claims/000042"};
  EXPECT_EQ(take_claim(place, "one", FakeClock(kStart)).value(), ClaimHolder::kOurs);
  EXPECT_EQ(take_claim(place, "two", FakeClock(kStart)).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(renew_claim(place, "one", FakeClock(kStart)).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(release_claim(place, "one").code(), StatusCode::kUnavailable);
}

/// Files where a claim is given back whenever it is looked at.
class VanishingFiles final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Result<FileInfo> stat(const std::string& path) override {
    Result<FileInfo> info = ForwardingFiles::stat(path);
    if (path == "out/_claims/000042" && info.is_ok()) {
      EXPECT_TRUE(remove_file(path).is_ok());
      ++num_vanished;
    }
    return info;
  }
  int num_vanished = 0;
};

TEST(Claim, one_that_is_given_back_while_one_looks_can_be_taken) {
  MemoryFileSystem memory;
  ASSERT_TRUE(write_file_atomic(memory, "out/_claims/000042", "{}").is_ok());
  VanishingFiles files(memory);
  const auto store = make_posix_store(files, "memory");
  EXPECT_EQ(take_claim({store.get(), "out/_claims/000042"}, "one", FakeClock(kStart)).value(), ClaimHolder::kOurs);
  EXPECT_EQ(files.num_vanished, 1);
}

}  // namespace
}  // namespace darkroom
