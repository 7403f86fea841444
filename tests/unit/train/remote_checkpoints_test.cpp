#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "darkroom/core/sha256.h"
#include "remote_run_fixture.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(RemoteRunTest, a_damaged_newest_checkpoint_is_passed_over_and_set_aside) {
  expect_trained(options());
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.objects.at("run/checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors").bytes.back() ^= 1;
  });
  expect_trained(options());
  EXPECT_EQ(losses(), undisturbed_losses());
  expect_same_checkpoint(12);
  EXPECT_TRUE(s3_.fake.bytes_of("run/checkpoints/damaged-step-00000012/state.json").has_value());
  EXPECT_TRUE(s3_.fake.bytes_of("run/checkpoints/damaged-step-00000012/ema/config.json").has_value());
}

TEST_F(RemoteRunTest, a_checkpoint_that_comes_over_wrongly_once_is_no_damaged_one) {
  constexpr const char* kWeights = "run/checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors";
  expect_trained(options());
  const TemporaryFolder copies;
  TrainOptions named = options();  // Of which the run folder's own is fetched to be compared.
  named.resume = copies.path("good");
  ASSERT_TRUE(copy_tree_here(s3_.place("run/checkpoints/step-00000012"), named.resume).is_ok());
  const auto flip = [&] { s3_.fake.with_state([&](FakeS3Objects& state) { state.objects.at(kWeights).bytes.back() ^= 1; }); };
  for (const TrainOptions& again : {options(), named}) {
    std::atomic<int> num_calls = 0;
    const auto reads_weights = [&](const FakeS3::Call& call) { return call.operation == "get" && call.key == kWeights; };
    s3_.fake.before = [&](const FakeS3::Call& call) {
      if (reads_weights(call) && num_calls++ == 0) {
        flip();
      }
    };
    s3_.fake.after = [&](const FakeS3::Call& call) {
      if (reads_weights(call) && num_calls == 1) {
        flip();
      }
    };
    expect_trained(again);
    EXPECT_EQ(num_calls, 2);
    EXPECT_THAT(steps(), ElementsAre(8, 12));
    EXPECT_TRUE(s3_.fake.keys_below("run/checkpoints/damaged").empty());
    s3_.fake.before = [](const FakeS3::Call&) {};
    s3_.fake.after = [](const FakeS3::Call&) {};
  }
}

TEST_F(RemoteRunTest, a_checkpoint_without_its_record_does_not_exist) {
  expect_trained(options());
  s3_.fake.with_state([](FakeS3Objects& state) { state.objects.erase("run/checkpoints/step-00000012/state.json"); });
  EXPECT_THAT(steps(), ElementsAre(8));
  expect_trained(options());
  EXPECT_EQ(losses(), undisturbed_losses());
  expect_same_checkpoint(12);
}

TEST_F(RemoteRunTest, remains_of_removed_checkpoints_go_and_what_a_user_put_aside_stays) {
  expect_trained(options());
  s3_.fake.with_state([](FakeS3Objects& state) {
    const std::string record = state.objects.at("run/checkpoints/step-00000008/state.json").bytes;
    for (const char* name : {"step-00000004/unet/config.json", "step-00000004-good/state.json", "step-00000004-good/unet/config.json",
                             "step-00000008.keep/unet/config.json", "step-000000008/notes.txt", "step-/notes.txt"}) {
      state.put(std::string("run/checkpoints/") + name, record, "", false);
    }
  });
  expect_trained(options());
  for (const char* name : {"step-00000004-good/state.json", "step-00000004-good/unet/config.json", "step-00000008.keep/unet/config.json",
                           "step-000000008/notes.txt", "step-/notes.txt", "step-00000008/state.json"}) {
    EXPECT_TRUE(s3_.fake.bytes_of(std::string("run/checkpoints/") + name).has_value()) << name;
  }
  EXPECT_TRUE(s3_.fake.keys_below("run/checkpoints/step-00000004/").empty());
}

TEST_F(RemoteRunTest, fails_when_every_checkpoint_is_damaged) {
  expect_trained(options());
  s3_.fake.with_state([](FakeS3Objects& state) {
    for (const char* step : {"08", "12"}) {
      state.objects.erase(fmt::format("run/checkpoints/step-000000{}/unet/config.json", step));
    }
  });
  const Status failed = train(options());
  EXPECT_EQ(failed.code(), StatusCode::kCorruptData);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/run/checkpoints/step-00000008/unet/config.json"));
  EXPECT_THAT(failed.message(), Not(HasSubstr("darkroom-scratch")));
}

TEST_F(RemoteRunTest, keeps_every_mth_checkpoint) {
  TrainOptions kept = options();
  kept.recipe.checkpoint = {.every_steps = 2, .keep_last = 1, .keep_every = 6};
  expect_trained(kept);
  EXPECT_THAT(steps(), ElementsAre(6, 12));
}

TEST_F(RemoteRunTest, resume_none_and_older_checkpoints_are_refused) {
  expect_trained(options());
  TrainOptions afresh = options();
  afresh.resume = "none";
  EXPECT_THAT(train(afresh).message(), HasSubstr("--resume none would start over"));
  TrainOptions older = options();
  older.resume = FakeS3Stores::uri("run/checkpoints/step-00000008");
  EXPECT_THAT(train(older).message(), HasSubstr("newer checkpoints"));
  TemporaryFolder folder;
  older.output = folder.path("branch");
  expect_trained(older);
  const auto branch = read_file(local_files(), folder.path("branch/checkpoints/step-00000012/unet/diffusion_pytorch_model.safetensors"));
  EXPECT_EQ(sha256_hex(*branch), sha256_hex(*s3_.fake.bytes_of("run/checkpoints/step-00000012/unet/diffusion_pytorch_model.safetensors")));
  TrainOptions other = options(FakeS3Stores::uri("run"), 16);
  other.recipe.runtime.seed = 1;
  EXPECT_THAT(train(other).message(), HasSubstr("runtime.seed (was 2024, is 1)"));
}

TEST_F(RemoteRunTest, a_restart_goes_on_though_the_run_has_pruned_what_resume_names) {
  expect_trained(options());
  TrainOptions restart = options();
  restart.resume = FakeS3Stores::uri("run/checkpoints/step-00000004");
  EXPECT_EQ(train(restart).code(), StatusCode::kNotFound);
  restart.is_restart = true;
  expect_trained(restart);
  EXPECT_THAT(steps(), ElementsAre(8, 12));
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.objects.at("run/checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors").bytes.back() ^= 1;
  });
  restart.resume = FakeS3Stores::uri("run/checkpoints/step-00000012");
  expect_trained(restart);  // From step 8.
  expect_same_checkpoint(12);
  const TemporaryFolder folder;
  restart.output = folder.path("nothing");
  restart.resume = FakeS3Stores::uri("run/checkpoints/step-00000004");
  const Status failed = train(restart);
  EXPECT_EQ(failed.code(), StatusCode::kNotFound);
  EXPECT_THAT(failed.message(), HasSubstr(restart.resume));
}

TEST_F(RemoteRunTest, a_checkpoint_of_the_folder_that_is_damaged_or_another_is_not_the_one_named) {
  expect_trained(options());
  TrainOptions named = options();
  named.resume = undisturbed_->path("run/checkpoints/step-00000012");
  const Status refused = train(named);  // Of a run from other places, which its record tells.
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), testing::AllOf(HasSubstr("take --resume auto"), HasSubstr("run/checkpoints/step-00000012")));
  const TemporaryFolder copies;
  named.resume = copies.path("good");
  ASSERT_TRUE(copy_tree_here(s3_.place("run/checkpoints/step-00000012"), named.resume).is_ok());
  expect_trained(named);
  EXPECT_TRUE(s3_.fake.keys_below("run/checkpoints/damaged").empty());
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.objects.at("run/checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors").bytes.back() ^= 1;
  });
  expect_trained(named);
  expect_same_checkpoint(12);
  EXPECT_TRUE(s3_.fake.bytes_of("run/checkpoints/damaged-step-00000012/state.json").has_value());
}

TEST_F(RemoteRunTest, starts_from_the_weights_of_a_remote_checkpoint) {
  expect_trained(options());
  TrainOptions second = options(FakeS3Stores::uri("second"), 4);
  second.init_from = FakeS3Stores::uri("run/checkpoints/step-00000012");
  second.recipe.optimizer.lr = 1e-30;  // Too small to change a weight.
  expect_trained(second);
  EXPECT_EQ(s3_.fake.bytes_of("second/checkpoints/step-00000004/unet/diffusion_pytorch_model.safetensors"),
            s3_.fake.bytes_of("run/checkpoints/step-00000012/unet/diffusion_pytorch_model.safetensors"));
}

}  // namespace
}  // namespace darkroom
