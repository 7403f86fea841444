#include "darkroom/tensor/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <stop_token>

#include "darkroom/core/check.h"
#include "darkroom/tensor/launcher_job.h"
#include "support/rank_threads.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(communicator, exchanges_what_goes_between_two_ranks_in_order) {
  run_rank_threads(3, [](Communicator& ranks) {
    std::vector<Transfer> sends, receives;
    for (int64_t peer = 0; peer < 3; ++peer) {
      if (peer != ranks.rank()) {
        // Of different sizes for different pairs; an empty one takes no part.
        const int64_t size = 1 + 100'000 * (peer + ranks.rank());
        sends.push_back({peer, torch::full({size}, 10.0 * ranks.rank() + peer)});
        sends.push_back({peer, torch::empty({0})});
        sends.push_back({peer, torch::full({size}, -1.0 * ranks.rank())});
        receives.push_back({peer, torch::empty({size})});
        receives.push_back({peer, torch::empty({0})});
        receives.push_back({peer, torch::empty({size})});
      }
    }
    ASSERT_TRUE(ranks.exchange(sends, receives).is_ok());
    for (size_t i = 0; i < receives.size(); i += 3) {
      EXPECT_TRUE(receives[i].tensor.eq(10.0 * receives[i].peer + ranks.rank()).all().item<bool>());
      EXPECT_TRUE(receives[i + 2].tensor.eq(-1.0 * receives[i].peer).all().item<bool>());
    }
  });
}

TEST(communicator, broadcasts_gathers_and_adds) {
  for (const int64_t num_ranks : {1, 2, 4}) {
    run_rank_threads(num_ranks, [=](Communicator& ranks) {
      EXPECT_EQ(broadcast_text(ranks, 0, ranks.rank() == 0 ? "from rank 0" : "").value(), "from rank 0");
      EXPECT_EQ(broadcast_text(ranks, num_ranks - 1, "").value(), "");
      std::vector<torch::Tensor> parts;
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        parts.push_back(torch::full({rank + 1}, rank == ranks.rank() ? rank : -1, torch::kFloat64));
      }
      ASSERT_TRUE(all_gather(ranks, parts).is_ok());
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        EXPECT_TRUE(parts[static_cast<size_t>(rank)].eq(rank).all().item<bool>());
      }
      const std::vector<int64_t> numbers = gather_numbers(ranks, 7 - ranks.rank()).value();
      ASSERT_EQ(static_cast<int64_t>(numbers.size()), num_ranks);
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        EXPECT_EQ(numbers[static_cast<size_t>(rank)], 7 - rank);
      }
      const torch::Tensor sum = torch::full({5}, ranks.rank() + 1.0);
      ASSERT_TRUE(ranks.all_reduce(sum).is_ok());
      EXPECT_EQ(sum[4].item<double>(), static_cast<double>(num_ranks * (num_ranks + 1) / 2));
    });
  }
}

TEST(communicator, a_twin_is_another_threads_and_takes_nothing_from_the_first) {
  run_rank_threads(3, [](Communicator& ranks) {
    auto twin = ranks.twin("other");
    ASSERT_TRUE(twin.is_ok()) << twin.status().to_string();
    const auto last_of = [](Communicator& group, int64_t begin) {
      int64_t last = -1;
      for (int64_t i = 0; i < 50; ++i) {
        const auto numbers = gather_numbers(group, begin + i * 10 + group.rank());
        EXPECT_TRUE(numbers.is_ok()) << numbers.status().to_string();
        for (int64_t rank = 0; rank < 3; ++rank) {
          EXPECT_EQ(numbers.is_ok() ? (*numbers)[static_cast<size_t>(rank)] : -1, begin + i * 10 + rank);
        }
        last = numbers.is_ok() ? numbers->back() : -1;
      }
      return last;
    };
    auto other = std::async(std::launch::async, [&] { return last_of(**twin, 1000); });
    EXPECT_EQ(last_of(ranks, 0), 492);
    EXPECT_EQ(other.get(), 1492);
    constexpr int64_t kSent = 50 * 2 * 8;  // A number to each of two others.
    EXPECT_EQ(ranks.bytes_sent(), kSent);
    EXPECT_EQ((*twin)->bytes_sent(), kSent);
    EXPECT_TRUE((*twin)->finish().is_ok());
  });
}

TEST(communicator, a_lone_rank_has_nobody_to_send_to) {
  EXPECT_THROW(static_cast<void>(lone_rank().exchange({{1, torch::ones({1})}}, {})), CheckFailure);
}

// Both ranks' answers.
std::pair<Status, Status> join_two(const GlooOptions& first, const GlooOptions& second) {
  auto other = std::async(std::launch::async, [&] { return join_gloo(second).status(); });
  const Status status = join_gloo(first).status();
  return {status, other.get()};
}

TEST(communicator, refuses_a_rank_of_another_run_and_names_the_field) {
  const int64_t port = free_loopback_port();
  GlooOptions zero = loopback_rank(0, 2, port), one = loopback_rank(1, 2, port);
  zero.agreement = R"({"batch.global": "64", "runtime.seed": "1"})";
  one.agreement = R"({"batch.global": "64", "runtime.seed": "2"})";
  const auto [first, second] = join_two(zero, one);
  for (const Status& status : {first, second}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("runtime.seed"));
  }
}

// Rank 1 of another job comes to the same port first; the run does not notice.
TEST(communicator, a_rank_of_another_job_ends_without_a_word_to_this_one) {
  const int64_t port = free_loopback_port();
  GlooOptions zero = loopback_rank(0, 2, port), one = loopback_rank(1, 2, port);
  zero.agreement = one.agreement = R"({"recipe": "same", "job": "17.0"})";
  GlooOptions stranger = loopback_rank(1, 2, port);
  stranger.agreement = R"({"recipe": "same", "job": "18.0"})";
  auto first = std::async(std::launch::async, [&] { return join_gloo(zero); });  // Kept: its end would break off the other's start.
  const Status refused = join_gloo(stranger).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("'18.0' '17.0'"));
  const auto second = join_gloo(one);
  EXPECT_TRUE(second.is_ok()) << second.status().to_string();
  EXPECT_TRUE(first.get().is_ok());
}

TEST(communicator, a_refused_rank_is_every_ranks_error) {
  const int64_t port = free_loopback_port();
  std::vector<std::future<Status>> joined;
  for (int64_t rank = 0; rank < 3; ++rank) {
    GlooOptions options = loopback_rank(rank, 3, port);
    options.agreement = rank == 2 ? R"({"runtime.seed": "2"})" : R"({"runtime.seed": "1"})";
    joined.push_back(std::async(std::launch::async, [options] { return join_gloo(options).status(); }));
  }
  for (auto& answer : joined) {
    const Status status = answer.get();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("runtime.seed"));
  }
}

// Whether something listens at a port of one of this machine's loopback addresses: 127.0.0.`last`, or ::1.
bool answers(int family, int64_t port, uint32_t last = 1) {
  const int probe = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + last);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  six.sin6_addr = in6addr_loopback;
  const int connected = family == AF_INET ? connect(probe, reinterpret_cast<const sockaddr*>(&four), sizeof four)
                                          : connect(probe, reinterpret_cast<const sockaddr*>(&six), sizeof six);
  close(probe);
  return connected == 0;
}

TEST(communicator, a_stop_ends_the_waiting_of_all_who_came) {
  const int64_t port = free_loopback_port();
  std::stop_source source;
  GlooOptions zero = loopback_rank(0, 3, port), one = loopback_rank(1, 3, port);
  one.stop = source.get_token();
  source.request_stop();
  auto first = std::async(std::launch::async, [&] { return join_gloo(zero).status(); });
  // A rank that is told to stop before rank 0 is there goes without a word to it.
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2); !answers(AF_INET, port);) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "rank 0 does not listen";
    std::this_thread::yield();
  }
  const Status second = join_gloo(one).status();
  EXPECT_EQ(second.code(), StatusCode::kCancelled) << second.to_string();
  const Status zeros = first.get();
  EXPECT_EQ(zeros.code(), StatusCode::kCancelled) << zeros.to_string();
}

TEST(communicator, a_stop_ends_the_waiting_for_rank_0) {
  std::stop_source source;
  source.request_stop();
  GlooOptions alone = loopback_rank(1, 2, free_loopback_port());
  alone.stop = source.get_token();
  EXPECT_EQ(join_gloo(alone).status().code(), StatusCode::kCancelled);
}

TEST(communicator, a_loopback_host_is_listened_at_on_the_loopback_alone) {
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    const int64_t port = free_loopback_port();
    GlooOptions zero = loopback_rank(0, 2, port), one = loopback_rank(1, 2, port);
    zero.place.host = one.place.host = host;
    auto other = std::async(std::launch::async, [&] { return join_gloo(one); });
    const auto ranks = join_gloo(zero);
    const auto others = other.get();
    ASSERT_TRUE(ranks.is_ok()) << ranks.status().to_string();
    ASSERT_TRUE(others.is_ok()) << others.status().to_string();
    EXPECT_FALSE(answers(AF_INET, port, 2)) << host;  // Where a store on every address would answer.
    EXPECT_FALSE(answers(AF_INET6, port)) << host;
  }
}

TEST(communicator, refuses_a_rank_of_a_world_of_another_size) {
  const int64_t port = free_loopback_port();
  const auto [first, second] = join_two(loopback_rank(0, 2, port), loopback_rank(1, 3, port));
  EXPECT_EQ(first.code(), StatusCode::kFailedPrecondition) << first.to_string();
  EXPECT_THAT(second.message(), HasSubstr("number of ranks"));
}

TEST(communicator, says_which_rank_did_not_come) {
  GlooOptions alone = loopback_rank(0, 2, free_loopback_port());
  alone.arrival = std::chrono::seconds(1);
  const Status status = join_gloo(alone).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("did not come"));
}

TEST(communicator, says_where_there_is_no_rank_0) {
  GlooOptions alone = loopback_rank(1, 2, free_loopback_port());
  alone.arrival = std::chrono::seconds(1);
  const Status status = join_gloo(alone).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1"));
}

TEST(communicator, a_stop_ends_the_wait_for_a_job_in_a_store_of_somebody_else) {
  c10d::TCPStoreOptions listening;
  listening.isServer = true;
  listening.port = 0;
  listening.waitWorkers = false;
  const auto stranger = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", listening);
  GlooOptions rank = loopback_rank(1, 2, stranger->getPort());
  rank.arrival = std::chrono::seconds(5);
  std::stop_source stop;
  stop.request_stop();
  rank.stop = stop.get_token();
  EXPECT_THAT(join_gloo(rank).status().message(), HasSubstr("stopped on request while the ranks were still coming"));
}

// The store of a start in which rank 1 of two has spoken and been judged, and whose rank 0 is busy.
c10::intrusive_ptr<c10d::TCPStore> store_of_a_past_start() {
  c10d::TCPStoreOptions listening;
  listening.isServer = true;
  listening.port = 0;
  listening.waitWorkers = false;
  auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", listening);
  const auto say = [&](const std::string& key, const std::string& text) {
    store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
  };
  say("darkroom/job", "");
  say("darkroom/0/agreement/0", R"({"number of ranks":2,"recipe":"same"})");
  say("darkroom/0/agreement/1", R"({"number of ranks":2,"recipe":"same"})");
  say("darkroom/0/verdict", R"({"code": 0, "message": ""})");
  return store;
}

TEST(communicator, a_rank_that_began_again_does_not_take_the_start_before_for_its_own) {
  const auto past = store_of_a_past_start();
  GlooOptions again = loopback_rank(1, 2, past->getPort());
  again.arrival = std::chrono::seconds(5);
  const Status late = join_gloo(again).status();
  EXPECT_EQ(late.code(), StatusCode::kUnavailable) << late.to_string();
  EXPECT_THAT(late.message(), HasSubstr("did not end the start before"));
  std::stop_source stop;
  stop.request_stop();
  again.stop = stop.get_token();
  EXPECT_EQ(join_gloo(again).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(past->check({"darkroom/0/told/1"})) << "nothing is said there";
  GlooOptions stranger = loopback_rank(1, 2, past->getPort());
  stranger.agreement = R"({"recipe": "another"})";
  EXPECT_THAT(join_gloo(stranger).status().message(), HasSubstr("recipe")) << "who wants another run is told so";
}

TEST(communicator, a_rank_that_began_again_meets_the_others_in_the_next_store) {
  auto past = store_of_a_past_start();
  const int64_t port = past->getPort();
  auto again = std::async(std::launch::async, [&] { return join_gloo(loopback_rank(1, 2, port)); });
  past.reset();
  const auto zero = join_gloo(loopback_rank(0, 2, port));
  const auto one = again.get();
  EXPECT_TRUE(zero.is_ok()) << zero.status().to_string();
  EXPECT_TRUE(one.is_ok()) << one.status().to_string();
}

TEST(communicator, a_rank_outside_its_world_is_refused) {
  EXPECT_EQ(join_gloo(loopback_rank(2, 2, 1)).status().code(), StatusCode::kInvalidArgument);
  GlooOptions hasty = loopback_rank(0, 2, 1);
  hasty.watchdog = std::chrono::seconds(0);
  EXPECT_EQ(join_gloo(hasty).status().code(), StatusCode::kInvalidArgument);
  GlooOptions impatient = loopback_rank(0, 2, 1);
  impatient.progress = std::chrono::seconds(0);
  EXPECT_THAT(join_gloo(impatient).status().message(), HasSubstr("limit of progress"));
}

TEST(communicator, a_rank_that_left_is_a_failure_for_good) {
  const int64_t port = free_loopback_port();
  auto leaving = std::async(std::launch::async, [&] { return join_gloo(loopback_rank(1, 2, port)); });
  const auto staying = join_gloo(loopback_rank(0, 2, port));
  {
    const auto left = leaving.get();  // Gone at the end of these lines, when both have met.
    ASSERT_TRUE(left.is_ok()) << left.status().to_string();
  }
  ASSERT_TRUE(staying.is_ok()) << staying.status().to_string();
  const torch::Tensor tensor = torch::zeros({10});
  const Status first = (*staying)->exchange({}, {{1, tensor}});
  EXPECT_EQ(first.code(), StatusCode::kUnavailable) << first.to_string();
  EXPECT_EQ((*staying)->all_reduce(tensor).message(), first.message());
  EXPECT_EQ((*staying)->finish().message(), first.message());
}

TEST(communicator, a_silent_rank_is_noticed_by_the_one_before_it) {
  const int64_t port = free_loopback_port();
  std::promise<std::string> lost;
  std::promise<void> over;
  // The second rank has no watch, so it gives no sign of life.
  std::thread silent([&] {
    const auto ranks = join_gloo(loopback_rank(1, 2, port));
    EXPECT_TRUE(ranks.is_ok());
    over.get_future().wait();
  });
  GlooOptions options = loopback_rank(0, 2, port);
  options.watchdog = std::chrono::seconds(1);
  options.on_lost = [&](const std::string& what) { lost.set_value(what); };
  {
    const auto watching = join_gloo(options);
    ASSERT_TRUE(watching.is_ok()) << watching.status().to_string();
    auto said = lost.get_future();
    EXPECT_EQ(said.wait_for(std::chrono::minutes(2)), std::future_status::ready);
    EXPECT_THAT(said.get(), MatchesRegex("rank 1 on an unknown host gives no sign of life since 20.*UTC, for [0-9]+ s"));
  }
  over.set_value();
  silent.join();
}

// A rank's thread that waits until the test lets it go, while its watch beats on.
TEST(communicator, a_rank_that_lives_but_does_not_get_on_is_named_by_all) {
  constexpr int64_t kRanks = 3;
  const int64_t port = free_loopback_port();
  std::array<std::promise<std::string>, kRanks> lost;
  std::promise<void> over;
  const std::shared_future<void> end = over.get_future().share();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      GlooOptions options = loopback_rank(rank, kRanks, port);
      options.watchdog = std::chrono::seconds(8);
      options.progress = std::chrono::seconds(rank == 1 ? 1 : 3600);  // The others are slow to get on, too.
      options.on_lost = [&, rank](const std::string& what) { lost[static_cast<size_t>(rank)].set_value(what); };
      const auto ranks = join_gloo(options);
      ASSERT_TRUE(ranks.is_ok()) << ranks.status().to_string();
      (*ranks)->progress()->note("7 steps done, waiting for the next batch");
      end.wait();
    });
  }
  for (auto& heard : lost) {
    auto said = heard.get_future();
    if (said.wait_for(std::chrono::minutes(5)) != std::future_status::ready) {
      ADD_FAILURE() << "a rank has heard nothing";
      continue;
    }
    EXPECT_THAT(
        said.get(),
        MatchesRegex("rank 1 on [^ ]+ has not got on since 20.*UTC, for [0-9]+ s .it says: 7 steps done, waiting for the next batch."));
  }
  over.set_value();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

Result<RankPlace> place_in(const std::map<std::string, std::string>& variables) {
  return rank_place_of([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(rank_place, is_alone_without_a_launcher) {
  const RankPlace place = place_in({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}).value();  // A batch script.
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.size, 1);
}

TEST(rank_place, reads_the_names_of_torchrun) {
  const RankPlace place = place_in({{"RANK", "5"},
                                    {"WORLD_SIZE", "8"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "4"},
                                    {"MASTER_ADDR", "node0"},
                                    {"MASTER_PORT", "1234"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                    {"TORCHELASTIC_RESTART_COUNT", "2"}})
                              .value();
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 4);
  EXPECT_EQ(place.host, "node0");
  EXPECT_EQ(place.port, 1234);
  EXPECT_FALSE(place.hosts_store);
  EXPECT_EQ(place.attempt, "2");
}

TEST(rank_place, reads_the_names_of_mpirun_and_slurm) {
  const RankPlace mpi = place_in({{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
                            .value();
  EXPECT_EQ(mpi.rank, 1);
  EXPECT_EQ(mpi.size, 2);
  EXPECT_EQ(mpi.host, "127.0.0.1");
  const RankPlace slurm =
      place_in({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "3"}, {"SLURM_STEP_NUM_NODES", "1"}}).value();
  EXPECT_EQ(slurm.rank, 3);
  EXPECT_EQ(slurm.local_size, 4);
}

std::string job_in(const std::map<std::string, std::string>& variables) {
  return launcher_job_of([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(launcher_job, is_what_the_launcher_calls_the_run) {
  EXPECT_EQ(job_in({}), "");
  EXPECT_EQ(job_in({{"WORLD_SIZE", "1"}, {"TORCHELASTIC_RUN_ID", "run 7"}}), "run 7");
  EXPECT_EQ(job_in({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_NAMESPACE", "99"}}), "99");
  EXPECT_EQ(job_in({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}}), "12.3");
  EXPECT_EQ(job_in({{"WORLD_SIZE", "1"}, {"SLURM_JOB_ID", "12"}}), "") << "started by hand within a job";
  EXPECT_EQ(job_in({{"SM_HOSTS", "[]"}, {"TRAINING_JOB_NAME", "job"}}), "job");
}

TEST(rank_place, ranks_of_several_machines_are_spread_evenly) {
  const RankPlace slurm = place_in({{"SLURM_PROCID", "3"},
                                    {"SLURM_STEP_NUM_TASKS", "7"},
                                    {"SLURM_LOCALID", "3"},
                                    {"SLURM_STEP_NUM_NODES", "2"},
                                    {"MASTER_ADDR", "node0"}})
                              .value();
  EXPECT_EQ(slurm.local_size, 4);
}

TEST(rank_place, reads_the_hosts_of_sagemaker) {
  const RankPlace toolkit =
      place_in({{"SM_HOSTS", R"(["algo-1", "algo-2"])"}, {"SM_CURRENT_HOST", "algo-2"}, {"TRAINING_JOB_NAME", "job"}}).value();
  EXPECT_EQ(toolkit.rank, 1);
  EXPECT_EQ(toolkit.size, 2);
  EXPECT_EQ(toolkit.local_size, 1);
  EXPECT_EQ(toolkit.host, "algo-1");
  EXPECT_EQ(toolkit.port, 29500);
  const RankPlace config =
      place_in({{"SM_RESOURCE_CONFIG", R"({"current_host": "algo-1", "hosts": ["algo-2", "algo-1"], "network_interface_name": "eth0"})"},
                {"MASTER_PORT", "30000"}})
          .value();
  EXPECT_EQ(config.rank, 0);
  EXPECT_EQ(config.host, "algo-1");
  EXPECT_EQ(config.port, 30000);
  EXPECT_EQ(place_in({{"SM_HOSTS", R"(["algo-1"])"}, {"SM_CURRENT_HOST", "algo-1"}}).value().size, 1);
  // A launcher within the container knows better.
  EXPECT_EQ(place_in({{"SM_HOSTS", R"(["algo-1"])"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}}).value().rank, 1);
}

// What a container of SageMaker's without its toolkit has.
class ResourceConfigFile : public testing::Test {
 protected:
  ResourceConfigFile() {
    std::filesystem::create_directories(folder_.path("input/config"));
    setenv("SAGEMAKER_BASE_DIR", folder_.path("").c_str(), 1);
    setenv("TRAINING_JOB_NAME", "job", 1);
  }
  ~ResourceConfigFile() override {
    unsetenv("SAGEMAKER_BASE_DIR");
    unsetenv("TRAINING_JOB_NAME");
  }
  std::string path() const { return folder_.path("input/config/resourceconfig.json"); }
  void write(const std::string& text) const { std::ofstream(path()) << text; }

  const TemporaryFolder folder_;
};

TEST_F(ResourceConfigFile, names_the_hosts) {
  write(R"({"current_host": "algo-2", "hosts": ["algo-3", "algo-1", "algo-2"], "network_interface_name": "eth0"})");
  const RankPlace place = rank_place_of_environment().value();
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 3);
  EXPECT_EQ(place.local_size, 1);
  EXPECT_EQ(place.host, "algo-1");
  EXPECT_EQ(launcher_job_of_environment(), "job");
}

TEST_F(ResourceConfigFile, is_read_in_a_job_alone_and_missed_by_nobody) {
  EXPECT_EQ(rank_place_of_environment().value().size, 1) << "there is none";
  write(R"({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]})");
  EXPECT_EQ(rank_place_of_environment().value().size, 2);
  unsetenv("TRAINING_JOB_NAME");
  EXPECT_EQ(rank_place_of_environment().value().size, 1) << "no job of SageMaker's";
}

TEST_F(ResourceConfigFile, that_names_no_hosts_is_refused) {
  for (const char* text : {"", "{", "[]", R"({"hosts": ["algo-1"]})", R"({"current_host": "algo-1"})",
                           R"({"current_host": 1, "hosts": [1]})", R"({"current_host": "algo-9", "hosts": ["algo-1"]})"}) {
    write(text);
    EXPECT_EQ(rank_place_of_environment().status().code(), StatusCode::kInvalidArgument) << text;
  }
  write("{");
  EXPECT_THAT(rank_place_of_environment().status().message(), HasSubstr("resourceconfig.json, got: '{'"));
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  EXPECT_EQ(rank_place_of_environment().status().code(), StatusCode::kInvalidArgument) << "it is there and cannot be read";
}

TEST(rank_place, refuses_hosts_that_cannot_be) {
  for (const auto& [hosts, own] : {std::pair("algo-1", "algo-1"), std::pair("[]", ""), std::pair("[1]", "1"), std::pair(R"(["a"])", "b")}) {
    EXPECT_EQ(place_in({{"SM_HOSTS", hosts}, {"SM_CURRENT_HOST", own}}).status().code(), StatusCode::kInvalidArgument) << hosts;
  }
  EXPECT_EQ(place_in({{"SM_RESOURCE_CONFIG", "[]"}}).status().code(), StatusCode::kInvalidArgument);
}

TEST(rank_place, refuses_what_cannot_be) {
  const auto message = [](const std::map<std::string, std::string>& variables) {
    const auto place = place_in(variables);
    EXPECT_EQ(place.status().code(), StatusCode::kInvalidArgument);
    return place.status().message();
  };
  EXPECT_THAT(message({{"WORLD_SIZE", "two"}, {"RANK", "0"}}), HasSubstr("'two'"));
  EXPECT_THAT(message({{"WORLD_SIZE", "2"}, {"RANK", "2"}, {"MASTER_ADDR", "a"}}), HasSubstr("RANK"));
  EXPECT_THAT(message({{"WORLD_SIZE", "2"}}), HasSubstr("RANK"));
  EXPECT_THAT(message({{"WORLD_SIZE", "2"}, {"RANK", "0"}}), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(message({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}), HasSubstr("MASTER_PORT"));
}

}  // namespace
}  // namespace darkroom
