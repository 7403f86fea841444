#include "picture_networks.h"

#include <torch/script.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/transform.h"
#include "darkroom/nn/vision_tower.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {
namespace {

constexpr int64_t kInceptionSide = 299;
// OpenAI's; transformers' preprocessor_config.json says the same of every published CLIP.
constexpr double kClipMeans[] = {0.48145466, 0.4578275, 0.40821073};
constexpr double kClipDeviations[] = {0.26862954, 0.26130258, 0.27577711};

torch::Tensor bytes_nchw(const Image& picture) {
  DARKROOM_CHECK(picture.num_channels == 3 && !picture.pixels.empty(), "a network sees RGB pictures (channels):", picture.num_channels);
  const auto pixels = torch::from_blob(const_cast<uint8_t*>(picture.pixels.data()), {1, picture.height, picture.width, 3}, torch::kUInt8);
  return pixels.permute({0, 3, 1, 2}).to(torch::kFloat32);
}

Result<FeatureRows> rows_of(const torch::Tensor& features, size_t num_pictures) {
  if (features.dim() != 2 || features.size(0) != static_cast<int64_t>(num_pictures) || !features.isfinite().all().item<bool>()) {
    return Status::corrupt_data("a network makes no row of finite numbers a picture (pictures, shape):", num_pictures,
                                c10::str(features.sizes()));
  }
  const auto values = features.to(torch::kFloat64).contiguous();
  return FeatureRows{.width = static_cast<size_t>(values.size(1)),
                     .values = std::vector<double>(values.data_ptr<double>(), values.data_ptr<double>() + values.numel())};
}

class LoadedClip final : public ClipNetwork {
 public:
  LoadedClip(ClipTowers towers, std::unique_ptr<ClipTokenizer> tokenizer) : towers_(std::move(towers)), tokenizer_(std::move(tokenizer)) {}

  Result<FeatureRows> features(std::span<const Image> pictures) override { return rows_of(embed(pictures), pictures.size()); }

  Result<std::vector<double>> cosines(std::span<const Image> pictures, const std::string& text) override {
    const torch::NoGradGuard no_grad;
    const auto ids_nt = torch::empty({1, ClipTokenizer::kContextLength}, torch::kInt32);
    tokenizer_->encode(text, {ids_nt.data_ptr<int32_t>(), ClipTokenizer::kContextLength});
    const auto of_text = towers_.text->encode(ids_nt.to(torch::kInt64)).text_embeds_np;
    DARKROOM_ASSIGN_OR_RETURN(const FeatureRows cosines,
                              rows_of(at::cosine_similarity(embed(pictures), of_text).unsqueeze(1), pictures.size()));
    return cosines.values;
  }

 private:
  torch::Tensor embed(std::span<const Image> pictures) {
    const torch::NoGradGuard no_grad;
    const TransformOptions transform{.resolution = static_cast<int>(towers_.vision->config().image_size), .filter = Filter::kBicubic};
    std::vector<torch::Tensor> inputs;
    for (const Image& picture : pictures) {
      inputs.push_back(bytes_nchw(resize_and_crop(picture, transform)));
    }
    const auto shape = std::vector<int64_t>{1, 3, 1, 1};
    const auto means = torch::tensor(at::ArrayRef<double>(kClipMeans), torch::kFloat32).view(shape);
    const auto deviations = torch::tensor(at::ArrayRef<double>(kClipDeviations), torch::kFloat32).view(shape);
    return towers_.vision((at::cat(inputs) / 255 - means) / deviations);
  }

  ClipTowers towers_;
  std::unique_ptr<ClipTokenizer> tokenizer_;
};

class LoadedInception final : public PictureNetwork {
 public:
  LoadedInception(torch::jit::Module layers, std::string path) : layers_(std::move(layers)), path_(std::move(path)) {}

  Result<FeatureRows> features(std::span<const Image> pictures) override {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> inputs;
    for (const Image& picture : pictures) {
      inputs.push_back((clean_resize(picture, kInceptionSide) - 128) / 128);
    }
    try {
      const torch::Tensor output = layers_.forward({at::cat(inputs)}).toTensor();
      return rows_of(output.reshape({static_cast<int64_t>(pictures.size()), -1}), pictures.size());
    } catch (const std::exception& error) {
      return Status::corrupt_data("the network does not take pictures of 299 x 299 (path, error):", path_, first_line(error.what()));
    }
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

 private:
  torch::jit::Module layers_;
  std::string path_;
};

}  // namespace

std::string clip_folder(const std::string& weights_dir) { return join_path(weights_dir, "clip"); }

std::string inception_path(const std::string& weights_dir) { return join_path(weights_dir, "inception-2015-12-05.pt"); }

torch::Tensor clean_resize(const Image& picture, int64_t side) {
  const torch::NoGradGuard no_grad;
  return at::_upsample_bicubic2d_aa(bytes_nchw(picture).contiguous(), {side, side}, /*align_corners=*/false).clamp(0, 255);
}

Result<std::unique_ptr<ClipNetwork>> open_clip_network(const std::string& folder) {
  DARKROOM_ASSIGN_OR_RETURN(ClipTowers towers, load_clip(folder));
  DARKROOM_ASSIGN_OR_RETURN(auto tokenizer, ClipTokenizer::load(local_files(), folder, TokenizerDialect::kHuggingFace));
  if (towers.text->config().max_position_embeddings < ClipTokenizer::kContextLength) {
    return Status::failed_precondition("CLIP's text tower takes fewer tokens than the tokenizer makes (folder, tower, tokenizer):", folder,
                                       towers.text->config().max_position_embeddings, ClipTokenizer::kContextLength);
  }
  if (tokenizer->vocabulary_size() > towers.text->config().vocab_size) {
    return Status::failed_precondition("CLIP's tokenizer has ids that its text tower does not know (folder, tokenizer, tower):", folder,
                                       tokenizer->vocabulary_size(), towers.text->config().vocab_size);
  }
  return std::unique_ptr<ClipNetwork>(new LoadedClip(std::move(towers), std::move(tokenizer)));
}

Result<std::unique_ptr<PictureNetwork>> open_inception_network(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, local_files().exists(path));
  if (!is_there) {
    return Status::not_found("no such network:", path);
  }
  try {
    torch::jit::Module module = torch::jit::load(path, torch::kCPU);
    module.eval();
    return std::unique_ptr<PictureNetwork>(new LoadedInception(module.attr("layers").toModule(), path));
  } catch (const std::exception& error) {
    return Status::corrupt_data("this is no TorchScript network with a submodule `layers` (path, error):", path,
                                LoadedInception::first_line(error.what()));
  }
}

}  // namespace darkroom
