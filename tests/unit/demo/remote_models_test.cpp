#include "opening/remote_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "darkroom/files/paths.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "opening/open_painter.h"
#include "support/fake_s3_stores.h"
#include "support/source_path.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// models/tiny on a fake S3 server, with what publishers lay beside weights, and a checkpoint that names it.
class RemoteModels : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    ASSERT_TRUE(s3_.upload(source_path("models/tiny"), "model").is_ok());
    s3_.fake.with_state([](FakeS3Objects& state) {
      state.put("model/unet/diffusion_pytorch_model.fp16.safetensors", "a variant", "", false);
      state.put("model/v1-5.safetensors", "another form of all", "", false);
      state.put("model/vae/diffusion_pytorch_model.bin", "a pickle", "", false);
    });
  }
  void put_checkpoint(const std::string& frozen) {
    const CheckpointRecord record{.step = 3,
                                  .samples = 3,
                                  .batch_number = 3,
                                  .optimizer_updates = 3,
                                  .component = "unet",
                                  .index_hash = "x",
                                  .recipe = "",
                                  .frozen_path = frozen};
    FileDigests digests;
    const std::string unet = source_path("models/tiny/unet");
    for (const char* part : {"unet", "ema"}) {
      ASSERT_TRUE(s3_.upload(unet, std::string("run/checkpoints/step-00000003/") + part).is_ok());
      for (const char* name : {"config.json", "diffusion_pytorch_model.safetensors"}) {
        digests[std::string(part) + "/" + name] = *digest_file(local_files(), unet + "/" + name);
      }
    }
    digests["optimizer-00000-of-00001.safetensors"] = {.size_bytes = 5, .sha256 = "not looked at"};
    s3_.fake.with_state([&](FakeS3Objects& state) {
      state.put("run/checkpoints/step-00000003/state.json", print_checkpoint_record(record, digests), "", false);
    });
  }
  static Painting paint(const PainterSource& source) {
    const auto painter = open_painter(source);
    EXPECT_TRUE(painter.is_ok()) << painter.status().message();
    PaintRequest request;
    request.prompts = {"a red apple"};
    request.seeds = {1};
    request.sampler.num_steps = 2;
    return painter.is_ok() ? painter.value()->paint(request).value() : Painting();
  }
  static PainterSource source_of(const std::string& model) {
    PainterSource source;
    source.model = model;
    return source;
  }

  FakeS3Stores s3_;
  TemporaryFolder folder_;
};

TEST_F(RemoteModels, a_model_of_s3_paints_the_same_picture) {
  PainterSource remote = source_of(FakeS3Stores::uri("model"));
  const auto copies = fetch_source(s3_.set, remote, {});
  ASSERT_TRUE(copies.is_ok()) << copies.status().to_string();
  EXPECT_FALSE(std::filesystem::exists(remote.model + "/unet/diffusion_pytorch_model.fp16.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(remote.model + "/v1-5.safetensors"));
  const Painting here = paint(source_of(source_path("models/tiny")));
  const Painting there = paint(remote);
  EXPECT_TRUE(torch::equal(here.latents_nchw, there.latents_nchw));
}

TEST_F(RemoteModels, nothing_is_asked_below_a_single_file) {
  s3_.fake.fault = [](const FakeS3::Call& call) {
    EXPECT_FALSE(call.key.ends_with("state.json")) << call.key;
    return FakeS3::Fault::kNone;
  };
  PainterSource remote = source_of(FakeS3Stores::uri("model/v1-5.safetensors"));
  const auto copies = fetch_source(s3_.set, remote, {});
  ASSERT_TRUE(copies.is_ok()) << copies.status().to_string();
  EXPECT_EQ(*read_file(local_files(), remote.model), "another form of all");
}

TEST_F(RemoteModels, a_remote_checkpoint_comes_with_the_parts_that_it_names) {
  put_checkpoint(FakeS3Stores::uri("model"));
  PainterSource remote = source_of(FakeS3Stores::uri("run/checkpoints/step-00000003"));
  const auto copies = fetch_source(s3_.set, remote, {});
  ASSERT_TRUE(copies.is_ok()) << copies.status().to_string();
  EXPECT_TRUE(copies->frozen.has_value());
  EXPECT_FALSE(std::filesystem::exists(remote.model + "/unet/config.json")) << "the last weights are not used";
  EXPECT_TRUE(torch::equal(paint(source_of(source_path("models/tiny"))).latents_nchw, paint(remote).latents_nchw));
}

TEST_F(RemoteModels, a_damaged_part_of_a_checkpoint_is_told_and_frozen_can_be_named) {
  put_checkpoint("/nowhere");
  PainterSource remote = source_of(FakeS3Stores::uri("run/checkpoints/step-00000003"));
  remote.frozen = source_path("models/tiny");
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.objects.at("run/checkpoints/step-00000003/ema/diffusion_pytorch_model.safetensors").bytes.back() ^= 1;
  });
  PainterSource last = remote;
  last.weights = "unet";
  const auto copies = fetch_source(s3_.set, remote, {});
  ASSERT_TRUE(copies.is_ok()) << copies.status().to_string();
  EXPECT_EQ(find_model(remote).status().code(), StatusCode::kCorruptData);
  const auto copies_of_last = fetch_source(s3_.set, last, {});
  ASSERT_TRUE(copies_of_last.is_ok());
  EXPECT_TRUE(find_model(last).is_ok()) << find_model(last).status().to_string();
}

TEST_F(RemoteModels, pickle_files_are_named_though_they_are_not_read) {
  s3_.fake.with_state([](FakeS3Objects& state) { state.objects.erase("model/vae/diffusion_pytorch_model.safetensors"); });
  PainterSource remote = source_of(FakeS3Stores::uri("model"));
  const auto copies = fetch_source(s3_.set, remote, {});
  ASSERT_TRUE(copies.is_ok());
  EXPECT_THAT(open_painter(remote).status().message(), HasSubstr("pickle"));
}

TEST_F(RemoteModels, says_which_model_is_not_there) {
  PainterSource remote = source_of(FakeS3Stores::uri("none"));
  const Status failed = fetch_source(s3_.set, remote, {}).status();
  EXPECT_EQ(failed.code(), StatusCode::kNotFound);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/none"));
}

TEST_F(RemoteModels, a_model_is_written_to_s3_once) {
  const auto write = [](const std::string& path) -> Status {
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(local_files(), path + "/unet/config.json", "{}"));
    return write_file_atomic(local_files(), path + "/model_index.json", "{}");
  };
  const std::string uri = FakeS3Stores::uri("exported");
  const Status written = write_model_at(s3_.set, uri, ModelForm::kFolder, {}, write);
  ASSERT_TRUE(written.is_ok()) << written.to_string();
  EXPECT_THAT(s3_.fake.keys_below("exported"), ElementsAre("exported/model_index.json", "exported/unet/config.json"));
  EXPECT_EQ(write_model_at(s3_.set, uri, ModelForm::kFolder, {}, write).code(), StatusCode::kAlreadyExists);
  const auto fail = [](const std::string&) { return Status::cancelled("stopped"); };
  EXPECT_EQ(write_model_at(s3_.set, FakeS3Stores::uri("other"), ModelForm::kFolder, {}, fail).code(), StatusCode::kCancelled);
  EXPECT_TRUE(s3_.fake.keys_below("other").empty());
  const auto write_file = [](const std::string& path) { return write_file_atomic(local_files(), path, "weights"); };
  ASSERT_TRUE(write_model_at(s3_.set, FakeS3Stores::uri("m.safetensors"), ModelForm::kSingleFile, {}, write_file).is_ok());
  EXPECT_EQ(s3_.fake.bytes_of("m.safetensors"), "weights");
  ASSERT_TRUE(write_model_at(s3_.set, folder_.path("local"), ModelForm::kFolder, {}, write).is_ok());
  EXPECT_TRUE(*local_files().exists(folder_.path("local/model_index.json")));
}

TEST_F(RemoteModels, what_a_dead_writer_of_the_same_model_left_goes_with_the_next_start) {
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.now = std::chrono::floor<std::chrono::seconds>(system_clock().wall()) - std::chrono::hours(30);
    for (const char* key : {"models/_tmp.mine.m1/unet/weights", "models/mine/unet/weights", "models/of_another_program"}) {
      state.create_upload(key, "");
    }
    state.now += std::chrono::hours(30);
    state.create_upload("models/_tmp.mine.m2/weights", "");
  });
  const auto write = [](const std::string& path) { return write_file_atomic(local_files(), path + "/model_index.json", "{}"); };
  ASSERT_TRUE(write_model_at(s3_.set, FakeS3Stores::uri("models/mine"), ModelForm::kFolder, {}, write).is_ok());
  EXPECT_EQ(s3_.fake.num_uploads(), 2u) << "that of another name, and one that may be of the living";
}

TEST_F(RemoteModels, pictures_are_written_anywhere) {
  const auto place = OutputPlace::open(s3_.set, FakeS3Stores::uri("pictures/sheet.png"));
  ASSERT_TRUE(place.is_ok()) << place.status().to_string();
  ASSERT_TRUE(write_file_atomic(local_files(), place->path(), "sheet").is_ok());
  ASSERT_TRUE(write_file_atomic(local_files(), join_path(parent_folder(place->path()), "sheet-00001.png"), "one").is_ok());
  ASSERT_TRUE(place->store().is_ok());
  EXPECT_EQ(s3_.fake.bytes_of("pictures/sheet.png"), "sheet");
  EXPECT_EQ(s3_.fake.bytes_of("pictures/sheet-00001.png"), "one");
  const auto local = OutputPlace::open(s3_.set, folder_.path("x.png"));
  EXPECT_EQ(local->path(), folder_.path("x.png"));
  EXPECT_TRUE(local->store().is_ok());
  EXPECT_EQ(OutputPlace::open(s3_.set, "https://host/x.png").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
