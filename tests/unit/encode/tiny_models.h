#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "darkroom/encode/row_encoder.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "support/source_path.h"
#include "support/temporary_folder.h"

namespace darkroom {

/// A model folder of the tiny preset with initial weights and the shipped tokenizer.
class TinyModelFolder {
 public:
  explicit TinyModelFolder(uint64_t seed = 1) {
    const ModelPreset preset = *find_preset("tiny");
    AutoencoderKL vae(preset.vae);
    ClipTextModel text_encoder(preset.text_encoder);
    initialize_parameters(vae, seed);
    initialize_parameters(text_encoder, seed);
    EXPECT_TRUE(save_vae(local_files(), vae, folder_.path("vae")).is_ok());
    EXPECT_TRUE(save_text_encoder(local_files(), text_encoder, folder_.path("text_encoder")).is_ok());
    std::filesystem::create_directory_symlink(source_path("models/tiny/tokenizer"), folder_.path("tokenizer"));
  }
  const std::string& path() const { return folder_.path(); }
  std::string path(const std::string& name) const { return folder_.path(name); }

 private:
  TemporaryFolder folder_;
};

}  // namespace darkroom
