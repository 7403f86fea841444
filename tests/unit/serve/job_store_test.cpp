#include "serve/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/core/metrics.h"
#include "stub_engine.h"

namespace darkroom {
namespace {

/// A store of jobs over a stub that ends no call, so that none is done before the test says so.
class job_store : public testing::Test {
 protected:
  void SetUp() override { engine_.hold_at(0); }
  void TearDown() override { engine_.release(); }
  std::shared_ptr<Job> begun_job(const std::string& id, const std::string& owner = "") {
    auto job = std::make_shared<Job>();
    job->id = id;
    job->owner = owner;
    ImageRequest request{.pictures = {stub_picture("x", 1)}, .form = ReplyForm::kKept, .num_pixels = 64};
    job->painting = WatchedPainting::begin(orders_, std::move(request), {.given_up = job->given_up.get_token()}).value();
    store_.add(job);
    return job;
  }
  /// Jobs end in the order in which they are asked for, each at another time.
  void end(const std::shared_ptr<Job>& job) {
    EXPECT_TRUE(job->painting->cancel(clock_.now()));
    clock_.advance(std::chrono::milliseconds(1));
  }
  bool is_there(const std::string& id) { return store_.find(id, "").job != nullptr; }
  bool is_expired(const std::string& id) { return store_.find(id, "").is_expired; }

  FakeClock clock_;
  MetricsRegistry metrics_;
  StubEngine engine_{clock_};
  PaintingServiceOptions options_;
  StepBatcher batcher_{engine_, {}, metrics_, clock_};
  PictureOrders orders_{options_, batcher_, clock_};
  JobStore store_{clock_, {.max_ended = 2, .max_expired = 1}};
};

TEST_F(job_store, keeps_so_many_that_have_ended_and_remembers_so_many_more) {
  const auto slow = begun_job("slow");
  ASSERT_TRUE(engine_.await_calls(1));
  for (const char* id : {"a", "b", "c"}) {
    end(begun_job(id));
  }
  EXPECT_TRUE(is_expired("a"));
  EXPECT_TRUE(is_there("b") && is_there("c") && is_there("slow"));  // One that is painted does not count.
  end(begun_job("d"));
  EXPECT_TRUE(is_expired("b"));
  EXPECT_FALSE(is_expired("a") || is_there("a"));
  EXPECT_TRUE(store_.expire_oldest());
  EXPECT_TRUE(is_expired("c"));
  EXPECT_TRUE(store_.expire_oldest());
  EXPECT_FALSE(store_.expire_oldest());
  EXPECT_TRUE(is_there("slow"));
}

TEST_F(job_store, lists_the_newest_and_spares_who_is_asked_for) {
  const auto first = begun_job("first");
  const auto second = begun_job("second");
  EXPECT_THAT(store_.list("", 10), testing::ElementsAre(second, first));
  EXPECT_THAT(store_.list("", 1), testing::ElementsAre(second));
  end(first);
  EXPECT_FALSE(store_.expire_oldest("first"));
  end(second);
  EXPECT_TRUE(store_.expire_oldest("first"));
  EXPECT_TRUE(is_there("first") && is_expired("second"));
}

TEST_F(job_store, tells_nobody_of_jobs_of_others) {
  end(begun_job("mine", "me"));
  EXPECT_NE(store_.find("mine", "me").job, nullptr);
  EXPECT_EQ(store_.find("mine", "you").job, nullptr);
  EXPECT_TRUE(store_.list("you", 10).empty());
  EXPECT_TRUE(store_.expire_oldest());
  EXPECT_TRUE(store_.find("mine", "me").is_expired);
  EXPECT_FALSE(store_.find("mine", "you").is_expired);
  end(begun_job("other", "me"));
  store_.forget("other");
  EXPECT_FALSE(store_.find("other", "me").is_expired);
}

TEST(job_ids, are_32_hexadecimal_digits_and_never_the_same) {
  const std::string one = draw_job_id();
  EXPECT_EQ(one.size(), 32U);
  EXPECT_EQ(one.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(one, draw_job_id());
}

}  // namespace
}  // namespace darkroom
