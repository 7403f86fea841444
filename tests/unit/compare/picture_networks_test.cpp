#include "compare/picture_networks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "compare/network_measures.h"
#include "darkroom/core/check.h"
#include "support/source_path.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

// A network as that of FID is stored: its submodule `layers` gives the mean of each colour and the picture's first value.
void write_network(const std::string& path, const std::string& name, const std::string& body) {
  torch::jit::Module layers("layers");
  layers.define("def forward(self, x):\n  " + body + "\n");
  torch::jit::Module module("network");
  module.register_module(name, layers);
  module.save(path);
}

TEST(Inception, sees_resized_pictures_from_minus_one_to_one) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/network.pt";
  write_network(path, "layers", "return x.mean([2, 3]).reshape([x.size(0), 3, 1, 1])");
  auto network = open_inception_network(path);
  ASSERT_TRUE(network.is_ok()) << network.status().to_string();
  Image other = Image::filled(5, 9, 3, 0);
  const std::vector<Image> pictures = {Image::filled(8, 8, 3, 192), other};
  const auto features = (*network)->features(pictures);
  ASSERT_TRUE(features.is_ok()) << features.status().to_string();
  EXPECT_EQ(features->width, 3U);
  ASSERT_EQ(features->num_rows(), 2U);
  EXPECT_NEAR(features->row(0)[1], 0.5, 1e-5);
  EXPECT_NEAR(features->row(1)[2], -1.0, 1e-5);
}

TEST(Inception, file_whose_path_is_no_utf8_can_stand_in_a_report) {
  const TemporaryFolder folder;
  write_network(folder.path("network.pt"), "layers", "return x.mean([2, 3]).reshape([x.size(0), 3, 1, 1])");
  const CompareJob job{.metrics = {"fid"}, .weights_dir = folder.path("weights-\xff")};
  std::filesystem::create_directory(job.weights_dir);
  std::filesystem::rename(folder.path("network.pt"), job.weights_dir + "/inception-2015-12-05.pt");
  const auto networks = NetworkMeasures::open(job, {});
  ASSERT_TRUE(networks.is_ok()) << networks.status().to_string();
  ASSERT_EQ(networks->networks().size(), 1U);
  EXPECT_THAT(networks->networks().dump(), HasSubstr("inception-2015-12-05.pt"));
}

TEST(Inception, errors_name_the_file) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/network.pt";
  EXPECT_EQ(open_inception_network(path).status().code(), StatusCode::kNotFound);
  std::ofstream(path) << "no archive";
  EXPECT_EQ(open_inception_network(path).status().code(), StatusCode::kCorruptData);
  write_network(path, "other", "return x");
  EXPECT_THAT(open_inception_network(path).status().message(), HasSubstr(path));
  const std::vector<Image> pictures = {Image::filled(4, 4, 3, 9)};
  write_network(path, "layers", "return x.mean() / 0.0 * 0.0");
  EXPECT_EQ((*open_inception_network(path))->features(pictures).status().code(), StatusCode::kCorruptData);
  write_network(path, "layers", "return x.reshape([7])");
  EXPECT_THAT((*open_inception_network(path))->features(pictures).status().message(), HasSubstr(path));
}

TEST(CleanResize, equals_pillow_in_floating_point) {
  std::ifstream file(source_path("tests/golden/measure/resize.json"));
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden["cases"].size(), 4U);
  for (const auto& one : golden["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    Image picture = Image::filled(one["width"], one["height"], 3);
    picture.pixels = one["pixels"].get<std::vector<uint8_t>>();
    const int64_t side = one["side"];
    const auto want = torch::tensor(one["resized"].get<std::vector<float>>()).view({side, side, 3}).permute({2, 0, 1}).unsqueeze(0);
    // Two passes of at most 40 products of grey levels in float32, and Pillow's weights in double.
    EXPECT_LE((clean_resize(picture, side) - want).abs().max().item<double>(), 2 * 40 * 1.2e-7 * 255);
  }
}

TEST(CleanResize, refuses_grey_pictures) { EXPECT_THROW(clean_resize(Image::filled(4, 4, 1, 9), 3), CheckFailure); }

TEST(Clip, errors_name_the_folder) {
  const TemporaryFolder folder;
  EXPECT_EQ(open_clip_network(folder.path()).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
