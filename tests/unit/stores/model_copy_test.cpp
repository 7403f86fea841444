#include "darkroom/stores/model_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "hub_caller.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;

/// A hub with models as publishers lay them out.
class model_copy : public HubTest {
 protected:
  StoreSetOptions options() {
    return {
        .hub = [this] { return Result<HubOptions>(HubOptions{.endpoint = hub_.endpoint()}); }, .web = quick_options(), .make_s3 = nullptr};
  }
  static std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    const auto listed = local_files().list_tree(folder);
    for (const FileInfo& file : listed.is_ok() ? *listed : std::vector<FileInfo>()) {
      names.push_back(file.path.substr(folder.size() + 1));
    }
    return names;
  }

  StoreSet set_{options(), system_clock(), metrics_};
};

TEST_F(model_copy, a_folder_of_the_hub_comes_without_what_no_loader_wants) {
  hub_.add("models/org/tiny", "main",
           {{"README.md", {"read me"}},
            {"model_index.json", {"{}"}},
            {"all.safetensors", {"another form of all"}},
            {"unet/config.json", {"{}"}},
            {"unet/diffusion_pytorch_model.safetensors", {large_, true}},
            {"unet/diffusion_pytorch_model.fp16.safetensors", {"half"}},
            {"vae/config.json", {"{}"}},
            {"vae/diffusion_pytorch_model.fp16.safetensors", {"only this one"}},
            {"text_encoder/pytorch_model.bin", {"a pickle"}},
            {"tokenizer/merges.txt", {"a b"}}});
  const auto copy = fetch_model_files(set_, "hf://org/tiny");
  ASSERT_TRUE(copy.is_ok()) << copy.status().to_string();
  EXPECT_THAT(names_in(copy->path()),
              ElementsAre("model_index.json", "text_encoder/pytorch_model.bin", "tokenizer/merges.txt", "unet/config.json",
                          "unet/diffusion_pytorch_model.safetensors", "vae/config.json", "vae/diffusion_pytorch_model.fp16.safetensors"));
  EXPECT_EQ(*read_file(local_files(), copy->path() + "/unet/diffusion_pytorch_model.safetensors"), large_);
  EXPECT_EQ(*read_file(local_files(), copy->path() + "/text_encoder/pytorch_model.bin"), std::string(8, '\0')) << "its name alone";
  const auto part = fetch_model_files(set_, "hf://org/tiny", [](const std::string& name) { return name.starts_with("vae/"); });
  ASSERT_TRUE(part.is_ok());
  EXPECT_THAT(names_in(part->path()), ElementsAre("vae/config.json", "vae/diffusion_pytorch_model.fp16.safetensors"));
}

TEST_F(model_copy, a_single_file_comes_with_the_folders_beside_it) {
  hub_.add("models/org/single", "main",
           {{"model.safetensors", {large_, true}}, {"tokenizer/vocab.json", {"{}"}}, {"unet/config.json", {"{}"}}});
  const auto copy = fetch_model_files(set_, "hf://org/single/model.safetensors");
  ASSERT_TRUE(copy.is_ok()) << copy.status().to_string();
  EXPECT_EQ(*read_file(local_files(), copy->path()), large_);
  EXPECT_THAT(names_in(std::filesystem::path(copy->path()).parent_path()), ElementsAre("model.safetensors", "tokenizer/vocab.json"));
}

TEST_F(model_copy, local_models_stay_where_they_are_and_missing_ones_are_named) {
  const TemporaryFolder folder;
  EXPECT_EQ(fetch_model_files(set_, folder.path("model"))->path(), folder.path("model"));
  const Status missing = fetch_model_files(set_, "hf://org/none").status();
  EXPECT_FALSE(missing.is_ok());
  EXPECT_THAT(missing.message(), testing::HasSubstr("org/none"));
}

}  // namespace
}  // namespace darkroom
