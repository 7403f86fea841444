#include "paint/recorded_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/nn/placement.h"
#include "darkroom/paint/recorded_memory.h"
#include "darkroom/tensor/device_runtime.h"
#include "on_fake_device.h"
#include "unit/paint/tiny_painter.h"

// The network calls of pictures that come and go, recorded on the fake device by their shapes: the bits of calls that are not.

namespace darkroom {
namespace {

const NetworkPlace kOnGpu{.device = torch::Device("cuda:0"), .type = torch::kFloat32};

class Calls : public OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    before_ = *fake_device_counts();
  }
  int64_t recordings() const { return fake_device_counts()->recordings - before_.recordings; }
  int64_t replays() const { return fake_device_counts()->replays - before_.replays; }

  FakeDeviceCounts before_;
};

// A network of a few products, whose function can be told to fail.
class RecordedNetwork : public Calls {
 protected:
  void call_times(int64_t times, int64_t rows, int64_t side = 4, int64_t length = 3) {
    for (int64_t i = 0; i < times; ++i) {
      const double value = 0.01 * static_cast<double>(++num_calls_);
      const torch::Tensor noisy = torch::full({rows, 2, side, side}, value), states = torch::full({rows, length, 5}, 2 * value);
      const torch::Tensor timesteps = torch::full({rows}, 3 * value);
      const torch::Tensor got = calls_.call(noisy.to(kOnGpu.device), timesteps.to(kOnGpu.device), states.to(kOnGpu.device));
      kept_.push_back(got);  // An answer stays what it is when the next comes.
      want_.push_back(answer(noisy, timesteps, states));
    }
  }
  void expect_right_answers() const {
    for (size_t i = 0; i < kept_.size(); ++i) {
      EXPECT_TRUE(torch::equal(kept_[i].cpu(), want_[i])) << i;
    }
  }
  static torch::Tensor answer(const torch::Tensor& noisy, const torch::Tensor& timesteps, const torch::Tensor& states) {
    return (noisy * timesteps.reshape({-1, 1, 1, 1})).exp() + states.sum({1, 2}).reshape({-1, 1, 1, 1});
  }

  bool waits_ = false;
  bool is_short_of_memory_ = false;
  RecordedCalls calls_{[this](const torch::Tensor& noisy, const torch::Tensor& timesteps, const torch::Tensor& states) {
    if (std::exchange(is_short_of_memory_, false)) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory is left");
    }
    if (waits_) {
      (void)noisy.sum().item<float>();
    }
    return answer(noisy, timesteps, states);
  }};
  std::vector<torch::Tensor> kept_, want_;
  int64_t num_calls_ = 0;
};

TEST_F(RecordedNetwork, a_shape_is_recorded_once_it_has_been_asked_for_often_enough) {
  call_times(RecordedCalls::kLeastCalls, 2);
  EXPECT_EQ(recordings(), 0);
  call_times(5, 2);
  EXPECT_EQ(recordings(), 1);
  EXPECT_EQ(replays(), 5);
  expect_right_answers();
}

TEST_F(RecordedNetwork, other_rows_sizes_and_lengths_are_other_shapes_in_any_order) {
  for (int64_t round = 0; round < RecordedCalls::kLeastCalls + 3; ++round) {
    call_times(1, 2);
    call_times(1, 4);
    call_times(1, 2, 6);
    call_times(1, 2, 4, 6);
  }
  EXPECT_EQ(recordings(), 4);
  EXPECT_EQ(replays(), 4 * 3);
  expect_right_answers();
}

TEST_F(RecordedNetwork, the_recording_used_least_recently_makes_room_and_must_earn_it_again) {
  const auto most = static_cast<int64_t>(RecordedCalls::kMostRecordings);
  for (int64_t rows = 1; rows <= most; ++rows) {
    call_times(RecordedCalls::kLeastCalls + 1, rows);
  }
  call_times(1, 1);
  EXPECT_EQ(recordings(), most);
  call_times(RecordedCalls::kLeastCalls + 1, most + 1);  // Two rows were asked for least recently.
  EXPECT_EQ(recordings(), most + 1);
  const int64_t replayed = replays();
  call_times(1, 1);
  EXPECT_EQ(replays(), replayed + 1);
  call_times(RecordedCalls::kLeastCalls, 2);
  EXPECT_EQ(replays(), replayed + 1);
  EXPECT_EQ(recordings(), most + 1);
  call_times(1, 2);
  EXPECT_EQ(recordings(), most + 2);
  expect_right_answers();
}

TEST_F(RecordedNetwork, calls_of_another_thread_do_not_count) {
  std::thread([&] { call_times(RecordedCalls::kLeastCalls, 2); }).join();
  call_times(RecordedCalls::kLeastCalls, 2);
  EXPECT_EQ(recordings(), 0);
  call_times(1, 2);
  EXPECT_EQ(recordings(), 1);
  expect_right_answers();
}

TEST_F(RecordedNetwork, one_that_cannot_be_recorded_is_called_plainly_from_then_on_and_that_is_told_once) {
  call_times(RecordedCalls::kLeastCalls, 2);
  waits_ = true;
  testing::internal::CaptureStderr();
  call_times(2 * RecordedCalls::kLeastCalls, 2);
  call_times(2 * RecordedCalls::kLeastCalls, 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(recordings(), 1) << "it was tried once";
  EXPECT_EQ(replays(), 0);
  const size_t told = said.find("are recorded no more");
  EXPECT_NE(told, std::string::npos) << said;
  EXPECT_EQ(said.find("are recorded no more", told + 1), std::string::npos) << said;
  expect_right_answers();
}

TEST_F(RecordedNetwork, recordings_make_room_where_memory_is_used_up) {
  call_times(RecordedCalls::kLeastCalls + 1, 2);
  is_short_of_memory_ = true;
  call_times(1, 3);
  EXPECT_EQ(replays(), 1);
  call_times(RecordedCalls::kLeastCalls, 2);
  EXPECT_EQ(replays(), 1) << "it went";
  call_times(1, 2);
  EXPECT_EQ(recordings(), 2);
  int64_t tries = 0;
  const auto work = [&] {
    TORCH_CHECK_WITH(OutOfMemoryError, ++tries > 1, "no memory is left");
    return tries;
  };
  EXPECT_EQ(with_memory_for(work), 2);
  tries = 0;
  EXPECT_THROW(with_memory_for(work), c10::OutOfMemoryError) << "nothing is left that could go";
  call_times(RecordedCalls::kLeastCalls - 1, 2);
  is_short_of_memory_ = true;
  call_times(3, 2);  // The last before the recording fails: its shape begins anew.
  EXPECT_EQ(recordings(), 2);
  expect_right_answers();
}

TEST_F(RecordedNetwork, recordings_of_one_model_make_room_for_another) {
  call_times(RecordedCalls::kLeastCalls + 1, 2);
  EXPECT_EQ(replays(), 1);
  int64_t tries = 0;
  RecordedCalls other([&](const torch::Tensor& noisy, const torch::Tensor&, const torch::Tensor&) {
    TORCH_CHECK_WITH(OutOfMemoryError, ++tries > 1, "no memory is left");
    return noisy + 1;
  });
  const torch::Tensor ones = torch::ones({1, 2, 4, 4}).to(kOnGpu.device);
  EXPECT_TRUE(torch::equal(other.call(ones, ones, ones).cpu(), torch::full({1, 2, 4, 4}, 2.0)));
  EXPECT_EQ(tries, 2);
  call_times(RecordedCalls::kLeastCalls, 2);
  EXPECT_EQ(replays(), 1) << "it went";
  expect_right_answers();
}

TEST_F(RecordedNetwork, one_that_is_gone_is_asked_for_no_room) {
  {
    const RecordedCalls gone([](const torch::Tensor& noisy, const torch::Tensor&, const torch::Tensor&) { return noisy; });
  }
  EXPECT_FALSE(let_recordings_go("nothing is recorded"));
}

using SteppedOnDevice = Calls;

// Pictures that join and leave: the same bits as on the CPU in the same company, whose calls are plain.
TEST_F(SteppedOnDevice, pictures_that_come_and_go_have_the_bits_of_calls_that_are_not_recorded) {
  TinyModel there;
  place_network(*there.unet, kOnGpu);
  place_network(*there.text_encoder, kOnGpu);
  place_network(*there.vae, kOnGpu);
  const std::unique_ptr<Painter> painters[] = {tiny_model().painter().value(), there.painter().value()};
  constexpr std::array<std::string_view, 4> kSamplers = {"ddim", "euler_a", "dpmpp_2m", "unipc"};
  const auto request = [&](int index) {
    PaintRequest asked = request_of({"picture " + std::to_string(index)}, {static_cast<uint64_t>(index)}, 20 + index);
    asked.sampler.name = kSamplers[static_cast<size_t>(index) % kSamplers.size()];
    asked.guidance = index == 2 ? 1.0 : 5.0;
    asked.width = index % 3 == 0 ? 128 : 64;
    return asked;
  };
  std::vector<Image> painted[2];
  for (size_t which = 0; which < 2; ++which) {
    Painter& painter = *painters[which];
    std::vector<std::unique_ptr<PictureInWork>> pictures;
    for (int round = 0; round < 60; ++round) {
      if (round % 6 == 0 && round / 6 < 6) {
        pictures.push_back(painter.begin(request(round / 6)).value());
      }
      std::vector<PictureInWork*> wide, narrow;
      for (const auto& picture : pictures) {
        if (picture->num_calls_left() > 0) {
          (picture->latent_width() == 16 ? wide : narrow).push_back(picture.get());
        }
      }
      for (const auto& company : {wide, narrow}) {
        if (!company.empty()) {
          painter.step(company);
        }
      }
    }
    for (const auto& picture : pictures) {
      ASSERT_EQ(picture->num_calls_left(), 0U);
      painted[which].push_back(painter.finish(*picture).value());
    }
    EXPECT_EQ(replays() > 0, which == 1);
  }
  EXPECT_EQ(painted[1], painted[0]);
  EXPECT_GE(recordings(), 3);
  EXPECT_GT(replays(), 20);
}

// What a step costs is the difference of two runs, as of one that is recorded for itself (networks_on_device_test.cpp).
TEST_F(SteppedOnDevice, a_later_picture_replays_every_call_and_waits_for_nothing) {
  TinyModel there;
  place_network(*there.unet, kOnGpu);
  const std::unique_ptr<Painter> painter = there.painter().value();
  const auto step_all = [&](int steps) {
    const auto picture = painter->begin(request_of({"a red apple"}, {1}, steps)).value();
    PictureInWork* const one = picture.get();
    const FakeDeviceCounts begun = *fake_device_counts();
    while (one->num_calls_left() > 0) {
      painter->step(std::span(&one, 1));
    }
    EXPECT_EQ(fake_device_counts()->synchronisations, begun.synchronisations);
    EXPECT_EQ(fake_device_counts()->host_to_device, begun.host_to_device);
    return fake_device_counts()->replays - begun.replays;
  };
  EXPECT_EQ(step_all(static_cast<int>(RecordedCalls::kLeastCalls)), 0);
  EXPECT_EQ(step_all(7), 7);
  EXPECT_EQ(recordings(), 1);
}

}  // namespace
}  // namespace darkroom
