#include "serve/reading_desk.h"

#include <gtest/gtest.h>

#include <future>
#include <variant>

namespace darkroom {
namespace {

/// What is answered, as it comes.
class Answered {
 public:
  HttpService::Answer answer() {
    return [this](AnyReply reply) { told_.set_value(std::get<HttpReply>(std::move(reply)).status); };
  }
  int status() { return told_.get_future().get(); }

 private:
  std::promise<int> told_;
};

TEST(reading_desk, a_stop_answers_though_a_read_is_silent) {
  std::promise<void> begun;
  std::promise<void> may_end;
  Answered silent;
  Answered waiting;
  ReadingDesk desk("runs");
  const auto task = [](const HttpService::Answer& answer, std::function<HttpReply()> read) {
    return [answer, read = std::move(read)](const std::stop_token& stop) {
      ReadingDesk::answer_unless_stopped(stop, answer, read, [] { return HttpReply{.status = 503}; });
    };
  };
  ASSERT_TRUE(desk.post({}, task(silent.answer(),
                                 [&] {
                                   begun.set_value();
                                   may_end.get_future().wait();
                                   return HttpReply{};
                                 }))
                  .is_ok());
  begun.get_future().wait();
  ASSERT_TRUE(desk.post({}, task(waiting.answer(), [] { return HttpReply{}; })).is_ok());
  EXPECT_FALSE(desk.await_idle(std::chrono::milliseconds(0)));
  desk.stop();
  EXPECT_EQ(silent.status(), 503);
  EXPECT_EQ(waiting.status(), 503);
  EXPECT_FALSE(desk.await_idle(std::chrono::milliseconds(0)));
  const Status refused = desk.post({}, [](const std::stop_token&) {});
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.message().find("runs"), std::string::npos);
  may_end.set_value();
  EXPECT_TRUE(desk.await_idle(std::chrono::minutes(1)));
}

}  // namespace
}  // namespace darkroom
