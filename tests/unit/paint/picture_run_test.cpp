#include "darkroom/paint/picture_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <limits>

#include "darkroom/core/sha256.h"
#include "darkroom/core/version.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/png.h"
#include "paint/job_sheets.h"
#include "support/temporary_folder.h"
#include "tiny_painter.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

PictureJobs jobs_of(const std::string& text) {
  JobFileOptions options;
  options.defaults = {.sampler = "ddim", .steps = 2, .guidance = 3};
  return expand_picture_jobs(text, "jobs.toml", options).value();
}

class PictureRunTest : public testing::Test {
 protected:
  void plan(const std::string& text) {
    const PictureJobs jobs = jobs_of(text);
    run_.pictures = pictures_to_paint(jobs);
    run_.jobs = jobs.jobs;
    run_.output = "out";
    run_.origin = {.version = kVersion, .model = "models/tiny", .weights = "ema"};
  }
  Result<PictureModel> open() const {
    auto tiny = tiny_model().painter();
    return PictureModel{.painter = *std::move(tiny), .fingerprints = {{"unet", fingerprint_}}};
  }
  Status paint(std::stop_token stop = {}, const PaintingProgress& told = {}) {
    return paint_pictures(
        files_, run_, [&] { return open(); }, std::move(stop), report_, told);
  }
  std::string file(const std::string& name) { return read_file(files_, "out/" + name).value(); }
  Image picture(const std::string& name) {
    const std::string bytes = file(name);
    return decode_image(std::as_bytes(std::span(bytes)), kAnySize).value();
  }
  PictureRecord record() { return read_picture_record(file("pictures.json"), "x").value(); }
  bool is_there(const std::string& name) { return files_.exists("out/" + name).value(); }
  void write(const std::string& name, const std::string& bytes) { ASSERT_TRUE(write_file_atomic(files_, name, bytes).is_ok()); }

  MemoryFileSystem files_;
  std::string fingerprint_ = "f1";
  PictureRun run_;
  PictureRunReport report_;
};

constexpr const char* kTwoJobs = R"(
[[job]]
name = "a"
prompt = "a cat"
images = 2
seed = 5
[[job]]
name = "b"
prompt = "a dog"
negative = "grey"
x = { field = "size", values = ["64x64", "32x48"] }
y = { field = "steps", values = [1, 3] }
)";

// Settings differ from picture to picture; each has the bytes that a job of `sample` with these settings gives it.
TEST_F(PictureRunTest, every_picture_has_the_bytes_of_a_sample_job_with_its_settings) {
  plan(kTwoJobs);
  ASSERT_TRUE(paint().is_ok());
  EXPECT_EQ(report_.num_painted, 6);
  EXPECT_EQ(report_.num_sheets, 2);
  for (const RecordedPicture& painted : record().pictures) {
    const PictureFields& fields = painted.picture.fields;
    SampleJob job;
    job.prompts = {fields.prompt};
    job.seed = fields.seed;
    job.request.negative = fields.negative;
    job.request.sampler = {.name = "ddim", .num_steps = static_cast<int>(fields.steps)};
    job.request.guidance = 3;
    job.request.width = static_cast<int>(fields.width);
    job.request.height = static_cast<int>(fields.height);
    job.output = "alone.png";
    job.model = "models/tiny";
    job.weights = "ema";
    SampleReport report;
    ASSERT_TRUE(run_sample_job(
                    files_, job, [] { return tiny_model().painter(); }, {}, report)
                    .is_ok());
    EXPECT_EQ(read_file(files_, "alone.png").value(), file(painted.file)) << painted.file;
    EXPECT_EQ(sha256_hex(file(painted.file)), painted.sha256);
  }
}

TEST_F(PictureRunTest, the_record_says_what_the_model_decided) {
  plan("[[job]]\nprompt = 'a'\n");
  run_.pictures[0].picture.fields.sampler.clear();
  ASSERT_TRUE(paint().is_ok());
  const PictureRecord painted = record();
  EXPECT_EQ(painted.pictures[0].picture.fields.width, 64U);
  EXPECT_EQ(painted.pictures[0].picture.fields.height, 64U);
  EXPECT_FALSE(painted.pictures[0].picture.fields.sampler.empty());
  EXPECT_EQ(painted.origin.fingerprints, (std::map<std::string, std::string>{{"unet", "f1"}}));
  EXPECT_EQ(painted.origin.device, "cpu");
  EXPECT_EQ(painted.origin.precision, "float32");
}

TEST_F(PictureRunTest, a_second_run_paints_nothing_and_a_model_of_the_same_name_all) {
  plan(kTwoJobs);
  ASSERT_TRUE(paint().is_ok());
  const std::string before = file("pictures.json");
  ASSERT_TRUE(paint().is_ok());
  EXPECT_EQ(report_.num_kept, 6);
  EXPECT_EQ(report_.num_painted, 0);
  EXPECT_EQ(file("pictures.json"), before);
  fingerprint_ = "f2";
  ASSERT_TRUE(paint().is_ok());
  EXPECT_EQ(report_.num_painted, 6);
}

TEST_F(PictureRunTest, a_stopped_run_keeps_its_pictures_and_goes_on) {
  plan(kTwoJobs);
  run_.workers = 1;
  std::stop_source stop;
  const auto stop_after_two = [&](int64_t num_painted, int64_t) {
    if (num_painted == 2) {
      stop.request_stop();
    }
  };
  const Status status = paint(stop.get_token(), stop_after_two);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "stopped with 2 of 6 pictures painted; the same command goes on with the others");
  EXPECT_EQ(report_.num_painted, 2);
  EXPECT_FALSE(is_there("pictures.json"));
  std::vector<std::pair<int64_t, int64_t>> told;
  ASSERT_TRUE(paint({}, [&](int64_t painted, int64_t asked) { told.emplace_back(painted, asked); }).is_ok());
  EXPECT_EQ(report_.num_kept, 2);
  EXPECT_EQ(report_.num_painted, 4);
  EXPECT_THAT(told, ElementsAre(Pair(0, 6), Pair(2, 6), Pair(3, 6), Pair(4, 6), Pair(5, 6), Pair(6, 6)));
}

TEST_F(PictureRunTest, any_number_of_workers_gives_the_same_record_and_sheets) {
  plan(kTwoJobs);
  run_.workers = 1;
  ASSERT_TRUE(paint().is_ok());
  const std::string one = file("pictures.json") + file("a/sheet.png") + file("b/sheet.png");
  ASSERT_TRUE(files_.remove_tree("out").is_ok());
  run_.workers = 4;
  ASSERT_TRUE(paint().is_ok());
  EXPECT_EQ(file("pictures.json") + file("a/sheet.png") + file("b/sheet.png"), one);
}

TEST_F(PictureRunTest, settings_that_do_not_fit_the_model_are_refused_before_the_first_picture) {
  plan("[[job]]\nname = 'a'\nprompts = ['a', 'b']\n[[job]]\nname = 'odd'\nprompt = 'c'\nwidth = 65\n");
  const Status status = paint();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), StartsWith("odd/00000.png: "));
  EXPECT_FALSE(is_there("a/00000.png"));
  run_.pictures.clear();
  EXPECT_THAT(paint().message(), HasSubstr("nothing to paint"));
}

TEST_F(PictureRunTest, initial_pictures_are_read_before_the_model_is_opened) {
  plan("[[job]]\nprompt = 'a'\ninit_image = 'start.png'\n");
  const auto never = []() -> Result<PictureModel> {
    ADD_FAILURE() << "the model was opened";
    return Status::unavailable("opened");
  };
  EXPECT_EQ(paint_pictures(files_, run_, never, {}, report_).code(), StatusCode::kNotFound);
  write("start.png", "no picture");
  EXPECT_EQ(paint_pictures(files_, run_, never, {}, report_).code(), StatusCode::kFailedPrecondition);
  write("start.png", encode_png(Image::filled(72, 50, 3, 90)));
  run_.pictures[0].init_image_sha256 = std::string(64, 'a');
  EXPECT_THAT(paint_pictures(files_, run_, never, {}, report_).message(),
              HasSubstr("another one than was recorded (picture, path): job-1/00000.png start.png"));
}

TEST_F(PictureRunTest, another_initial_picture_of_the_same_name_is_painted_from_anew) {
  plan("[[job]]\nprompt = 'a'\ninit_image = 'start.png'\n");
  write("start.png", encode_png(Image::filled(72, 50, 3, 90)));
  ASSERT_TRUE(paint().is_ok());
  EXPECT_EQ(record().pictures[0].picture.fields.width, 72U);
  EXPECT_EQ(record().pictures[0].picture.fields.height, 48U);  // A multiple of the VAE's factor.
  const Image first = picture("job-1/00000.png");
  write("start.png", encode_png(Image::filled(72, 50, 3, 200)));
  ASSERT_TRUE(paint().is_ok());
  EXPECT_EQ(report_.num_painted, 1);
  EXPECT_NE(picture("job-1/00000.png"), first);
}

TEST_F(PictureRunTest, pictures_that_become_other_bytes_than_they_must_are_named_after_all_are_written) {
  plan(kTwoJobs);
  ASSERT_TRUE(paint().is_ok());
  run_.pictures = record().pictures;
  run_.jobs.clear();
  run_.output = "again";
  run_.wanted_fingerprints = {{"unet", "f1"}};
  ASSERT_TRUE(paint().is_ok());
  EXPECT_EQ(report_.num_sheets, 0);
  run_.output = "differs";
  run_.pictures[1].sha256 = std::string(64, '0');
  const Status status = paint();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(StartsWith("1 of 6 pictures are painted, but have other bytes"), HasSubstr("the first: a/00001.png")));
  EXPECT_TRUE(files_.exists("differs/b/00003.png").value());
  run_.wanted_fingerprints = {{"unet", "f2"}};
  EXPECT_THAT(paint().message(), HasSubstr("another model (part, recorded, this one): unet f2 f1"));
}

TEST_F(PictureRunTest, text_that_is_lost_is_warned_of) {
  plan("[[job]]\nprompt = 'a'\n");
  for (int i = 0; i < 80; ++i) {
    run_.pictures[0].picture.fields.prompt += " word";
  }
  testing::internal::CaptureStderr();
  ASSERT_TRUE(paint().is_ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("lost: 'word word"));
}

TEST_F(PictureRunTest, a_sheet_that_has_fewer_pages_now_loses_the_others) {
  plan("[[job]]\nprompt = 'a'\n");
  write("out/job-1/sheet-2.png", "old");
  write("out/job-1/sheet-3.png", "old");
  ASSERT_TRUE(paint().is_ok());
  EXPECT_FALSE(is_there("job-1/sheet-2.png"));
  EXPECT_FALSE(is_there("job-1/sheet-3.png"));
}

PictureJob job_of(size_t num_pictures, size_t num_columns) {
  return {.name = "j", .num_pictures = num_pictures, .num_columns = num_columns};
}

TEST(SheetPages, hold_all_pictures_within_their_bounds) {
  for (const size_t num_columns : {1, 2, 7, 31, 32, 118, 119, 1000, 10'000}) {
    for (const size_t num_rows : {1, 2, 99, 10'000}) {
      for (const int side : {8, 128, 129, 512, 4096}) {
        const SheetPages pages = sheet_pages(job_of(num_rows * num_columns, num_columns), side);
        EXPECT_GE(pages.columns * pages.across, num_columns);
        EXPECT_GE(pages.rows * pages.down, num_rows);
        EXPECT_LT(pages.columns * (pages.across - 1), num_columns);
        EXPECT_LT(pages.rows * (pages.down - 1), num_rows);
        EXPECT_GE(pages.cell, 128);
        EXPECT_LE(pages.cell, 512);
        const auto width = static_cast<int64_t>(pages.columns) * (pages.cell + 8) + 256;
        EXPECT_LE(width, kMostSheetSide) << num_columns << " " << side;
        EXPECT_LE(width * (static_cast<int64_t>(pages.rows) * (pages.cell + 3 * text_line_height() + 8) + 128), kMostSheetPixels)
            << num_columns << " " << side;
      }
    }
  }
}

class JobSheetTest : public testing::Test {
 protected:
  // Pictures of one grey each, in a grid.
  void make(size_t num_pictures, size_t num_columns, int side) {
    job_ = job_of(num_pictures, num_columns);
    for (size_t i = 0; i < num_pictures; ++i) {
      RecordedPicture picture{.file = picture_file(job_, i)};
      picture.picture.fields.width = picture.picture.fields.height = static_cast<uint64_t>(side);
      ASSERT_TRUE(
          write_file_atomic(files_, "out/" + picture.file, encode_png(Image::filled(side, side, 3, static_cast<uint8_t>(i)))).is_ok());
      pictures_.push_back(picture);
    }
  }
  Image page(const std::string& name) {
    const std::string bytes = read_file(files_, "out/j/" + name).value();
    return decode_image(std::as_bytes(std::span(bytes)), kAnySize).value();
  }

  MemoryFileSystem files_;
  PictureJob job_;
  std::vector<RecordedPicture> pictures_;
};

TEST_F(JobSheetTest, pages_show_every_picture_once_in_order) {
  make(240, 120, 8);  // Two rows of more columns than a page takes.
  ASSERT_EQ(draw_job_sheet(files_, "out", job_, pictures_, {}).value(), 2);
  const Image first = page("sheet.png");
  const Image second = page("sheet-2.png");
  EXPECT_GT(first.width, second.width);
  EXPECT_LE(first.width, kMostSheetSide);
  std::array<std::array<int64_t, 256>, 2> num_values = {};
  for (size_t p = 0; p < 2; ++p) {
    const Image& image = p == 0 ? first : second;
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      ++num_values[p][image.pixels[i]];
    }
  }
  for (size_t i = 30; i < 240; ++i) {  // Beyond the colour of the text.
    const bool is_on_first = i % 120 < sheet_pages(job_, 8).columns;
    EXPECT_GE(num_values[is_on_first ? 0 : 1][i], 3 * 128 * 128) << i;
    EXPECT_LT(num_values[is_on_first ? 1 : 0][i], 3 * 128 * 128) << i;  // But for the edges of letters.
  }
}

TEST_F(JobSheetTest, a_picture_that_is_none_is_damage) {
  make(2, 2, 8);
  ASSERT_TRUE(write_file_atomic(files_, "out/j/00001.png", "x").is_ok());
  EXPECT_EQ(draw_job_sheet(files_, "out", job_, pictures_, {}).status().code(), StatusCode::kCorruptData);
}

TEST_F(JobSheetTest, large_pictures_are_shrunk) {
  make(1, 1, 600);
  ASSERT_TRUE(draw_job_sheet(files_, "out", job_, pictures_, {}).is_ok());
  EXPECT_LT(page("sheet.png").width, 600);
}

TEST_F(PictureRunTest, says_how_many_pictures_came_out_without_numbers) {
  TinyModel damaged;
  {
    const torch::NoGradGuard no_grad;
    damaged.vae->named_parameters()["decoder.conv_out.bias"][0] = std::numeric_limits<float>::quiet_NaN();
  }
  plan("[[job]]\nprompt = 'a'\nimages = 2\n");
  testing::internal::CaptureStderr();
  const Status status = paint_pictures(
      files_, run_, [&]() -> Result<PictureModel> { return PictureModel{.painter = damaged.painter().value(), .fingerprints = {}}; }, {},
      report_);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_THAT(said, HasSubstr("2 of 2 pictures"));
}

}  // namespace
}  // namespace darkroom
