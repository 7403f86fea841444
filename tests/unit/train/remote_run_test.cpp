#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "darkroom/core/sha256.h"
#include "remote_run_fixture.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(RemoteRunTest, counting_what_a_step_computes_does_not_fetch_the_model_again) {
  std::atomic<int> num_reads = 0;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    num_reads += call.key == "model/unet/config.json" && call.operation == "get" ? 1 : 0;
    return FakeS3::Fault::kNone;
  };
  TrainOptions counted = options(FakeS3Stores::uri("run"), 1);
  counted.counts_work = true;
  expect_trained(counted);
  EXPECT_EQ(num_reads, 1);
  EXPECT_THAT(s3_.fake.bytes_of("run/metrics-0000000001.jsonl").value_or(""), HasSubstr("tflops"));
}

TEST_F(RemoteRunTest, a_run_on_s3_has_the_losses_and_bytes_of_a_local_one) {
  expect_trained(options());
  expect_undisturbed_result();
  expect_same_checkpoint(8);
  std::vector<std::string> names;
  for (const std::string& key : s3_.fake.keys_below("run/")) {
    if (const std::string name = key.substr(4); !name.starts_with("checkpoints/")) {
      names.push_back(name);
    }
  }
  EXPECT_THAT(names,
              ElementsAre("events.out.tfevents.0000000000.darkroom.0000000004", "events.out.tfevents.0000000000.darkroom.0000000008",
                          "events.out.tfevents.0000000000.darkroom.0000000012", "goodput.jsonl", "index.json", "metrics-0000000004.jsonl",
                          "metrics-0000000008.jsonl", "metrics-0000000012.jsonl", "recipe.toml", "run.json"));
  EXPECT_EQ(s3_.fake.bytes_of("run/index.json"), *read_file(local_files(), undisturbed_->path("run/index.json")));
  const auto recipe = parse_recipe(*s3_.fake.bytes_of("run/recipe.toml"), "recipe.toml");
  ASSERT_TRUE(recipe.is_ok());
  EXPECT_EQ(recipe->data.path, FakeS3Stores::uri("latents"));
  EXPECT_EQ(recipe->model.path, FakeS3Stores::uri("model"));
  const auto record = read_checkpoint_record(s3_.place("run/checkpoints/step-00000012"));
  ASSERT_TRUE(record.is_ok()) << record.status().to_string();
  EXPECT_EQ(record->record.frozen_path, FakeS3Stores::uri("model"));
}

TEST_F(RemoteRunTest, the_parts_of_events_are_the_local_file_in_pieces) {
  expect_trained(options());
  std::string whole;
  for (const std::string& key : s3_.fake.keys_below("run/events")) {
    whole += *s3_.fake.bytes_of(key);
  }
  // Frames: length, its check, data, its check; the times within differ from run to run, the sizes do not.
  EXPECT_EQ(whole.size(), read_file(local_files(), undisturbed_->path("run/events.out.tfevents.0000000000.darkroom"))->size());
}

TEST_F(RemoteRunTest, a_finished_run_stays_as_it_is_and_a_longer_one_goes_on) {
  TrainOptions constant = options();
  constant.recipe.schedule.kind = "constant";
  expect_trained(constant);
  const auto first = losses();
  expect_trained(constant);
  EXPECT_EQ(losses(), first);
  constant.recipe.schedule.max_steps = 14;
  expect_trained(constant);
  EXPECT_EQ(losses().size(), 14U);
  EXPECT_THAT(steps(), ElementsAre(12, 14));
}

TEST_F(RemoteRunTest, a_local_run_that_was_copied_to_a_store_goes_on_there_with_its_metrics) {
  ASSERT_TRUE(s3_.upload(undisturbed_->path("run"), "run").is_ok());
  EXPECT_EQ(losses(), undisturbed_losses());
  const Location last = s3_.place("run/checkpoints/step-00000012");
  ASSERT_TRUE(last.store->remove_tree(last.path).is_ok());
  expect_trained(options());  // Steps 9 to 12, which metrics.jsonl tells of already.
  EXPECT_EQ(losses(), undisturbed_losses());
  EXPECT_EQ(losses_in(*s3_.fake.bytes_of("run/metrics-0000000012.jsonl")).size(), 4U);
  expect_same_checkpoint(12);
}

TEST_F(RemoteRunTest, a_dataset_that_changed_is_refused_and_a_missing_one_is_named) {
  expect_trained(options());
  s3_.fake.with_state(
      [](FakeS3Objects& state) { state.objects["latents/part-000002.parquet"] = state.objects.at("latents/part-000001.parquet"); });
  EXPECT_THAT(train(options(FakeS3Stores::uri("run"), 16)).message(), HasSubstr("the dataset is not the one"));
  TrainOptions missing = options(FakeS3Stores::uri("other"));
  missing.recipe.data.path = FakeS3Stores::uri("nowhere");
  const Status failed = train(missing);
  EXPECT_EQ(failed.code(), StatusCode::kNotFound);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/nowhere"));
  EXPECT_TRUE(s3_.fake.keys_below("other/").empty()) << "a start that failed leaves nothing";
}

TEST_F(RemoteRunTest, a_store_without_conditions_on_uploads_gets_the_same_run) {
  for (const auto conditions : {FakeS3::Conditions::kPutOnly, FakeS3::Conditions::kNone}) {
    FakeS3Stores other(conditions, 16 << 10);
    ASSERT_TRUE(other.upload(inputs_->path("model"), "model").is_ok());
    ASSERT_TRUE(other.upload(inputs_->path("latents"), "latents").is_ok());
    TrainSummary summary;
    const Status trained = run_training(other.set, options(FakeS3Stores::uri("run"), 12), {}, summary);
    ASSERT_TRUE(trained.is_ok()) << trained.to_string();
    const std::string within = "checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors";
    EXPECT_EQ(sha256_hex(*other.fake.bytes_of("run/" + within)),
              sha256_hex(*read_file(local_files(), undisturbed_->path("run/" + within))));
    EXPECT_EQ(other.fake.num_uploads(), 0U);
  }
}

// A bucket may hold keys that no disk does.
TEST_F(RemoteRunTest, names_of_objects_do_not_lead_out_of_the_copy) {
  const TemporaryFolder copy;
  ASSERT_TRUE(write_file_atomic(local_files(), copy.path("kept"), "x").is_ok());
  for (const std::string name : {"..", "../x"}) {
    s3_.fake.with_state([&](FakeS3Objects& objects) { return objects.put("strange/" + name, "y", "a stranger", false); });
    const Status refused = fetch_run_files(s3_.place("strange"), copy.path("run"), 1);
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused.to_string();
    EXPECT_THAT(refused.message(), testing::HasSubstr("no path within its folder"));
    EXPECT_TRUE(std::filesystem::exists(copy.path("kept")));
    s3_.fake.with_state([&](FakeS3Objects& objects) { return objects.objects.erase("strange/" + name); });
  }
}

TEST_F(RemoteRunTest, no_key_is_in_any_file_of_the_run) {
  expect_trained(options());
  for (const std::string& key : s3_.fake.keys_below("run/")) {
    const std::string bytes = *s3_.fake.bytes_of(key);
    for (const std::string& secret : {s3_.fake.keys.id, s3_.fake.keys.secret}) {
      EXPECT_EQ(bytes.find(secret), std::string::npos) << key;
    }
  }
}

}  // namespace
}  // namespace darkroom
