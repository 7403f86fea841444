#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "darkroom/serve/drain.h"
#include "darkroom/serve/served_datasets.h"
#include "served_stub.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

/// Says what it was asked; `words` make it fail.
class StubDataset final : public ServedDataset {
 public:
  const Json& facts() const override { return facts_; }
  Result<Json> rows(const DatasetRowsQuestion& asked, const std::stop_token& stop) override {
    if (asked.words == "held") {
      std::unique_lock lock(mutex_);
      begun_.set_value();
      changed_.wait(lock, stop, [] { return false; });
      return Status::cancelled("stopped");
    }
    if (asked.words == "stuck") {
      begun_.set_value();
      released_.get_future().wait();
    }
    if (asked.words == "unreadable") {
      return Status::corrupt_data("damaged, at a secret place:", "/home/somebody");
    }
    if (asked.words == "throws") {
      throw std::runtime_error("a secret");
    }
    if (asked.words == "not now") {
      return Status::failed_precondition("no sandbox, at a secret place:", "/home/somebody");
    }
    if (asked.words == "stopped") {
      return Status::cancelled("stopped at a secret place:", "/home/somebody");
    }
    if (asked.words == "throws oddly") {
      throw 7;
    }
    if (asked.decodes) {
      return Status::invalid_argument("latents of another model");
    }
    return Json{{"from", asked.from}, {"count", asked.count}, {"q", asked.words}};
  }
  void await_begun() { begun_.get_future().wait(); }
  /// Lets what is stuck go on.
  void release() { released_.set_value(); }

 private:
  const Json facts_ = {{"name", "stub"}, {"rows", 3}};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::promise<void> begun_;
  std::promise<void> released_;
};

class dataset_routes : public ServedStub {
 protected:
  void SetUp() override {
    datasets_ = {{.name = "my data", .dataset = &dataset_}};
    start({});
  }
  std::string rows(const std::string& query) const { return ask(get("/v1/datasets/my%20data/rows" + query)); }

  StubDataset dataset_;
};

TEST_F(dataset_routes, are_listed_and_described) {
  EXPECT_EQ(Json::parse(body_of(ask(get("/v1/datasets")))), Json::parse(R"({"datasets": [{"name": "my data"}]})"));
  const std::string reply = ask(get("/v1/datasets/my%20data"));
  EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Cache-Control: no-store")));
  EXPECT_EQ(Json::parse(body_of(reply))["rows"], 3);
}

TEST_F(dataset_routes, rows_are_asked_for_by_place_and_by_words) {
  EXPECT_EQ(Json::parse(body_of(rows(""))), Json::parse(R"({"from": 0, "count": 12, "q": ""})"));
  EXPECT_EQ(Json::parse(body_of(rows("?from=40&count=24&q=red+apple%20width%3E5"))),
            Json::parse(R"({"from": 40, "count": 24, "q": "red apple width>5"})"));
}

TEST_F(dataset_routes, a_wrong_question_is_400_and_names_the_field) {
  for (const auto& [query, field] : std::vector<std::pair<std::string, std::string>>{{"?from=-1", "from"},
                                                                                     {"?from=x", "from"},
                                                                                     {"?count=0", "count"},
                                                                                     {"?count=25", "count"},
                                                                                     {"?decode=maybe", "decode"},
                                                                                     {"?decode=true&count=2", "count"},
                                                                                     {"?other=1", "other"},
                                                                                     {"?q=" + std::string(1001, 'x'), "q"}}) {
    EXPECT_THAT(rows(query), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr(field))) << query;
  }
  EXPECT_THAT(rows("?decode=true&count=1"), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("another model")));
}

TEST_F(dataset_routes, what_is_not_served_is_404) {
  for (const char* path : {"/v1/datasets/none", "/v1/datasets/none/rows", "/v1/datasets/..%2f..%2fetc/rows", "/v1/datasets/my%20data/x"}) {
    EXPECT_THAT(ask(get(path)), StartsWith("HTTP/1.1 404")) << path;
  }
}

TEST_F(dataset_routes, what_cannot_be_read_is_500_without_its_place) {
  for (const char* query : {"?q=unreadable", "?q=throws", "?q=not+now", "?q=throws+oddly"}) {
    EXPECT_THAT(rows(query), AllOf(StartsWith("HTTP/1.1 500"), HasSubstr("log says why"), Not(HasSubstr("secret")), Not(HasSubstr("home"))))
        << query;
  }
  EXPECT_THAT(rows(""), StartsWith("HTTP/1.1 200"));
}

TEST_F(dataset_routes, what_was_given_up_is_503_without_its_place) {
  EXPECT_THAT(rows("?q=stopped"), AllOf(StartsWith("HTTP/1.1 503"), Not(HasSubstr("secret")), Not(HasSubstr("home"))));
}

TEST_F(dataset_routes, all_need_a_key_where_there_are_keys) {
  start(AccessKeys::parse(std::string(kKey) + "\n", "keys").value());
  for (const char* path : {"/v1/datasets", "/v1/datasets/my%20data", "/v1/datasets/my%20data/rows"}) {
    EXPECT_THAT(ask(get(path)), StartsWith("HTTP/1.1 401")) << path;
    EXPECT_THAT(ask(get(path, "Authorization: Bearer " + std::string(kKey) + "\r\n")), StartsWith("HTTP/1.1 200")) << path;
  }
}

TEST_F(dataset_routes, a_page_of_another_site_gets_no_rows) {
  EXPECT_THAT(ask(get("/v1/datasets/my%20data/rows", "Sec-Fetch-Site: cross-site\r\n")), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(ask(get("/v1/datasets/my%20data/rows", "Sec-Fetch-Site: same-origin\r\n")), StartsWith("HTTP/1.1 200"));
}

TEST_F(dataset_routes, pictures_and_health_do_not_wait_for_a_slow_dataset_and_a_stop_answers) {
  const auto slow = asking(get("/v1/datasets/my%20data/rows?q=held"));
  dataset_.await_begun();
  const auto behind = asking(get("/v1/datasets/my%20data/rows"));
  EXPECT_THAT(ask(get("/ping")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":2}})")), StartsWith("HTTP/1.1 200"));
  drain({.server = *server_, .service = *service_, .batcher = *batcher_},
        {.patience = std::chrono::milliseconds(0), .last_words = std::chrono::minutes(1)});
  EXPECT_THAT(rows(""), StartsWith("HTTP/1.1 503"));
  server_.reset();  // Who has no answer by now gets none.
  EXPECT_THAT(slow->receive_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After")));
  EXPECT_THAT(behind->receive_all(), StartsWith("HTTP/1.1 503"));
}

TEST_F(dataset_routes, a_stop_answers_though_a_store_is_silent) {
  const auto stuck = asking(get("/v1/datasets/my%20data/rows?q=stuck"));
  dataset_.await_begun();
  const auto behind = asking(get("/v1/datasets/my%20data/rows"));
  EXPECT_THAT(ask(get("/ping")), StartsWith("HTTP/1.1 200"));
  drain({.server = *server_, .service = *service_, .batcher = *batcher_},
        {.patience = std::chrono::milliseconds(0), .last_words = std::chrono::minutes(1)});
  server_.reset();  // Who has no answer by now gets none.
  EXPECT_THAT(stuck->receive_all(), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(behind->receive_all(), StartsWith("HTTP/1.1 503"));
  dataset_.release();
}

TEST_F(dataset_routes, a_client_that_leaves_ends_its_reading) {
  auto slow = asking(get("/v1/datasets/my%20data/rows?q=held"));
  dataset_.await_begun();
  slow.reset();
  EXPECT_THAT(rows(""), StartsWith("HTTP/1.1 200"));
}

TEST_F(dataset_routes, the_service_knows_whether_a_dataset_is_read_still) {
  EXPECT_TRUE(service_->await_idle(std::chrono::milliseconds(0)));
  const auto stuck = asking(get("/v1/datasets/my%20data/rows?q=stuck"));
  dataset_.await_begun();
  service_->stop_finishing();
  EXPECT_FALSE(service_->await_idle(std::chrono::milliseconds(0)));
  dataset_.release();
  EXPECT_TRUE(service_->await_idle(std::chrono::minutes(1)));
}

TEST(dataset_names, are_the_last_parts_and_each_is_there_once) {
  EXPECT_THAT(dataset_names({"data/train/", "s3://bucket/a/train", "https://x/y.parquet?token=secret"}),
              ElementsAre("train", "train-2", "y.parquet"));
}

TEST(dataset_names, are_parts_of_addresses_that_no_browser_takes_away) {
  const std::string here = std::filesystem::current_path().filename();
  EXPECT_THAT(dataset_names({".", "a/..", "a/b/../", "s3://bucket/..", "/"}), ElementsAre(here, here + "-2", "a", "dataset", "dataset-2"));
}

}  // namespace
}  // namespace darkroom
