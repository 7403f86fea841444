#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "darkroom/core/sha256.h"
#include "remote_run_fixture.h"
#include "support/rank_threads.h"
#include "support/watched_rank.h"
#include "train/remote_run.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Kills the way to the store at the first call that touches such a key, of all operations or one; then goes on.
TEST_F(RemoteRunTest, goes_on_bit_identically_wherever_a_run_was_cut_off) {
  struct Cut {
    const char* operation;
    const char* key;
    bool is_done;  // The store carried the call out, and nobody heard of it.
  };
  for (const Cut& cut : std::initializer_list<Cut>{{"put", "run/metrics-0000000008.jsonl", false},
                                                   {"put", "run/metrics-0000000008.jsonl", true},
                                                   {"put", "run/events.out.tfevents.0000000000.darkroom.0000000008", false},
                                                   {"put", "_tmp.step-00000008", false},
                                                   {"put", "ema/diffusion_pytorch_model.safetensors", true},
                                                   {"copy", "run/checkpoints/step-00000008/", false},
                                                   {"copy", "run/checkpoints/step-00000008/unet/", true},
                                                   {"put", "run/checkpoints/step-00000008/state.json", false},
                                                   {"put", "run/checkpoints/step-00000008/state.json", true},
                                                   {"remove", "run/checkpoints/step-00000004/state.json", true},
                                                   {"put", "run/run.json", true}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", cut.operation, cut.key, cut.is_done));
    std::atomic<bool> is_dead = false;
    s3_.fake.fault = [&](const FakeS3::Call& call) {
      const bool is_here = call.operation == cut.operation && call.key.find(cut.key) != std::string::npos;
      if (is_here && !is_dead.exchange(true) && cut.is_done) {
        return FakeS3::Fault::kLostReply;
      }
      return is_dead ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
    };
    const bool is_over = std::string_view(cut.operation) == "remove";  // All is stored.
    EXPECT_EQ(train(options()).code(), is_over ? StatusCode::kOk : StatusCode::kUnavailable);
    ASSERT_TRUE(is_dead);
    s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
    EXPECT_THAT(train(options()).message(), HasSubstr("another process is training"));
    let_claim_expire();
    expect_trained(options());
    EXPECT_EQ(losses(), undisturbed_losses());
    EXPECT_THAT(steps(), ElementsAre(8, 12));
    EXPECT_TRUE(s3_.fake.keys_below("run/checkpoints/step-00000004").empty());
    EXPECT_TRUE(s3_.fake.keys_below("run/checkpoints/_tmp").empty());
    expect_same_checkpoint(12);
    ASSERT_TRUE(s3_.place("run").store->remove_tree(s3_.place("run").path).is_ok());
  }
}

TEST_F(RemoteRunTest, a_store_that_is_gone_for_a_while_costs_no_step) {
  using Fault = FakeS3::Fault;
  constexpr int kCalls = 20;
  for (const auto& [operation, key, first] : std::initializer_list<std::tuple<std::string, std::string, Fault>>{
           {"put", "run/metrics-0000000008.jsonl", Fault::kReset},
           {"put", "ema/diffusion_pytorch_model.safetensors", Fault::kReset},
           {"copy", "run/checkpoints/step-00000008/", Fault::kReset},
           {"copy", "run/checkpoints/step-00000008/unet/", Fault::kLostReply},
           {"put", "run/checkpoints/step-00000008/state.json", Fault::kLostReply},
           {"remove", "run/checkpoints/step-00000004/state.json", Fault::kReset}}) {
    SCOPED_TRACE(operation + " " + key);
    std::atomic<int> num_failed = 0;
    s3_.fake.fault = [&, operation = operation, key = key, first = first](const FakeS3::Call& call) {
      const bool begins = num_failed == 0 && call.operation == operation && call.key.find(key) != std::string::npos;
      const bool fails = begins || (num_failed > 0 && num_failed < kCalls);
      num_failed += fails ? 1 : 0;
      return begins ? first : fails ? Fault::kReset : Fault::kNone;
    };
    expect_trained(options());
    EXPECT_GE(num_failed.load(), operation == "remove" ? 1 : kCalls);
    EXPECT_EQ(losses(), undisturbed_losses());
    EXPECT_THAT(steps(), testing::IsSupersetOf({8, 12}));
    expect_same_checkpoint(8);
    expect_same_checkpoint(12);
    s3_.fake.fault = [](const FakeS3::Call&) { return Fault::kNone; };
    ASSERT_TRUE(s3_.place("run").store->remove_tree(s3_.place("run").path).is_ok());
  }
}

TEST_F(RemoteRunTest, a_store_that_is_gone_for_longer_than_a_run_waits_costs_neither_checkpoint_nor_step) {
  train_while_store_is_gone("run/metrics-0000000004.jsonl", std::chrono::minutes(20));
  EXPECT_TRUE(s3_.fake.bytes_of("run/metrics-0000000004.jsonl").has_value());
  EXPECT_EQ(losses(), undisturbed_losses());
  EXPECT_THAT(steps(), ElementsAre(8, 12));
  expect_same_checkpoint(8);
  expect_same_checkpoint(12);
}

TEST_F(RemoteRunTest, the_checkpoints_of_a_long_outage_are_stored_once_each_in_their_order) {
  std::vector<std::string> stored;
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.operation == "put" && call.key.starts_with("run/checkpoints/step-") && call.key.ends_with("/state.json")) {
      stored.push_back(call.key);
    }
  };
  TrainOptions all = options();
  all.recipe.checkpoint.keep_every = 4;
  train_while_store_is_gone("run/metrics-0000000004.jsonl", std::chrono::minutes(40),
                            all);  // Two checkpoints wait for a quarter of an hour.
  s3_.fake.before = [](const FakeS3::Call&) {};
  EXPECT_EQ(stored, (std::vector<std::string>{"run/checkpoints/step-00000004/state.json", "run/checkpoints/step-00000008/state.json",
                                              "run/checkpoints/step-00000012/state.json"}));
  EXPECT_EQ(losses(), undisturbed_losses());
  EXPECT_THAT(steps(), ElementsAre(4, 8, 12));
  expect_same_checkpoint(12);
  for (const char* step : {"04", "08", "12"}) {  // A run that goes on from any of them has its lines.
    EXPECT_TRUE(s3_.fake.bytes_of(fmt::format("run/metrics-00000000{}.jsonl", step)).has_value()) << step;
  }
}

TEST_F(RemoteRunTest, of_the_checkpoints_of_an_outage_those_that_would_go_at_once_are_not_stored) {
  TrainOptions last = options();
  last.recipe.checkpoint.keep_last = 1;
  train_while_store_is_gone("run/metrics-0000000004.jsonl", std::chrono::minutes(20), last);
  EXPECT_FALSE(s3_.fake.bytes_of("run/metrics-0000000004.jsonl").has_value()) << "its lines came with the next ones";
  EXPECT_EQ(losses(), undisturbed_losses());
  EXPECT_THAT(steps(), ElementsAre(12));
  expect_same_checkpoint(12);
}

/// A run whose spool has an undisturbed run's files up to step 12, of which the checkpoints of these steps could not be stored.
class FullSpoolTest : public RemoteRunTest {
 protected:
  void open_with_unstored(const std::vector<int64_t>& unstored, const std::stop_token& stop = {}) {
    auto opened = RemoteRun::open(s3_.place("run"), s3_.clock, stop);
    ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
    run_ = *std::move(opened);
    std::filesystem::copy(undisturbed_->path("run"), run_->spool(),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    ASSERT_TRUE(run_->begin(4, "events.out.tfevents.0000000000.darkroom").is_ok());
    s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kReset; };
    const std::string twelve = run_->spool() + "/checkpoints/" + checkpoint_name(12);
    for (const int64_t step : unstored) {
      std::ofstream(run_->spool() + "/metrics.jsonl", std::ios::app) << "{}\n";  // A line that belongs to it.
      std::filesystem::rename(twelve, run_->spool() + "/later");
      if (step == 12) {
        std::filesystem::rename(run_->spool() + "/later", twelve);
      }
      EXPECT_EQ(run_->store_checkpoint(step, {.keep_last = 2}, AfterSaving::kGoesOn).code(), StatusCode::kUnavailable);
      if (step != 12) {
        std::filesystem::rename(run_->spool() + "/later", twelve);
      }
    }
  }
  void bring_store_back() {
    s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  }
  std::vector<int64_t> spooled() const {
    std::vector<int64_t> found;
    const auto places = list_checkpoints(local_files(), run_->spool() + "/checkpoints");
    for (const CheckpointPlace& place : *places) {
      found.push_back(place.step);
    }
    return found;
  }

  static constexpr int64_t kMuchRoom = int64_t{1} << 40;
  std::unique_ptr<RemoteRun> run_;
};

TEST_F(FullSpoolTest, gives_up_what_is_stored_and_then_the_oldest) {
  open_with_unstored({8});
  ASSERT_THAT(spooled(), ElementsAre(8, 12));
  EXPECT_TRUE(*run_->make_room(0));
  EXPECT_THAT(spooled(), ElementsAre(8)) << "of the other nothing is known here";
  EXPECT_TRUE(*run_->make_room(kMuchRoom));
  EXPECT_THAT(spooled(), ElementsAre());
  EXPECT_FALSE(*run_->make_room(kMuchRoom));
}

TEST_F(FullSpoolTest, keeps_the_only_one_where_somebody_else_fills_the_disk) {
  open_with_unstored({8, 12});
  EXPECT_TRUE(*run_->make_room(0)) << "the newer one is left";
  EXPECT_THAT(spooled(), ElementsAre(12));
  EXPECT_FALSE(*run_->make_room(0));
  EXPECT_THAT(spooled(), ElementsAre(12));
  EXPECT_FALSE(run_->has_stored(12));
}

TEST_F(FullSpoolTest, stores_one_that_the_store_takes_again_before_it_is_given_up) {
  open_with_unstored({8});
  bring_store_back();
  EXPECT_TRUE(*run_->make_room(0));  // What is known to be stored, or to nobody.
  EXPECT_TRUE(*run_->make_room(0));
  EXPECT_THAT(spooled(), ElementsAre());
  EXPECT_THAT(steps(), ElementsAre(8));
  EXPECT_TRUE(run_->has_stored(8));
  expect_same_checkpoint(8);
}

TEST_F(FullSpoolTest, after_a_stop_the_newest_is_stored_first) {
  std::stop_source stop;
  open_with_unstored({8}, stop.get_token());
  bring_store_back();
  stop.request_stop();
  std::vector<std::string> stored;
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.operation == "put" && call.key.starts_with("run/checkpoints/step-") && call.key.ends_with("/state.json")) {
      stored.push_back(call.key);
    }
  };
  EXPECT_TRUE(run_->store_checkpoint(12, {.keep_last = 2}).is_ok());
  s3_.fake.before = [](const FakeS3::Call&) {};
  EXPECT_EQ(stored, (std::vector<std::string>{"run/checkpoints/step-00000012/state.json", "run/checkpoints/step-00000008/state.json"}));
  EXPECT_THAT(steps(), ElementsAre(8, 12));
  EXPECT_TRUE(s3_.fake.bytes_of("run/metrics-0000000008.jsonl").has_value()) << "its lines are a part of their own";
}

/// Whatever writes into the folder of checkpoints has this fault.
std::function<FakeS3::Fault(const FakeS3::Call&)> of_writing_checkpoints(FakeS3::Fault fault) {
  return [fault](const FakeS3::Call& call) {
    const bool writes = call.operation == "put" || call.operation == "create_upload" || call.operation == "copy";
    return writes && call.key.starts_with("run/checkpoints/") ? fault : FakeS3::Fault::kNone;
  };
}

/// Where a run says that it kept a checkpoint.
std::string kept_place(const std::string& message) {
  const size_t begin = message.find("--resume ") + 9;
  return message.substr(begin, message.find(' ', begin) - begin);
}

TEST_F(RemoteRunTest, two_ranks_whose_last_checkpoint_was_kept_are_not_started_anew) {
  std::stop_source stop;
  std::atomic<int> num_failed = 0;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    const bool fails = num_failed > 0 || call.key == "run/metrics-0000000012.jsonl";
    if (num_failed += fails ? 1 : 0; num_failed == 20) {
      stop.request_stop();
    }
    return fails ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  const int64_t port = free_loopback_port();
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  std::array<Status, 2> ended;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ended.size(); ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const auto ranks = join_gloo(loopback_rank(static_cast<int64_t>(rank), 2, port));
      ASSERT_TRUE(ranks.is_ok()) << ranks.status().to_string();
      TrainOptions one = options();
      one.clock = &s3_.clock;
      one.recipe.runtime.gradient_groups = 2;
      one.recipe.batch.micro = 3;
      one.ranks = ranks->get();
      TrainSummary summary;
      ended[rank] = run_training(s3_.set, one, stop.get_token(), summary);
      if (rank == 0) {
        EXPECT_TRUE((*ranks)->finish().is_ok());  // For the other one, which waits for it.
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(ended[0].code(), StatusCode::kFailedPrecondition) << ended[0].to_string();
  EXPECT_THAT(ended[0].message(), HasSubstr("the checkpoint of step 12 was not stored and is kept here"));
  const std::string kept = kept_place(ended[0].message());
  EXPECT_TRUE(read_checkpoint(local_files(), kept).is_ok());
  std::filesystem::remove_all(kept);
}

TEST_F(RemoteRunTest, a_run_that_ends_in_an_outage_keeps_all_its_checkpoints_here) {
  std::atomic<bool> is_gone = false;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    is_gone = is_gone || call.key == "run/metrics-0000000004.jsonl";
    return is_gone ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  const Status ended = train(options());
  EXPECT_EQ(ended.code(), StatusCode::kUnavailable);
  const std::string kept = kept_place(ended.message());
  EXPECT_EQ(read_checkpoint(local_files(), kept).value().step, 12) << ended.message();
  std::string earlier = kept;
  earlier.replace(earlier.find("step-00000012"), 13, "step-00000008");
  EXPECT_EQ(read_checkpoint(local_files(), earlier).value().step, 8);
  std::filesystem::remove_all(kept);
  std::filesystem::remove_all(earlier);
}

TEST_F(RemoteRunTest, a_run_that_ends_waits_longer_for_its_store) {
  train_while_store_is_gone("run/metrics-0000000012.jsonl", std::chrono::minutes(45));
  expect_undisturbed_result();
}

TEST_F(RemoteRunTest, a_stop_ends_the_waiting_for_a_store) {
  std::stop_source stop;
  std::atomic<int> num_failed = 0;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    const bool fails = num_failed > 0 || call.key == "run/metrics-0000000008.jsonl";
    if (num_failed += fails ? 1 : 0; num_failed == 20) {
      stop.request_stop();
    }
    return fails ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  TrainOptions stopped = options();
  stopped.clock = &s3_.clock;
  TrainSummary summary;
  const Status ended = run_training(s3_.set, stopped, stop.get_token(), summary);
  EXPECT_EQ(ended.code(), StatusCode::kUnavailable);
  EXPECT_LT(num_failed.load(), 90);
  // What was trained is not lost.
  const std::string message = ended.message();
  const std::string kept = kept_place(message);
  EXPECT_THAT(message, HasSubstr("the checkpoint of step 8 was not stored and is kept here"));
  EXPECT_TRUE(read_checkpoint(local_files(), kept).is_ok()) << message;
  // And the run that goes on from it stores it, though it has no step to do.
  s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  TrainOptions again = options();
  again.resume = kept;
  again.recipe.schedule.max_steps = 8;
  let_claim_expire();  // It could not be given back.
  expect_trained(again);
  EXPECT_THAT(steps(), testing::ElementsAre(4, 8));
  std::filesystem::remove_all(kept);
}

TEST_F(RemoteRunTest, a_store_that_refuses_a_checkpoint_for_good_leaves_it_here) {
  s3_.fake.fault = of_writing_checkpoints(FakeS3::Fault::kForbid);
  const Status ended = train(options());
  const std::string message = ended.message();
  EXPECT_THAT(message, HasSubstr("the checkpoint of step 4 was not stored and is kept here"));
  const std::string kept = kept_place(message);
  EXPECT_TRUE(read_checkpoint(local_files(), kept).is_ok()) << message;
  std::filesystem::remove_all(kept);
}

TEST_F(RemoteRunTest, an_exception_leaves_a_checkpoint_here_that_the_store_did_not_take) {
  s3_.fake.fault = of_writing_checkpoints(FakeS3::Fault::kReset);
  WatchedRank alone;
  bool was_thrown = false;
  alone.ranks.on_progress = [&] {
    if (!was_thrown && alone.doing().starts_with("5 steps done")) {
      was_thrown = true;
      throw std::bad_alloc();
    }
  };
  TrainOptions failing = options();
  failing.ranks = &alone.ranks;
  const Status ended = train(failing);
  EXPECT_EQ(ended.code(), StatusCode::kResourceExhausted);
  const std::string message = ended.message();
  ASSERT_THAT(message, HasSubstr("the checkpoint of step 4 was not stored and is kept here; --resume "));
  const std::string kept = kept_place(message);
  EXPECT_TRUE(read_checkpoint(local_files(), kept).is_ok()) << message;
  std::filesystem::remove_all(kept);
}

TEST_F(RemoteRunTest, previews_that_a_store_did_not_take_come_with_the_next_checkpoint) {
  auto run = RemoteRun::open(s3_.place("run"), s3_.clock, {});
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  std::filesystem::copy(undisturbed_->path("run"), (*run)->spool(),
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  const std::string sheet = "samples/step-00000012/sheet.png";
  ASSERT_TRUE(write_file_atomic(local_files(), (*run)->spool() + "/" + sheet, "pixels").is_ok());
  ASSERT_TRUE((*run)->begin(8, "events.out.tfevents.0000000000.darkroom").is_ok());
  s3_.fake.fault = [](const FakeS3::Call& call) {
    return call.key.find("samples/") != std::string::npos ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  (*run)->store_folder("samples/step-00000012");
  EXPECT_FALSE(s3_.fake.bytes_of("run/" + sheet).has_value());
  s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  ASSERT_TRUE((*run)->store_checkpoint(12, {.keep_last = 2}).is_ok());
  EXPECT_EQ(s3_.fake.bytes_of("run/" + sheet), "pixels");
}

TEST_F(RemoteRunTest, saves_before_it_ends_when_the_dataset_cannot_be_read_any_more) {
  s3_.fake.with_state([](FakeS3Objects& state) {  // More than what is read at once.
    for (int part = 2; part < 8; ++part) {
      state.objects[fmt::format("latents/part-{:06}.parquet", part)] =
          state.objects.at(fmt::format("latents/part-{:06}.parquet", part % 2));
    }
  });
  TrainOptions far = options();
  far.clock = &s3_.clock;
  far.recipe.data.window_blocks = 1;
  far.recipe.data.batches_ahead = 1;
  TrainOptions whole = far;
  whole.output = FakeS3Stores::uri("whole");
  expect_trained(whole);
  std::atomic<bool> is_gone = false;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    is_gone = is_gone || call.key == "run/metrics-0000000004.jsonl";
    return is_gone && call.key.starts_with("latents/") ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  TrainSummary summary;
  const Status failed = run_training(s3_.set, far, {}, summary);
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
  EXPECT_THAT(failed.message(), HasSubstr(fmt::format("the checkpoint of step {}", summary.steps)));
  EXPECT_GT(summary.steps, 4);
  EXPECT_LT(summary.steps, 12);
  EXPECT_EQ(steps().back(), summary.steps);
  s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  expect_trained(far);
  const std::string weights = "/checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors";
  EXPECT_EQ(sha256_hex(*s3_.fake.bytes_of("run" + weights)), sha256_hex(*s3_.fake.bytes_of("whole" + weights)));
}

TEST_F(RemoteRunTest, a_stop_request_saves_and_the_same_command_goes_on) {
  std::stop_source stop;
  // At the first byte of step 4's metrics: the run is in the middle.
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/metrics-0000000004.jsonl") {
      stop.request_stop();
    }
  };
  TrainSummary summary;
  EXPECT_EQ(run_training(s3_.set, options(), stop.get_token(), summary).code(), StatusCode::kCancelled);
  EXPECT_THAT(steps(), ElementsAre(4));
  s3_.fake.before = [](const FakeS3::Call&) {};
  expect_trained(options());
  expect_undisturbed_result();
}

TEST_F(RemoteRunTest, a_stop_is_seen_while_a_silent_store_is_waited_for) {
  s3_.fake.with_state([](FakeS3Objects& state) {  // More than what is read at once.
    for (int part = 2; part < 8; ++part) {
      state.objects[fmt::format("latents/part-{:06}.parquet", part)] =
          state.objects.at(fmt::format("latents/part-{:06}.parquet", part % 2));
    }
  });
  std::atomic<bool> is_gone = false, is_silent = false, was_in_vain = false;
  std::latch saved(1);
  s3_.fake.before = [&](const FakeS3::Call& call) {
    is_gone = is_gone || call.key == "run/metrics-0000000004.jsonl";
    if (is_gone && call.operation == "get" && call.key.starts_with("latents/")) {
      is_silent = true;
      const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!saved.try_wait() && !was_in_vain) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        was_in_vain = was_in_vain || std::chrono::steady_clock::now() >= last;
      }
    }
  };
  s3_.fake.after = [&](const FakeS3::Call& call) {
    const bool writes = call.operation == "put" || call.operation == "copy";
    if (writes && is_silent && call.key.starts_with("run/checkpoints/") && call.key.ends_with("/state.json") && !saved.try_wait()) {
      saved.count_down();
    }
  };
  WatchedRank alone;
  TrainOptions far = options();
  far.recipe.data.window_blocks = 1;
  far.recipe.data.batches_ahead = 1;
  far.ranks = &alone.ranks;
  far.clock = &s3_.clock;
  std::stop_source stop;
  const std::jthread stopper([&](const std::stop_token& end) {
    while (!end.stop_requested() && !(is_silent && alone.doing().ends_with("waiting for the next batch"))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    stop.request_stop();
  });
  TrainSummary summary;
  const Status ended = run_training(s3_.set, far, stop.get_token(), summary);
  EXPECT_EQ(ended.code(), StatusCode::kCancelled) << ended.to_string();
  EXPECT_THAT(ended.message(), HasSubstr("stopped on request"));
  EXPECT_FALSE(was_in_vain) << "the checkpoint came only after the samples";
  EXPECT_EQ(steps().back(), summary.steps);
}

TEST_F(RemoteRunTest, saves_in_the_background_store_the_same) {
  TrainOptions background = options();
  background.recipe.runtime.background_saves = true;
  expect_trained(background);
  expect_undisturbed_result();
}

TEST_F(RemoteRunTest, a_store_that_is_gone_during_a_save_in_the_background_costs_no_step) {
  constexpr int kCalls = 20;
  std::atomic<int> num_failed = 0;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    const bool begins = num_failed == 0 && call.operation == "put" && call.key == "run/metrics-0000000008.jsonl";
    const bool fails = begins || (num_failed > 0 && num_failed < kCalls);
    num_failed += fails ? 1 : 0;
    return fails ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  TrainOptions background = options();
  background.recipe.runtime.background_saves = true;
  expect_trained(background);
  EXPECT_GE(num_failed.load(), kCalls);
  EXPECT_EQ(losses(), undisturbed_losses());
  EXPECT_THAT(steps(), testing::IsSupersetOf({8, 12}));
  expect_same_checkpoint(12);
}

TEST_F(RemoteRunTest, a_stop_during_a_save_in_the_background_saves_the_newest_and_the_same_command_goes_on) {
  std::stop_source stop;
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/metrics-0000000004.jsonl") {
      stop.request_stop();
    }
  };
  TrainOptions background = options();
  background.recipe.runtime.background_saves = true;
  TrainSummary summary;
  const Status ended = run_training(s3_.set, background, stop.get_token(), summary);
  EXPECT_TRUE(ended.is_ok() || ended.code() == StatusCode::kCancelled) << ended.to_string();  // It may have been through by then.
  ASSERT_FALSE(steps().empty());
  EXPECT_EQ(steps().back(), summary.steps);
  s3_.fake.before = [](const FakeS3::Call&) {};
  expect_trained(background);
  EXPECT_EQ(losses(), undisturbed_losses());
  expect_same_checkpoint(12);
}

TEST_F(RemoteRunTest, what_a_failing_run_logged_is_stored) {
  TrainOptions exploding = options(FakeS3Stores::uri("run"), 50);
  exploding.recipe.optimizer.lr = 1e30;
  exploding.recipe.optimizer.clip_norm = 0;
  exploding.recipe.checkpoint.every_steps = 0;
  const Status failed = train(exploding);
  EXPECT_EQ(failed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/latents/part-00000"));
  EXPECT_FALSE(s3_.fake.keys_below("run/metrics-").empty());
  EXPECT_TRUE(steps().empty());
}

}  // namespace
}  // namespace darkroom
