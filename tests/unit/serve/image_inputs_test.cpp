#include "darkroom/serve/image_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

#include "darkroom/core/base64.h"
#include "darkroom/image/png.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

std::string message_of(const Status& status) { return std::string(status.message()); }

std::string png_of(int width, int height, uint8_t value = 9) { return encode_png(Image::filled(width, height, 3, value)); }

InputPicture file_of(std::string bytes) { return {.field = "image", .text = std::move(bytes)}; }

/// What `ask` gives on a thread of the intake.
template <typename Ask>
auto asked(PictureIntake& intake, Ask ask) {
  std::promise<decltype(ask(std::declval<PictureIntake::Desk&>()))> promise;
  EXPECT_TRUE(intake.post(1, {}, [&](PictureIntake::Desk& desk) { promise.set_value(ask(desk)); }).is_ok());
  return promise.get_future().get();
}

Result<Image> decoded(PictureIntake& intake, const InputPicture& picture, int width = 8, int height = 8) {
  return asked(intake, [&](PictureIntake::Desk& desk) { return desk.decode(picture, width, height); });
}

PictureIntake::OpenDecoder in_process() {
  return [](const std::stop_token&) { return Result<std::unique_ptr<PictureDecoder>>(decoder_in_process()); };
}

TEST(image_inputs, reads_base64_and_data_urls) {
  EXPECT_EQ(read_picture_text("f", "aGk=").value(), (InputPicture{.field = "f", .text = "aGk=", .is_base64 = true}));
  EXPECT_EQ(read_picture_text("f", "DATA:image/png;BASE64,aGk=")->text, "aGk=");
  EXPECT_EQ(read_picture_text("f", "data:image/svg+xml;charset=x;base64,")->text, "");
  EXPECT_EQ(picture_file(read_picture_text("f", "aGk=").value()).value(), "hi");
  EXPECT_EQ(picture_file(file_of("=,:")).value(), "=,:");
}

TEST(image_inputs, refuses_urls_and_other_texts_by_name) {
  for (const char* text : {"http://169.254.169.254/latest", "HTTPS://example.com/a.png", "file:///etc/passwd", "data:,x",
                           "data:text/html;base64,eA==", "data:image/png,x", "data:image/png;base64", "x:y", ""}) {
    const Status refused = read_picture_text("init_images[0]", text).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(message_of(refused), HasSubstr("init_images[0]")) << text;
  }
  EXPECT_THAT(message_of(read_picture_text("f", "http://user:secret@host/").status()), testing::Not(HasSubstr("secret")));
  EXPECT_THAT(message_of(picture_file(read_picture_text("f", "a b!").value()).status()), HasSubstr("f must be a picture in base64"));
}

TEST(image_inputs, a_picture_is_decoded_and_resized) {
  PictureIntake intake({}, in_process());
  EXPECT_EQ(decoded(intake, file_of(png_of(8, 8))).value(), Image::filled(8, 8, 3, 9));
  const Image resized = decoded(intake, {.field = "f", .text = encode_base64(png_of(20, 10)), .is_base64 = true}, 16, 24).value();
  EXPECT_EQ(resized, Image::filled(16, 24, 3, 9));
}

TEST(image_inputs, what_is_no_picture_costs_that_request_only) {
  PictureIntake intake({.num_threads = 1, .limits = {.min_size = 1, .max_pixels = 1000}}, in_process());
  for (const std::string& bytes : {std::string(), std::string("hello"), png_of(8, 8).substr(0, 60), png_of(40, 26)}) {
    const Status refused = decoded(intake, file_of(bytes)).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(message_of(refused), HasSubstr("image is no JPEG, PNG or WebP"));
  }
  EXPECT_TRUE(decoded(intake, file_of(png_of(40, 25))).is_ok());
}

// Fails as a sandbox that is gone, so often.
class LostDecoder final : public PictureDecoder {
 public:
  Result<RowResult<ImageHeader>> check(std::span<const std::byte>, const ImageLimits&) override { return Status::internal("lost"); }
  Result<RowResult<DecodedSize>> transform(std::span<const std::byte>, const TransformOptions&, const ImageLimits&, const CropDraw&,
                                           std::span<uint8_t>) override {
    return Status::internal("lost");
  }
  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte>, const DecodedSize&, const ImageLimits&,
                                           std::span<uint8_t>) override {
    return Status::internal("a secret path");
  }
};

TEST(image_inputs, a_decoder_that_is_lost_or_cannot_be_had_is_replaced_at_the_next_picture) {
  int num_opened = 0;
  PictureIntake intake({.num_threads = 1}, [&](const std::stop_token&) -> Result<std::unique_ptr<PictureDecoder>> {
    ++num_opened;
    if (num_opened == 1) {
      return Status::not_found("no such program");
    }
    return num_opened == 2 ? std::unique_ptr<PictureDecoder>(std::make_unique<LostDecoder>()) : decoder_in_process();
  });
  for (int i = 0; i < 2; ++i) {
    const Status refused = decoded(intake, file_of(png_of(8, 8))).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_THAT(message_of(refused), testing::Not(HasSubstr("secret")));
  }
  EXPECT_TRUE(decoded(intake, file_of(png_of(8, 8))).is_ok());
  EXPECT_TRUE(decoded(intake, file_of(png_of(8, 8))).is_ok());
  EXPECT_EQ(num_opened, 3);
}

/// Holds the one thread of an intake until the test lets it go.
class HeldIntake : public testing::Test {
 protected:
  void SetUp() override {
    std::promise<void> begun;
    ASSERT_TRUE(intake_
                    .post(1, {},
                          [&](PictureIntake::Desk&) {
                            begun.set_value();
                            held_.get_future().wait();
                          })
                    .is_ok());
    begun.get_future().wait();
  }
  void let_go() { held_.set_value(); }

  std::promise<void> held_;
  PictureIntake intake_{{.num_threads = 1, .max_waiting = 2, .max_waiting_bytes = 100}, in_process()};
};

TEST_F(HeldIntake, takes_so_many_requests_and_bytes) {
  const auto nothing = [](PictureIntake::Desk&) {};
  EXPECT_TRUE(intake_.post(60, {}, nothing).is_ok());
  EXPECT_EQ(intake_.post(41, {}, nothing).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(intake_.post(40, {}, nothing).is_ok());
  EXPECT_EQ(intake_.post(0, {}, nothing).code(), StatusCode::kResourceExhausted);
  let_go();
  std::promise<void> done;
  while (!intake_.post(100, {}, [&](PictureIntake::Desk&) { done.set_value(); }).is_ok()) {
    std::this_thread::yield();
  }
  done.get_future().wait();
}

TEST_F(HeldIntake, drops_requests_whose_clients_are_gone_and_outlives_what_throws) {
  std::stop_source gone;
  bool was_asked = false;
  EXPECT_TRUE(intake_.post(1, gone.get_token(), [&](PictureIntake::Desk&) { was_asked = true; }).is_ok());
  EXPECT_TRUE(intake_.post(1, {}, [](PictureIntake::Desk&) { throw std::runtime_error("planted"); }).is_ok());
  gone.request_stop();
  let_go();
  std::promise<void> done;
  while (!intake_.post(1, {}, [&](PictureIntake::Desk&) { done.set_value(); }).is_ok()) {
    std::this_thread::yield();
  }
  done.get_future().wait();
  EXPECT_FALSE(was_asked);
}

TEST_F(HeldIntake, requests_whose_clients_are_gone_make_room) {
  const auto nothing = [](PictureIntake::Desk&) {};
  std::stop_source gone;
  EXPECT_TRUE(intake_.post(60, gone.get_token(), nothing).is_ok());
  EXPECT_TRUE(intake_.post(40, gone.get_token(), nothing).is_ok());
  EXPECT_EQ(intake_.post(100, {}, nothing).code(), StatusCode::kResourceExhausted);
  gone.request_stop();
  EXPECT_TRUE(intake_.post(100, {}, nothing).is_ok());
  EXPECT_EQ(intake_.num_waiting(), 1U);
  let_go();
}

TEST_F(HeldIntake, a_stop_has_what_waits_done_at_once_and_decodes_nothing_more) {
  Status told;
  EXPECT_TRUE(intake_.post(1, {}, [&](PictureIntake::Desk& desk) { told = desk.decode(file_of(png_of(8, 8)), 8, 8).status(); }).is_ok());
  EXPECT_TRUE(intake_.post(1, {}, [](PictureIntake::Desk&) { throw std::runtime_error("planted"); }).is_ok());
  intake_.stop();
  EXPECT_EQ(told.code(), StatusCode::kUnavailable);
  EXPECT_EQ(intake_.post(1, {}, [](PictureIntake::Desk&) {}).code(), StatusCode::kUnavailable);
  intake_.stop();
  let_go();
}

TEST(image_inputs, a_deadline_is_told_while_every_decoder_is_busy) {
  FakeClock clock;
  std::promise<void> begun;
  std::promise<void> may_go_on;
  PictureIntake intake(
      {.num_threads = 1, .max_waiting = 1},
      [&](const std::stop_token&) {
        begun.set_value();
        may_go_on.get_future().wait();
        return Result<std::unique_ptr<PictureDecoder>>(decoder_in_process());
      },
      clock);
  const auto after = [&](std::chrono::seconds time, std::promise<void>& late) {
    return PictureIntake::Deadline{.at = clock.now() + time, .late = [&late] { late.set_value(); }};
  };
  std::promise<Status> decoded;
  std::promise<void> late_in_work;
  const auto decode = [&](PictureIntake::Desk& desk) { decoded.set_value(desk.decode(file_of(png_of(8, 8)), 8, 8).status()); };
  ASSERT_TRUE(intake.post(1, {}, decode, after(std::chrono::seconds(20), late_in_work)).is_ok());
  begun.get_future().wait();
  std::promise<void> late;
  const auto never = [](PictureIntake::Desk&) { ADD_FAILURE() << "it is too late for that"; };
  ASSERT_TRUE(intake.post(1, {}, never, after(std::chrono::seconds(10), late)).is_ok());
  clock.advance(std::chrono::seconds(10));
  late.get_future().wait();
  EXPECT_EQ(intake.num_waiting(), 0U);
  std::promise<void> late_after_all;
  std::promise<void> done;
  ASSERT_TRUE(intake
                  .post(
                      1, {}, [&](PictureIntake::Desk&) { done.set_value(); }, after(std::chrono::seconds(1000), late_after_all))
                  .is_ok());  // There is room again.
  clock.advance(std::chrono::seconds(10));
  late_in_work.get_future().wait();
  may_go_on.set_value();
  EXPECT_TRUE(decoded.get_future().get().is_ok());
  done.get_future().wait();
}

TEST(image_inputs, options_are_checked) {
  EXPECT_TRUE(PictureIntakeOptions{}.validate().is_ok());
  EXPECT_FALSE(PictureIntakeOptions{.num_threads = 0}.validate().is_ok());
  EXPECT_FALSE(PictureIntakeOptions{.num_threads = 65}.validate().is_ok());
  EXPECT_FALSE(PictureIntakeOptions{.max_waiting = 0}.validate().is_ok());
  EXPECT_FALSE(PictureIntakeOptions{.max_waiting_bytes = 0}.validate().is_ok());
  EXPECT_FALSE((PictureIntakeOptions{.limits = {.max_pixels = 0}}).validate().is_ok());
}

}  // namespace
}  // namespace darkroom
