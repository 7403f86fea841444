#include "darkroom/paint/sample_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>

#include "darkroom/files/memory_files.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/png.h"
#include "darkroom/tensor/safetensors.h"
#include "support/no_new_threads.h"
#include "support/temporary_folder.h"
#include "tiny_painter.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Result<std::vector<std::string>> prompts_in(const std::string& text) {
  MemoryFileSystem files;
  EXPECT_TRUE(write_file_atomic(files, "in/prompts.txt", text).is_ok());
  return read_prompts(files, "in/prompts.txt");
}

TEST(SamplePrompts, are_the_lines_of_a_file) {
  EXPECT_THAT(prompts_in("a cat\na dog\n").value(), ElementsAre("a cat", "a dog"));
  EXPECT_THAT(prompts_in("a cat\r\n\r\na dog").value(), ElementsAre("a cat", "", "a dog"));
  EXPECT_THAT(prompts_in("").value(), ElementsAre());
  EXPECT_THAT(prompts_in("\n").value(), ElementsAre(""));
  MemoryFileSystem files;
  EXPECT_EQ(read_prompts(files, "absent.txt").status().code(), StatusCode::kNotFound);
}

TEST(SampleNames, number_stands_before_the_ending) {
  EXPECT_EQ(numbered_path("out/cat.png", 7), "out/cat-00007.png");
  EXPECT_EQ(numbered_path("out.d/cat", 0), "out.d/cat-00000");
  EXPECT_EQ(numbered_path("cat.tiny.png", 123456), "cat.tiny-123456.png");
  EXPECT_EQ(numbered_path("a/.png", 1), "a/.png-00001");
}

TEST(SampleSheet, is_a_square_of_single_pictures_and_rows_of_several) {
  const std::vector<Image> images(5, Image::filled(64, 64, 3, 7));
  const std::vector<std::string> captions(5, "x");
  const Image square = draw_sample_sheet(images, captions, 1);
  const Image rows_of_three = draw_sample_sheet(images, captions, 3);
  const Image rows_of_five = draw_sample_sheet(images, captions, 5);
  EXPECT_EQ(square, rows_of_three);  // Three columns, two rows.
  EXPECT_GT(rows_of_five.width, square.width);
  EXPECT_LT(rows_of_five.height, square.height);
}

void expect_same(const Painting& got, const Painting& want) {
  EXPECT_TRUE(at::equal(got.latents_nchw, want.latents_nchw));
  EXPECT_EQ(got.images, want.images);
}

TEST(SideBySide, any_number_of_workers_gives_the_same_bits) {
  PaintRequest request = request_of({"a", "b", "c", "a", "e"}, {1, 2, 3, 4, 5}, 2);
  for (const int64_t batch_size : {1, 2}) {
    request.batch_size = batch_size;
    const Painting want = painter().paint(request).value();
    for (const int workers : {0, 1, 2, 3, 7}) {
      expect_same(paint_side_by_side(painter(), request, workers).value(), want);
    }
  }
}

TEST(SideBySide, the_caller_paints_where_no_worker_can_be_started) {
  PaintRequest request = request_of({"a", "b", "c"}, {1, 2, 3}, 2);
  request.batch_size = 1;
  const Painting want = painter().paint(request).value();
  const NoNewThreads none;
  expect_same(paint_side_by_side(painter(), request, 2).value(), want);
}

TEST(SideBySide, as_many_batches_fit_as_half_of_the_memory_holds) {
  constexpr int64_t kPixelBytes = 8192;
  PaintRequest request = request_of({"a", "b", "c", "d"}, {1, 2, 3, 4});
  request.batch_size = 3;
  const int64_t native_bytes = 2 * 3 * 64 * 64 * kPixelBytes;
  EXPECT_EQ(batches_that_fit(painter(), request, 5 * native_bytes), 5);
  EXPECT_EQ(batches_that_fit(painter(), request, 5 * native_bytes - 1), 4);
  EXPECT_EQ(batches_that_fit(painter(), request, 0), 1);
  request.init_images = {Image::filled(640, 320, 3)};  // What it starts from has the size, too.
  EXPECT_EQ(batches_that_fit(painter(), request, 100 * native_bytes), 2);
  request.width = 64;
  EXPECT_EQ(batches_that_fit(painter(), request, 100 * native_bytes), 20);
}

TEST(SideBySide, each_picture_keeps_its_own_start) {
  PaintRequest from_noise = request_of({"a", "b", "c"}, {}, 2);
  from_noise.batch_size = 2;
  from_noise.unit_noise_nchw = at::arange(3 * 4 * 8 * 8, torch::kFloat32).reshape({3, 4, 8, 8}).sin();
  expect_same(paint_side_by_side(painter(), from_noise, 2).value(), painter().paint(from_noise).value());
  PaintRequest from_pictures = request_of({"a", "b", "c"}, {1, 2, 3}, 2);
  from_pictures.batch_size = 1;
  from_pictures.init_images = {Image::filled(64, 64, 3, 10), Image::filled(64, 64, 3, 90), Image::filled(64, 64, 3, 200)};
  expect_same(paint_side_by_side(painter(), from_pictures, 3).value(), painter().paint(from_pictures).value());
  from_pictures.init_images[1] = Image::filled(48, 80, 3, 90);  // Every picture gets the first one's size.
  expect_same(paint_side_by_side(painter(), from_pictures, 3).value(), painter().paint(from_pictures).value());
  from_pictures.init_images.resize(1);
  expect_same(paint_side_by_side(painter(), from_pictures, 3).value(), painter().paint(from_pictures).value());
}

TEST(SideBySide, a_bad_request_fails_as_with_one_worker) {
  std::vector<PaintRequest> requests(5, request_of({"a", "b", "c"}, {1, 2, 3}));
  requests[0].seeds.pop_back();
  requests[1].batch_size = 0;
  requests[2].unit_noise_nchw = torch::zeros({2, 4, 8, 8});
  requests[3].sampler.name = "no such sampler";
  requests[4].width = requests[4].height = 2'000'000'000;  // No integer holds the bytes of such a batch.
  for (PaintRequest& request : requests) {
    request.batch_size = std::min<int64_t>(request.batch_size, 1);
    const Status want = painter().paint(request).status();
    EXPECT_EQ(want.code(), StatusCode::kInvalidArgument);
    for (const int workers : {0, 2}) {
      EXPECT_EQ(paint_side_by_side(painter(), request, workers).status().message(), want.message());
    }
  }
}

TEST(SideBySide, a_worker_that_throws_ends_the_others) {
  const std::vector<std::string> prompts(20, "a");
  PaintRequest request = request_of(prompts, std::vector<uint64_t>(prompts.size(), 1), 1);
  request.batch_size = 1;
  std::atomic<int64_t> num_painted = 0;
  const auto fail = [&](int64_t count) {
    num_painted += count;
    throw std::runtime_error("planted");
  };
  for (const int workers : {1, 2}) {
    num_painted = 0;
    EXPECT_THROW(static_cast<void>(paint_side_by_side(painter(), request, workers, {}, fail)), std::runtime_error);
    EXPECT_LE(num_painted, workers);
  }
}

// Many workers that fail at once: whichever is first, no batch that was taken may be missing.
TEST(SideBySide, the_first_failure_is_found_whoever_fails_first) {
  const std::vector<std::string> prompts(64, "a");
  PaintRequest request = request_of(prompts, std::vector<uint64_t>(prompts.size(), 1));
  request.batch_size = 1;
  request.guidance = std::numeric_limits<double>::quiet_NaN();
  const std::string want = painter().paint(request).status().message();
  ASSERT_FALSE(want.empty());
  for (int round = 0; round < 200; ++round) {
    ASSERT_EQ(paint_side_by_side(painter(), request, 16).status().message(), want);
  }
}

TEST(SideBySide, stops_when_asked) {
  PaintRequest request = request_of({"a", "b", "c"}, {1, 2, 3});
  request.batch_size = 1;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(paint_side_by_side(painter(), request, 2, stop.get_token()).status().code(), StatusCode::kCancelled);
}

TEST(SideBySide, tells_of_each_batch_that_is_painted_and_stops_before_the_next) {
  PaintRequest request = request_of({"a", "b", "c", "d", "e"}, {1, 2, 3, 4, 5}, 2);
  request.batch_size = 2;
  for (const int workers : {1, 2}) {
    std::atomic<int64_t> num_painted = 0;
    ASSERT_TRUE(paint_side_by_side(painter(), request, workers, {}, [&](int64_t count) { num_painted += count; }).is_ok());
    EXPECT_EQ(num_painted, 5) << workers;
  }
  std::stop_source stop;
  std::vector<int64_t> batches;
  const auto stop_after_first = [&](int64_t count) {
    batches.push_back(count);
    stop.request_stop();
  };
  EXPECT_EQ(paint_side_by_side(painter(), request, 1, stop.get_token(), stop_after_first).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(batches, std::vector<int64_t>{2});
}

class SampleJobTest : public testing::Test {
 protected:
  SampleJobTest() {
    job_.prompts = {"a cat"};
    job_.request.sampler = {.name = "ddim", .num_steps = 2};
    job_.output = folder_.path("new/cat.png");
    job_.model = "models/tiny";
    job_.weights = "ema";
  }

  static Result<std::unique_ptr<Painter>> open() { return tiny_model().painter(); }
  Result<SampleReport> run() {
    const Status status = run_sample_job(local_files(), job_, open, {}, report_);
    return status.is_ok() ? Result<SampleReport>(report_) : status;
  }
  Image picture(const std::string& name) const {
    const std::string bytes = read_file(local_files(), folder_.path(name)).value();
    return decode_image(std::as_bytes(std::span(bytes)), kAnySize).value();
  }
  bool is_there(const std::string& name) const { return std::filesystem::exists(folder_.path(name)); }

  TemporaryFolder folder_;
  SampleJob job_;
  SampleReport report_;
};

TEST_F(SampleJobTest, one_picture_has_the_output_s_name_and_its_settings_as_text) {
  const SampleReport report = run().value();
  EXPECT_EQ(report.num_asked, 1);
  EXPECT_EQ(report.num_painted, 1);
  EXPECT_EQ(report.num_written, 1);
  EXPECT_EQ(report.sampler, "ddim");
  EXPECT_EQ(picture("new/cat.png").width, 64);
  const std::string bytes = read_file(local_files(), folder_.path("new/cat.png")).value();
  const auto text = read_png_text(std::as_bytes(std::span(bytes))).value();
  EXPECT_THAT(text, testing::IsSupersetOf<PngText>({{"prompt", "a cat"}, {"seed", "0"}, {"steps", "2"}, {"model", "models/tiny"}}));
}

TEST_F(SampleJobTest, the_picture_says_how_its_prompt_was_read) {
  job_.prompts = {"a (cat:1.3)"};
  job_.request.reading.syntax = PromptSyntax::kWeighted;
  ASSERT_TRUE(run().is_ok());
  const std::string bytes = read_file(local_files(), folder_.path("new/cat.png")).value();
  const auto text = read_png_text(std::as_bytes(std::span(bytes))).value();
  EXPECT_THAT(text, testing::IsSupersetOf<PngText>({{"prompt", "a (cat:1.3)"}, {"prompt_syntax", "weighted"}, {"long_prompts", "auto"}}));
}

TEST_F(SampleJobTest, a_prompt_that_is_too_long_is_warned_of_with_what_is_lost) {
  for (int i = 0; i < 75; ++i) {
    job_.prompts[0] += " word";
  }
  job_.prompts[0] += " red apple";
  testing::internal::CaptureStderr();
  ASSERT_TRUE(run().is_ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("lost: 'word word red apple'"));
  job_.request.reading.long_prompts = LongPrompts::kChunks;
  testing::internal::CaptureStderr();
  ASSERT_TRUE(run().is_ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("lost:")));
}

// Image j of every prompt has seed + j; alone it is the same picture to the last bit as among others.
TEST_F(SampleJobTest, a_picture_does_not_depend_on_its_neighbours) {
  job_.images_per_prompt = 3;
  job_.seed = 5;
  ASSERT_TRUE(run().is_ok());
  EXPECT_FALSE(is_there("new/cat.png"));
  const Image second = picture("new/cat-00001.png");
  job_.images_per_prompt = 1;
  job_.seed = 6;
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(picture("new/cat.png"), second);
}

TEST_F(SampleJobTest, tells_of_every_picture_as_it_is_painted) {
  job_.images_per_prompt = 5;
  for (const int workers : {1, 3}) {
    job_.workers = workers;
    std::vector<std::pair<int64_t, int64_t>> told;
    const auto keep = [&](int64_t num_painted, int64_t num_asked) { told.emplace_back(num_painted, num_asked); };
    ASSERT_TRUE(run_sample_job(local_files(), job_, open, {}, report_, keep).is_ok());
    EXPECT_THAT(told, ElementsAre(Pair(0, 5), Pair(1, 5), Pair(2, 5), Pair(3, 5), Pair(4, 5), Pair(5, 5))) << workers;
  }
}

TEST_F(SampleJobTest, a_grid_takes_the_name_and_the_pictures_take_numbers) {
  job_.grid = true;
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(picture("new/cat-00000.png").width, 64);
  EXPECT_GT(picture("new/cat.png").width, 64);
}

TEST_F(SampleJobTest, prompts_of_a_file_follow_the_others) {
  std::ofstream(folder_.path("prompts.txt")) << "a dog\na cow\n";
  job_.prompts_file = folder_.path("prompts.txt");
  EXPECT_EQ(run()->num_written, 3);
}

TEST_F(SampleJobTest, start_noise_gives_the_size_and_the_final_latents_are_written) {
  job_.start_latents = folder_.path("start.safetensors");
  job_.latents_output = folder_.path("more/end.safetensors");
  ASSERT_TRUE(write_safetensors(local_files(), job_.start_latents, {{"latents", torch::ones({1, 4, 4, 6})}}).is_ok());
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(picture("new/cat.png").width, 48);
  EXPECT_EQ(picture("new/cat.png").height, 32);
  const auto written = SafetensorsFile::open(job_.latents_output).value();
  EXPECT_EQ(written->spec("latents")->shape, (std::vector<int64_t>{1, 4, 4, 6}));
}

TEST_F(SampleJobTest, refuses_latents_of_another_type_or_number) {
  job_.start_latents = folder_.path("start.safetensors");
  ASSERT_TRUE(write_safetensors(local_files(), job_.start_latents, {{"latents", torch::ones({2, 4, 8, 8})}}).is_ok());
  EXPECT_THAT(run().status().message(), HasSubstr("another number of pictures"));
  std::filesystem::remove(job_.start_latents);
  ASSERT_TRUE(write_safetensors(local_files(), job_.start_latents, {{"latents", torch::ones({1, 4, 8, 8}, torch::kInt32)}}).is_ok());
  EXPECT_EQ(run().status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(SampleJobTest, what_can_be_refused_is_refused_before_the_model_is_opened) {
  const auto never = []() -> Result<std::unique_ptr<Painter>> {
    ADD_FAILURE() << "the model was opened";
    return Status::unavailable("opened");
  };
  const auto failure = [&] { return run_sample_job(local_files(), job_, never, {}, report_); };
  job_.init_image = folder_.path("text.png");
  std::ofstream(job_.init_image) << "no picture";
  EXPECT_EQ(failure().code(), StatusCode::kFailedPrecondition);
  job_.init_image.clear();
  job_.request.reading.syntax = PromptSyntax::kWeighted;
  job_.prompts = {"a (cat:1.2.3)"};
  EXPECT_THAT(failure().message(), HasSubstr("1.2.3"));
  EXPECT_EQ(failure().code(), StatusCode::kInvalidArgument);
  job_.images_per_prompt = 0;
  EXPECT_THAT(failure().message(), HasSubstr("--images"));
  job_.prompts.clear();
  EXPECT_THAT(failure().message(), HasSubstr("nothing to paint"));
  EXPECT_EQ(failure().code(), StatusCode::kInvalidArgument);
}

TEST_F(SampleJobTest, a_stopped_job_writes_nothing) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(run_sample_job(local_files(), job_, open, stop.get_token(), report_).code(), StatusCode::kCancelled);
  EXPECT_FALSE(is_there("new/cat.png"));
  EXPECT_EQ(report_.num_asked, 1);
  EXPECT_EQ(report_.num_painted, 0);
}

TEST_F(SampleJobTest, a_job_that_fails_while_it_writes_has_counted) {
  job_.images_per_prompt = 3;
  std::filesystem::create_directories(folder_.path("new/cat-00001.png/taken"));
  EXPECT_FALSE(run().is_ok());
  EXPECT_EQ(report_.num_asked, 3);
  EXPECT_EQ(report_.num_painted, 3);
  EXPECT_EQ(report_.num_written, 1);
  EXPECT_EQ(report_.sampler, "ddim");
}

TEST(SampleJob, says_that_pictures_came_out_without_numbers_and_writes_them) {
  TinyModel damaged;
  {
    const torch::NoGradGuard no_grad;
    damaged.unet->named_parameters()["conv_out.bias"][0] = std::numeric_limits<float>::quiet_NaN();
  }
  const TemporaryFolder folder;
  SampleJob job;
  job.prompts = {"a", "b"};
  job.request.sampler = {.name = "ddim", .num_steps = 1};
  job.output = folder.path("out.png");
  SampleReport report;
  testing::internal::CaptureStderr();
  const Status status = run_sample_job(
      local_files(), job, [&] { return damaged.painter(); }, {}, report);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(report.num_written, 2);
  EXPECT_THAT(said, HasSubstr("2 of 2 pictures"));
}

TEST(SampleJob, refuses_latents_without_numbers) {
  const TemporaryFolder folder;
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    torch::Tensor latents = torch::zeros({1, 4, 8, 8});
    latents[0][1][2][3] = value;
    const std::string path = folder.path("latents.safetensors");
    std::filesystem::remove(path);
    ASSERT_TRUE(write_safetensors(local_files(), path, {{"latents", latents}}).is_ok());
    SampleJob job;
    job.prompts = {"a"};
    job.output = folder.path("out.png");
    job.start_latents = path;
    SampleReport report;
    const Status status = run_sample_job(
        local_files(), job, [] { return tiny_model().painter(); }, {}, report);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(path));
    EXPECT_FALSE(std::filesystem::exists(job.output));
  }
}

}  // namespace
}  // namespace darkroom
