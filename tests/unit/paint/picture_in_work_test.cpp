#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "darkroom/core/check.h"
#include "darkroom/paint/painter.h"
#include "tiny_painter.h"

namespace darkroom {
namespace {

Image step_alone(const PaintRequest& request) {
  const auto picture = painter().begin(request).value();
  PictureInWork* const one = picture.get();
  while (one->num_calls_left() > 0) {
    painter().step(std::span(&one, 1));
  }
  return painter().finish(*one).value();
}

int largest_difference(const Image& a, const Image& b) {
  int largest = a.pixels.size() == b.pixels.size() ? 0 : 256;
  for (size_t i = 0; i < std::min(a.pixels.size(), b.pixels.size()); ++i) {
    largest = std::max(largest, std::abs(static_cast<int>(a.pixels[i]) - static_cast<int>(b.pixels[i])));
  }
  return largest;
}

PaintRequest stepped_request(const std::string& prompt, uint64_t seed, const std::string& sampler, int steps, double guidance) {
  PaintRequest request = request_of({prompt}, {seed}, steps);
  request.sampler.name = sampler;
  request.guidance = guidance;
  request.negative = guidance > 5 ? "blurry" : "";
  return request;
}

TEST(picture_in_work, alone_it_has_the_bits_of_paint_with_every_sampler) {
  for (const std::string_view sampler : sampler_names()) {
    for (const double guidance : {1.0, 7.5}) {
      const PaintRequest request = stepped_request("a red apple", 3, std::string(sampler), 4, guidance);
      EXPECT_EQ(step_alone(request), painter().paint(request)->images.front()) << sampler << " guidance " << guidance;
    }
  }
}

TEST(picture_in_work, a_rescaled_one_and_one_from_a_picture_have_the_bits_of_paint) {
  PaintRequest request = stepped_request("a red apple", 3, "ddim", 4, 7.5);
  request.guidance_rescale = 0.7;
  EXPECT_EQ(step_alone(request), painter().paint(request)->images.front());
  request.init_images = {Image::filled(64, 64, 3, 90)};
  request.strength = 0.5;
  EXPECT_EQ(painter().begin(request).value()->num_calls_left(), 2U);
  EXPECT_EQ(step_alone(request), painter().paint(request)->images.front());
}

// The last step of euler goes all the way to what the network takes for the clean latent, that of ddim nearly so.
TEST(picture_in_work, a_preview_shows_what_the_picture_is_about_to_become) {
  for (const double guidance : {1.0, 7.5}) {
    const auto picture = painter().begin(stepped_request("a red apple", 3, "euler", 4, guidance)).value();
    PictureInWork* const one = picture.get();
    while (one->num_calls_left() > 0) {
      painter().step(std::span(&one, 1));
    }
    EXPECT_LE(largest_difference(painter().preview(*one, 256), painter().finish(*one).value()), 1) << guidance;
  }
}

TEST(picture_in_work, a_preview_is_as_small_as_asked_and_changes_no_bit) {
  for (const std::string_view sampler : sampler_names()) {
    PaintRequest request = stepped_request("a red apple", 3, std::string(sampler), 4, 7.5);
    request.width = 128;
    const auto picture = painter().begin(request).value();
    PictureInWork* const one = picture.get();
    EXPECT_THROW(painter().preview(*one, 256), CheckFailure);
    while (one->num_calls_left() > 0) {
      painter().step(std::span(&one, 1));
      const Image whole = painter().preview(*one, 128);
      EXPECT_EQ(whole.width, 128);
      EXPECT_EQ(whole.height, 64);
      const Image small = painter().preview(*one, 40);
      EXPECT_LE(small.width, 40);
      EXPECT_LE(2 * small.height, 40);
    }
    EXPECT_EQ(painter().finish(*one).value(), painter().paint(request)->images.front()) << sampler;
  }
}

// Pictures join and leave; in every call there are other timesteps, samplers and branches.
TEST(picture_in_work, in_changing_company_it_differs_by_one_grey_level_at_most) {
  const std::vector<PaintRequest> requests = {stepped_request("a red apple", 1, "ddim", 7, 7.5),
                                              stepped_request("a cat", 2, "euler_a", 3, 4.0), stepped_request("", 3, "dpmpp_2m", 5, 1.0),
                                              stepped_request("a blue house", 4, "pndm", 6, 9.0)};
  std::vector<std::unique_ptr<PictureInWork>> pictures;
  for (size_t round = 0; round < 12; ++round) {
    if (round < requests.size()) {
      pictures.push_back(painter().begin(requests[round]).value());
    }
    std::vector<PictureInWork*> company;
    for (const auto& picture : pictures) {
      if (picture->num_calls_left() > 0) {
        company.push_back(picture.get());
      }
    }
    if (!company.empty()) {
      painter().step(company);
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(pictures[i]->num_calls_left(), 0U);
    EXPECT_LE(largest_difference(painter().finish(*pictures[i]).value(), painter().paint(requests[i])->images.front()), 1) << i;
  }
}

TEST(picture_in_work, what_texts_of_one_length_throw_costs_those_of_another_no_step) {
  const auto done = painter().begin(stepped_request("a cat", 1, "ddim", 1, 7.5)).value();
  PictureInWork* const over = done.get();
  painter().step(std::span(&over, 1));
  PaintRequest request = stepped_request("a red apple BREAK a blue house", 2, "euler_a", 3, 7.5);
  request.reading.syntax = PromptSyntax::kWeighted;
  const auto picture = painter().begin(request).value();
  PictureInWork* const longer = picture.get();
  const std::array company = {over, longer};
  EXPECT_THROW(painter().step(company), CheckFailure);  // One is over, and its texts are shorter: they come first.
  EXPECT_EQ(longer->num_calls_left(), 2U);
  while (longer->num_calls_left() > 0) {
    painter().step(std::span(&longer, 1));
  }
  EXPECT_EQ(painter().finish(*longer).value(), painter().paint(request)->images.front());
}

TEST(picture_in_work, refuses_what_paint_refuses_and_several_pictures) {
  EXPECT_EQ(painter().begin(request_of({"a", "b"}, {1, 2})).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(painter().begin(stepped_request("a", 1, "magic", 4, 1.0)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(painter().begin(request_of({}, {})).status().code(), StatusCode::kInvalidArgument);
}

TEST(PictureInWork, without_numbers_cannot_be_finished) {
  PaintRequest request = request_of({"a"}, {1}, 2);
  request.unit_noise_nchw = torch::full({1, 4, 8, 8}, NAN);
  const auto one = painter().begin(request).value();
  PictureInWork* const work = one.get();
  while (work->num_calls_left() > 0) {
    painter().step(std::span(&work, 1));
  }
  const Status status = painter().finish(*work).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("float32"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace darkroom
