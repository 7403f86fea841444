#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "darkroom/nn/model_folder.h"
#include "darkroom/paint/painter.h"
#include "darkroom/tensor/safetensors.h"
#include "support/tensor_error.h"
#include "tiny_painter.h"

namespace darkroom {
namespace {

constexpr PromptReading kWeighted = {.syntax = PromptSyntax::kWeighted};
constexpr PromptReading kChunks = {.syntax = PromptSyntax::kPlain, .long_prompts = LongPrompts::kChunks};

std::string words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += "word ";
  }
  return text;
}

torch::Tensor states_of(const std::vector<std::string>& prompts, const PromptReading& reading = {}, int64_t least_chunks = 1) {
  return painter().encode_prompts(prompts, reading, least_chunks).value();
}

PaintRequest weighted_request(std::vector<std::string> prompts, std::vector<uint64_t> seeds) {
  PaintRequest request = request_of(std::move(prompts), std::move(seeds));
  request.reading = kWeighted;
  return request;
}

// As give_mean() of tools/goldens/make_prompt_goldens.py: a new norm's states have the mean 0.
void give_mean(ClipTextModel& text_encoder) {
  const torch::NoGradGuard no_grad;
  for (auto& item : text_encoder->named_parameters()) {
    const torch::Tensor index = torch::arange(item.value().size(0));
    if (item.key().ends_with("final_layer_norm.weight")) {
      item.value().copy_(1 + index.remainder(5) / 8.0);
    } else if (item.key().ends_with("final_layer_norm.bias")) {
      item.value().copy_((index.remainder(7) - 2) / 16.0);
    }
  }
}

// Recorded by tools/goldens/make_prompt_goldens.py from transformers 5.23.0 and torch 2.11.0.
TEST(PromptStates, equal_those_of_the_published_rule) {
  constexpr int64_t kStride = 16;
  const auto golden = SafetensorsFile::open(source_path("tests/golden/paint/prompt_states.safetensors")).value();
  const auto prompts = nlohmann::json::parse(golden->metadata().at("prompts")).get<std::vector<std::string>>();
  const auto shapes = nlohmann::json::parse(golden->metadata().at("shapes"));
  ASSERT_GE(prompts.size(), 9U);
  TinyModel shipped;
  shipped.text_encoder = load_text_encoder(source_path("models/tiny/text_encoder")).value();
  give_mean(shipped.text_encoder);
  const auto shipped_painter = shipped.painter().value();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = std::to_string(i);
    const torch::Tensor got = shipped_painter->encode_prompts(std::span(&prompts[i], 1), kWeighted).value()[0];
    EXPECT_EQ(got.sizes().vec(), shapes.at(name).get<std::vector<int64_t>>()) << prompts[i];
    const torch::Tensor want = golden->tensor(name).value();
    // The bound of the networks' outputs; the means are sums of almost 10,000 states and add nothing to it.
    EXPECT_TRUE(is_near(got.reshape(-1).slice(0, 0, std::nullopt, kStride), want, 1e-5 * largest(want))) << prompts[i];
  }
}

TEST(PromptStates, a_weight_scales_a_tokens_state_and_the_mean_is_restored) {
  TinyModel model;
  give_mean(model.text_encoder);
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    place_network(*model.text_encoder, {.device = torch::kCPU, .type = type});
    const auto trained = model.painter().value();
    const std::vector<std::string> prompts = {"a cat", "a (cat:1.7)"};
    const torch::Tensor plain = trained->encode_prompts(std::span(prompts).first(1)).value()[0];
    const torch::Tensor got = trained->encode_prompts(std::span(prompts).last(1), kWeighted).value()[0];
    EXPECT_EQ(got.scalar_type(), type);
    torch::Tensor want = plain.to(torch::kFloat64);
    const torch::Tensor mean = want.mean();
    want[2] *= 1.7;
    want *= mean / want.mean();
    EXPECT_TRUE(is_near(got, want, (type == torch::kFloat32 ? 0x1p-19 : 0x1p-7) * largest(want)));
    EXPECT_GT(largest(got - plain), 0.1);
  }
}

TEST(PromptStates, are_only_weighted_where_their_mean_is_rounding) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    TinyModel model;
    place_network(*model.text_encoder, {.device = torch::kCPU, .type = type});
    const auto fresh = model.painter().value();
    const std::vector<std::string> prompts = {"a cat", "a (cat:1.5)"};
    torch::Tensor want = fresh->encode_prompts(std::span(prompts).first(1)).value()[0].clone();
    want[2] *= 1.5;
    EXPECT_TRUE(torch::equal(fresh->encode_prompts(std::span(prompts).last(1), kWeighted).value()[0], want)) << type;
  }
}

TEST(PromptStates, weights_of_one_leave_the_bits) { EXPECT_TRUE(torch::equal(states_of({"a (cat:1)"}, kWeighted), states_of({"a cat"}))); }

TEST(PromptStates, plain_prompts_take_brackets_as_they_are) { EXPECT_FALSE(torch::equal(states_of({"a (cat:1)"}), states_of({"a cat"}))); }

TEST(PromptStates, shorter_prompts_are_filled_up_with_empty_chunks) {
  const torch::Tensor states = states_of({words(100), "a cat"}, kChunks);
  EXPECT_EQ(states.size(1), 2 * 77);
  const torch::Tensor short_one = states_of({"a cat"}, kChunks, 3)[0];
  EXPECT_EQ(short_one.size(0), 3 * 77);
  for (const int64_t chunk : {1, 2}) {
    EXPECT_TRUE(is_near(short_one.narrow(0, 77 * chunk, 77), states_of({""})[0], 1e-6 * largest(short_one)));
  }
  EXPECT_TRUE(is_near(states[1], short_one.narrow(0, 0, 2 * 77), 1e-6 * largest(short_one)));
}

TEST(PromptStates, a_bad_weight_is_refused_before_anything_is_painted) {
  EXPECT_EQ(painter().paint(weighted_request({"a (cat:1.2.3)"}, {0})).status().code(), StatusCode::kInvalidArgument);
  PaintRequest request = weighted_request({"a cat"}, {0});
  request.negative = "(b:..)";
  EXPECT_EQ(painter().check(request).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(painter().begin(request).status().code(), StatusCode::kInvalidArgument);
  request.reading = {};
  EXPECT_TRUE(painter().check(request).is_ok());
}

TEST(PromptStates, lost_text_is_named) {
  EXPECT_EQ(painter().lost_text(words(75) + "and more", {}).value(), "and more");
  EXPECT_EQ(painter().lost_text(words(75) + "and more", kWeighted).value(), "");
}

TEST(LongPromptPainting, a_picture_does_not_depend_on_longer_company) {
  PaintRequest request = weighted_request({"a cat", "a " + words(90), words(160), "a dog"}, {1, 2, 3, 4});
  request.negative = "bad BREAK worse";  // Two chunks: more than "a cat" has.
  const torch::Tensor together = painter().paint(request)->latents_nchw;
  for (int64_t i = 0; i < 4; ++i) {
    PaintRequest alone = request;
    alone.prompts = {request.prompts[static_cast<size_t>(i)]};
    alone.seeds = {request.seeds[static_cast<size_t>(i)]};
    EXPECT_TRUE(is_near(painter().paint(alone)->latents_nchw[0], together[i], 1e-4 * largest(together))) << i;
  }
}

TEST(LongPromptPainting, both_branches_get_as_many_chunks_as_the_longer) {
  PaintRequest request = weighted_request({"a cat"}, {1});
  request.negative = words(100);
  const torch::Tensor got = painter().paint(request)->latents_nchw;
  PaintRequest longer = request;  // The empty chunk that the rule puts there, written out.
  longer.prompts = {"a cat BREAK BREAK BREAK "};
  longer.negative = words(100) + "BREAK BREAK";
  EXPECT_FALSE(torch::equal(painter().paint(longer)->latents_nchw, got));  // More empty chunks are another picture.
  longer.prompts = {"a cat BREAK BREAK "};
  longer.negative = words(100);
  EXPECT_TRUE(is_near(painter().paint(longer)->latents_nchw, got, 1e-4 * largest(got)));
}

TEST(LongPromptPainting, what_is_behind_77_tokens_changes_the_picture_of_chunks_alone) {
  PaintRequest request = request_of({words(75) + "a red apple"}, {1});
  PaintRequest other = request;
  other.prompts = {words(75) + "a blue whale"};
  EXPECT_TRUE(torch::equal(painter().paint(request)->latents_nchw, painter().paint(other)->latents_nchw));
  request.reading = other.reading = kChunks;
  EXPECT_FALSE(torch::equal(painter().paint(request)->latents_nchw, painter().paint(other)->latents_nchw));
}

TEST(LongPromptPainting, pictures_in_work_of_different_lengths_step_together) {
  const std::vector<std::string> prompts = {"a cat", words(90), "a (dog:1.3)", words(160)};
  std::vector<std::unique_ptr<PictureInWork>> works;
  std::vector<PictureInWork*> all;
  for (size_t i = 0; i < prompts.size(); ++i) {
    works.push_back(painter().begin(weighted_request({prompts[i]}, {i})).value());
    all.push_back(works.back().get());
  }
  while (all.front()->num_calls_left() > 0) {
    painter().step(all);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Image want = painter().paint(weighted_request({prompts[i]}, {i}))->images.front();
    const Image got = painter().finish(*works[i]).value();
    int largest_difference = 0;
    for (size_t p = 0; p < got.pixels.size(); ++p) {
      largest_difference = std::max(largest_difference, std::abs(got.pixels[p] - want.pixels[p]));
    }
    EXPECT_LE(largest_difference, 1) << i;
  }
}

}  // namespace
}  // namespace darkroom
