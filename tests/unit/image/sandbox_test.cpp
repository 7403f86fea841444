#include "darkroom/image/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/resample.h"
#include "golden_files.h"
#include "support/said_by_child.h"
#include "webp_on_canvas.h"

// darkroom-decoder and planted_decoder (tests/planted_decoder), which misbehaves as it is asked to, in their sandboxes.
namespace darkroom {
namespace {

using namespace std::string_literals;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

std::string folder_of_tests() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

SandboxOptions real_options() {
  return {.program = folder_of_tests() + "/../darkroom-decoder", .memory_bytes = size_t{256} << 20, .time_per_picture = seconds(60)};
}

SandboxOptions planted_options() {
  SandboxOptions options = real_options();
  options.program = folder_of_tests() + "/planted_decoder";
  return options;
}

std::unique_ptr<PictureDecoder> started(const SandboxOptions& options) {
  auto decoder = decoder_in_child(options);
  if (!decoder.is_ok()) {
    ADD_FAILURE() << decoder.status().to_string();
    return decoder_in_process();
  }
  return std::move(decoder).value();
}

std::string plant(const std::string& name, const std::string& picture = "") { return "PLANT:" + name + "\n" + picture; }

// "ok WIDTHxHEIGHT FORMAT", or the error's name and detail.
std::string checked(PictureDecoder& decoder, const std::string& bytes, const ImageLimits& limits = kAnySize) {
  const auto result = decoder.check(as_bytes(bytes), limits);
  if (!result.is_ok()) {
    return "lost: " + result.status().to_string();
  }
  const RowResult<ImageHeader>& header = result.value();
  return header.is_ok() ? fmt::format("ok {}x{} {}", header->width, header->height, mime_type(header->format))
                        : header.error().name() + ": " + header.error().detail;
}

struct Transformed {
  std::string outcome;
  std::vector<uint8_t> pixels;
  bool operator==(const Transformed&) const = default;
};

Transformed transformed(PictureDecoder& decoder, const std::string& bytes, const TransformOptions& options,
                        const ImageLimits& limits = kAnySize) {
  Transformed got{.outcome = "", .pixels = std::vector<uint8_t>(square_bytes(options), 7)};
  const auto result = decoder.transform(as_bytes(bytes), options, limits, {0.3, 0.8}, got.pixels);
  if (!result.is_ok()) {
    got.outcome = "lost: " + result.status().to_string();
    return got;
  }
  const RowResult<DecodedSize>& size = result.value();
  got.outcome = size.is_ok() ? fmt::format("ok {}x{}", size->width, size->height) : size.error().name() + ": " + size.error().detail;
  return got;
}

Transformed resized(PictureDecoder& decoder, const std::string& bytes, const DecodedSize& size) {
  Transformed got{.outcome = "", .pixels = std::vector<uint8_t>(picture_bytes(size), 7)};
  const auto result = decoder.resize_to(as_bytes(bytes), size, kAnySize, got.pixels);
  if (!result.is_ok()) {
    got.outcome = "lost: " + result.status().to_string();
    return got;
  }
  const RowResult<DecodedSize>& stored = result.value();
  got.outcome =
      stored.is_ok() ? fmt::format("ok {}x{}", stored->width, stored->height) : stored.error().name() + ": " + stored.error().detail;
  return got;
}

std::string small_jpeg() { return golden_bytes("files/jpeg_444.jpg"); }

// The processes that this one has started and not waited for.
std::set<pid_t> children() {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) {
      continue;
    }
    pid_t pid = 0;
    char state = 0;
    pid_t parent = 0;
    if (std::sscanf(line.c_str(), "%d", &pid) == 1 && std::sscanf(line.c_str() + line.rfind(')') + 1, " %c %d", &state, &parent) == 2 &&
        parent == getpid()) {
      found.insert(pid);
    }
  }
  return found;
}

// Throws where there is none: a signal to process -1 would reach everybody's.
pid_t only_child() {
  const std::set<pid_t> all = children();
  EXPECT_EQ(all.size(), 1U);
  return all.empty() ? throw std::logic_error("there is no child") : *all.begin();
}

// -- the same results ------------------------------------------------------------------------------------------------

TEST(Sandbox, gives_the_bits_of_this_process_on_every_golden_file) {
  const auto here = decoder_in_process();
  const auto there = started(real_options());
  int num_ok = 0;
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const std::string bytes = golden_bytes("files/" + name);
    EXPECT_EQ(checked(*there, bytes), checked(*here, bytes)) << name;
    for (const int resolution : {1, 37, 64}) {
      const TransformOptions options{.resolution = resolution,
                                     .filter = static_cast<Filter>(resolution % 5),
                                     .crop = resolution == 1 ? Crop::kCenter : Crop::kRandom,
                                     .orientation = resolution == 64 ? Orientation::kApply : Orientation::kIgnore};
      const Transformed want = transformed(*here, bytes, options);
      EXPECT_EQ(transformed(*there, bytes, options), want) << name << " " << resolution;
      num_ok += want.outcome.starts_with("ok");
    }
  }
  EXPECT_GT(num_ok, 60);
}

TEST(Sandbox, resizes_to_the_bits_of_this_process_and_of_a_decoded_and_resized_picture) {
  const auto here = decoder_in_process();
  const auto there = started(real_options());
  int num_ok = 0;
  for (const auto& golden : golden_files()) {
    const std::string name = golden.at("name");
    const std::string bytes = golden_bytes("files/" + name);
    for (const DecodedSize size : {DecodedSize{1, 1}, DecodedSize{64, 64}, DecodedSize{37, 120}}) {
      const Transformed want = resized(*here, bytes, size);
      EXPECT_EQ(resized(*there, bytes, size), want) << name;
      const RowResult<Image> image = decode_image(as_bytes(bytes), kAnySize);
      ASSERT_EQ(image.is_ok(), want.outcome.starts_with("ok")) << name;
      if (image.is_ok()) {
        EXPECT_EQ(want.pixels, resize(*image, size.width, size.height, Filter::kLanczos).pixels) << name;
        ++num_ok;
      }
    }
  }
  EXPECT_GT(num_ok, 60);
}

TEST(Sandbox, a_picture_that_is_resized_costs_itself_at_most) {
  const auto there = started(planted_options());
  const std::string jpeg = small_jpeg();
  const Transformed want = resized(*decoder_in_process(), jpeg, {40, 24});
  EXPECT_THAT(resized(*there, plant("crash", jpeg), {40, 24}).outcome, HasSubstr("SIGSEGV"));
  EXPECT_EQ(resized(*there, jpeg, {40, 24}), want);
  EXPECT_THAT(resized(*there, plant("pixels", jpeg), {40, 24}).outcome, HasSubstr("no decoder answers"));
  EXPECT_EQ(resized(*there, jpeg, {40, 24}), want);
  EXPECT_EQ(resized(*there, jpeg, {700, 700}), resized(*decoder_in_process(), jpeg, {700, 700}));  // Above the slot for pixels.
  EXPECT_EQ(resized(*there, "hello", {2, 2}).pixels, std::vector<uint8_t>(12, 7));
  std::vector<uint8_t> pixels(100);
  EXPECT_THROW((void)there->resize_to({}, {8, 8}, kAnySize, pixels), CheckFailure);
  EXPECT_THROW((void)there->resize_to({}, {0, 8}, kAnySize, {}), CheckFailure);
}

TEST(Sandbox, gives_the_errors_of_this_process) {
  const auto here = decoder_in_process();
  const auto there = started(real_options());
  const std::string jpeg = small_jpeg();
  const std::string png = golden_bytes("files/png_rgb_8.png");
  std::string bomb = png;
  bomb.replace(16, 8, "\0\x01\x86\xA0\0\x01\x86\xA0"s);  // 100000 x 100000
  std::string damaged = png;
  damaged[png.find("IDAT") + 50] ^= 0x10;
  std::set<std::string> outcomes;
  for (const std::string& bytes :
       {""s, "hello"s, "GIF89a\x10\0\x10\0"s, jpeg.substr(0, 300), jpeg.substr(0, jpeg.size() - 9), bomb, damaged}) {
    const Transformed want = transformed(*here, bytes, {.resolution = 16});
    EXPECT_EQ(transformed(*there, bytes, {.resolution = 16}), want);
    EXPECT_EQ(checked(*there, bytes), checked(*here, bytes));
    outcomes.insert(want.outcome.substr(0, want.outcome.find(':')));
  }
  EXPECT_EQ(outcomes, (std::set<std::string>{"bomb", "decode_failed", "not_an_image", "truncated", "unsupported_format"}));
  EXPECT_EQ(checked(*there, jpeg, {.min_size = 1000}), checked(*here, jpeg, {.min_size = 1000}));
  EXPECT_EQ(checked(*there, jpeg, {.min_size = 1, .max_aspect = 1.0001}), checked(*here, jpeg, {.min_size = 1, .max_aspect = 1.0001}));
}

TEST(Sandbox, writes_pixels_only_on_success) {
  const auto decoder = started(real_options());
  EXPECT_EQ(transformed(*decoder, "hello", {.resolution = 8}).pixels, std::vector<uint8_t>(192, 7));
}

TEST(Sandbox, an_output_of_another_size_is_a_bug_of_the_caller) {
  std::vector<uint8_t> pixels(100);
  for (const auto& decoder : {decoder_in_process(), started(real_options())}) {
    EXPECT_THROW((void)decoder->transform({}, {.resolution = 8}, kAnySize, {}, pixels), CheckFailure);
  }
}

TEST(Sandbox, a_picture_larger_than_the_slot_gets_a_larger_one_for_itself) {
  SandboxOptions options = real_options();
  options.input_bytes = 100;
  const auto here = decoder_in_process();
  const auto there = started(options);
  const std::string jpeg = small_jpeg();
  ASSERT_GT(jpeg.size(), 100U);
  const pid_t first = only_child();
  EXPECT_EQ(checked(*there, jpeg), checked(*here, jpeg));
  const pid_t second = only_child();
  EXPECT_EQ(checked(*there, "hello"), checked(*here, "hello"));
  EXPECT_EQ((std::set{first, second, only_child()}).size(), 3U);
}

TEST(Sandbox, a_square_larger_than_the_slot_gets_a_larger_one_for_good) {
  const auto here = decoder_in_process();
  const auto there = started(real_options());
  const std::string jpeg = small_jpeg();
  const pid_t first = only_child();
  const TransformOptions large{.resolution = 700};  // 1.47 MB
  EXPECT_EQ(transformed(*there, jpeg, large), transformed(*here, jpeg, large));
  const pid_t second = only_child();
  EXPECT_EQ(checked(*there, jpeg), checked(*here, jpeg));
  EXPECT_NE(first, second);
  EXPECT_EQ(only_child(), second);
}

TEST(Sandbox, a_picture_of_too_many_bytes_is_not_taken) {
  SandboxOptions options = real_options();
  options.input_bytes = options.largest_input_bytes = 100;
  const auto decoder = started(options);
  EXPECT_EQ(checked(*decoder, std::string(100, 'x')), "not_an_image: no known magic bytes");
  EXPECT_EQ(checked(*decoder, std::string(101, 'x')), "too_large: a picture of more than 100 bytes: 101");
}

// -- what a child may do ---------------------------------------------------------------------------------------------

TEST(Sandbox, has_the_protections_of_this_kernel) {
  const auto protection = examine_sandbox(real_options());
  ASSERT_TRUE(protection.is_ok()) << protection.status().to_string();
  EXPECT_TRUE(protection->has_seccomp);
  EXPECT_EQ(protection->landlock_abi, std::max(0L, syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION)));
  EXPECT_EQ(protection->missing.empty(), protection->landlock_abi > 0) << protection->missing;
  EXPECT_THAT(children(), testing::IsEmpty());
}

TEST(Sandbox, refuses_every_system_call_but_those_that_it_lists) {
  EXPECT_EQ(checked(*started(planted_options()), plant("calls")), "decode_failed: ");
}

TEST(Sandbox, refuses_executable_memory) { EXPECT_EQ(checked(*started(planted_options()), plant("execution")), "decode_failed: "); }

TEST(Sandbox, lets_nobody_open_connect_or_execute) { EXPECT_EQ(checked(*started(planted_options()), plant("deeds")), "decode_failed: "); }

TEST(Sandbox, ends_a_child_that_calls_as_a_32_bit_program) {
  EXPECT_THAT(checked(*started(planted_options()), plant("32_bit")),
              testing::StartsWith("decode_failed: the decoder died of this picture: SIG"));
}

TEST(Sandbox, gives_a_child_no_environment) { EXPECT_EQ(checked(*started(planted_options()), plant("environment")), "decode_failed: "); }

TEST(Sandbox, leaves_a_child_no_descriptor) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);  // Inherited by what is started, unlike all that the program opens itself.
  const auto decoder = started(planted_options());
  close(ends[1]);
  pollfd reader{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&reader, 1, 0), 1);  // The end of the file, as nobody holds the other end any more.
  close(ends[0]);
}

// Of the other 4 of the 12 bytes per pixel 3 are the whole picture's, where resize_to keeps it.
TEST(Sandbox, takes_eight_bytes_per_pixel_of_a_webp_whose_frame_is_smaller_than_its_canvas) {
  constexpr uint32_t kSide = 4000;
  const std::string picture = webp_on_canvas(kSide, kSide, 2, 2, kSide - 2, kSide - 2, {9, 8, 7, 255});
  SandboxOptions options = real_options();
  options.memory_bytes = size_t{8} * kSide * kSide + (size_t{16} << 20);
  EXPECT_EQ(checked(*started(options), picture), "ok 4000x4000 image/webp");
  options.memory_bytes = size_t{6} * kSide * kSide;
  EXPECT_EQ(checked(*started(options), picture), "decode_failed: WebP: the picture takes more memory than there is");
}

TEST(Sandbox, bounds_the_memory_of_a_child) {
  SandboxOptions options = planted_options();
  options.memory_bytes = size_t{64} << 20;
  const auto decoder = started(options);
  const std::string said = checked(*decoder, plant("memory"));
  ASSERT_TRUE(said.starts_with("decode_failed: ")) << said;
  const int mebibytes = std::stoi(said.substr(said.find(' ')));
  EXPECT_GT(mebibytes, 50);
  EXPECT_LE(mebibytes, 64);
  EXPECT_EQ(checked(*decoder, plant("bad_alloc")), "decode_failed: the picture takes more memory than a decoder may have");
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
}

// -- children that go wrong ------------------------------------------------------------------------------------------

class SandboxDeathTest : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(SandboxDeathTest, costs_one_picture) {
  const auto decoder = started(planted_options());
  const auto& [name, trouble] = GetParam();
  EXPECT_THAT(checked(*decoder, plant(name)), HasSubstr("decode_failed: " + trouble));
  EXPECT_EQ(checked(*decoder, plant("crash")), "decode_failed: the decoder died of this picture: SIGSEGV");
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
  EXPECT_EQ(children().size(), 1U);
}
INSTANTIATE_TEST_SUITE_P(Deaths, SandboxDeathTest,
                         testing::Values(std::pair{"crash", "the decoder died of this picture: SIGSEGV"},
                                         std::pair{"abort", "the decoder died of this picture: SIG"},
                                         std::pair{"exit", "the decoder died of this picture: exit code 0"},
                                         std::pair{"stack", "the decoder died of this picture: SIGSEGV"}, std::pair{"throw", "planted"}),
                         [](const auto& info) { return info.param.first; });

class SandboxHangTest : public testing::TestWithParam<std::string> {};

TEST_P(SandboxHangTest, costs_one_picture) {
  SandboxOptions options = planted_options();
  options.time_per_picture = seconds(2);
  const auto decoder = started(options);
  EXPECT_EQ(checked(*decoder, plant(GetParam())), "decode_failed: the decoder ran out of time with this picture");
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
}
// As a machine that slept, or a job that was suspended.
TEST(Sandbox, a_decoder_that_was_held_up_costs_no_picture) {
  SandboxOptions options = planted_options();
  options.time_per_picture = seconds(2);
  const auto decoder = started(options);
  kill(only_child(), SIGSTOP);
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
}

INSTANTIATE_TEST_SUITE_P(Hangs, SandboxHangTest, testing::Values("spin", "sleep"), [](const auto& info) { return info.param; });

class SandboxGarbageTest : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(SandboxGarbageTest, costs_one_picture) {
  const auto decoder = started(planted_options());
  const auto& [name, trouble] = GetParam();
  const ImageLimits limits{.min_size = 32, .max_aspect = 10};
  const std::string answer = checked(*decoder, plant(name, small_jpeg()), limits);
  EXPECT_THAT(answer, testing::StartsWith("decode_failed: the decoder answered "));
  EXPECT_THAT(answer, HasSubstr(trouble));
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
  EXPECT_EQ(children().size(), 1U);
}
INSTANTIATE_TEST_SUITE_P(Garbage, SandboxGarbageTest,
                         testing::Values(std::pair{"ahead", "out of turn (want, got): 2 3"},
                                         std::pair{"behind", "out of turn (want, got): 2 0"},
                                         std::pair{"nowhere", "out of turn (want, got): 2 2147483647"},
                                         std::pair{"success", "a success of 7"}, std::pair{"code", "an error of code 999"},
                                         std::pair{"foreign_code", "an error of code"}, std::pair{"detail", "4294967295 bytes of detail"},
                                         std::pair{"width", "a picture of 0x64"}, std::pair{"height", "a picture of 64x-64"},
                                         std::pair{"pixels", "a picture of 2147483647x2147483647"},
                                         std::pair{"small", "a picture of 31x64"}, std::pair{"aspect", "a picture of 4096x64"},
                                         std::pair{"format", "a picture of format 200"}, std::pair{"gif", "a picture of format 3"}),
                         [](const auto& info) { return info.param.first; });

TEST(Sandbox, believes_nothing_that_a_child_writes_elsewhere_in_the_shared_memory) {
  const auto decoder = started(planted_options());
  const pid_t child = only_child();
  const TransformOptions options{.resolution = 33};
  const Transformed want = transformed(*decoder_in_process(), small_jpeg(), options);
  EXPECT_EQ(transformed(*decoder, plant("scribble", small_jpeg()), options), want);
  EXPECT_EQ(transformed(*decoder, small_jpeg(), options), want);
  EXPECT_EQ(only_child(), child);
}

TEST(Sandbox, hands_no_control_characters_on) {
  EXPECT_EQ(checked(*started(planted_options()), plant("escapes")), "decode_failed: a?[2Jb\xEF\xBF\xBD?c");
}

TEST(Sandbox, replaces_a_child_that_somebody_killed_and_asks_again) {
  const auto decoder = started(planted_options());
  const pid_t idle = only_child();
  kill(idle, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(idle), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
  // Now at work: it is killed as soon as its processor time shows that it burns.
  const pid_t busy = only_child();
  std::jthread killer([busy] {
    clockid_t clock{};
    ASSERT_EQ(clock_getcpuclockid(busy, &clock), 0);
    for (timespec used{}; clock_gettime(clock, &used) == 0 && used.tv_sec == 0 && used.tv_nsec < 300'000'000;) {
      std::this_thread::yield();
    }
    kill(busy, SIGKILL);
  });
  EXPECT_EQ(checked(*decoder, plant("burn", small_jpeg())), checked(*decoder_in_process(), small_jpeg()));
  killer.join();
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));  // Also where it was killed after its picture.
  EXPECT_NE(only_child(), busy);
}

TEST(Sandbox, what_is_killed_again_and_again_costs_one_picture) {
  const auto decoder = started(planted_options());
  std::jthread killer([](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (const pid_t child : children()) {
        kill(child, SIGKILL);
      }
    }
  });
  const std::string answer = checked(*decoder, plant("spin"));
  killer.request_stop();
  killer.join();
  // Killed at its picture, or already when it was started, which is no fault of the picture.
  EXPECT_THAT(answer, HasSubstr("killed by somebody else or for lack of memory"));
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
}

TEST(Sandbox, the_signals_that_end_a_job_are_for_the_parent_to_obey) {
  const auto decoder = started(planted_options());
  const pid_t child = only_child();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE}) {
    kill(child, signal);
  }
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
  EXPECT_EQ(only_child(), child);
}

TEST(Sandbox, serves_another_thread_after_the_one_that_started_it) {
  std::unique_ptr<PictureDecoder> decoder;
  std::thread([&decoder] { decoder = started(planted_options()); }).join();
  EXPECT_EQ(checked(*decoder, small_jpeg()), checked(*decoder_in_process(), small_jpeg()));
  EXPECT_EQ(children().size(), 1U);
}

TEST(Sandbox, a_stop_ends_the_picture_under_way) {
  std::stop_source source;
  SandboxOptions options = planted_options();
  options.stop = source.get_token();
  const auto decoder = started(options);
  source.request_stop();
  EXPECT_EQ(checked(*decoder, plant("spin")), "lost: cancelled: stopped while a picture was decoded");
}

TEST(Sandbox, replaces_a_child_before_its_processor_time_is_used_up) {
  SandboxOptions options = planted_options();
  options.time_per_child = seconds(2);
  const auto decoder = started(options);
  const pid_t first = only_child();
  const std::string want = checked(*decoder_in_process(), small_jpeg());
  EXPECT_EQ(checked(*decoder, plant("burn_long", small_jpeg())), want);  // More than half of it.
  EXPECT_EQ(only_child(), first);
  EXPECT_EQ(checked(*decoder, small_jpeg()), want);
  EXPECT_NE(only_child(), first);
}

TEST(Sandbox, the_kernel_ends_a_child_whose_processor_time_is_used_up) {
  SandboxOptions options = planted_options();
  options.time_per_child = seconds(1);
  EXPECT_EQ(checked(*started(options), plant("spin")), "decode_failed: the decoder died of this picture: SIGXCPU");
}

// -- starts and ends -------------------------------------------------------------------------------------------------

TEST(Sandbox, leaves_neither_child_nor_zombie) {
  {
    const auto idle = started(planted_options());
    const auto used = started(real_options());
    checked(*used, small_jpeg());
    const auto bereft = started(planted_options());
    checked(*bereft, plant("crash"));
    EXPECT_EQ(children().size(), 2U);
  }
  errno = 0;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

StatusCode start_code(const SandboxOptions& options, const std::string& words) {
  const auto decoder = decoder_in_child(options);
  EXPECT_THAT(decoder.status().message(), HasSubstr(words));
  EXPECT_THAT(children(), testing::IsEmpty());
  return decoder.status().code();
}

TEST(Sandbox, says_what_is_wrong_with_its_program) {
  SandboxOptions options = real_options();
  options.program = "/nowhere/darkroom-decoder";
  EXPECT_EQ(start_code(options, "/nowhere/darkroom-decoder No such file"), StatusCode::kNotFound);
  options.program = "/etc/passwd";
  EXPECT_EQ(start_code(options, "/etc/passwd Permission denied"), StatusCode::kFailedPrecondition);
  options.program = "/bin/true";
  EXPECT_EQ(start_code(options, "no decoder that runs here and is of this version"), StatusCode::kFailedPrecondition);
  options.program = "/bin/cat";  // Reads the shared memory's text as a file name, and complains.
  EXPECT_EQ(start_code(options, "No such file or directory\" exit code 1"), StatusCode::kFailedPrecondition);
}

TEST(Sandbox, a_decoder_started_by_hand_says_so) {
  const std::string program = real_options().program;
  const std::string said =
      said_by_child(ChildStderr::kPipe, [&program] { std::fprintf(stderr, "%d", WEXITSTATUS(std::system((program + " 1").c_str()))); });
  EXPECT_EQ(said, "darkroom-decoder is started by darkroom of the same version, never by hand\n2");
}

TEST(Sandbox, names_the_first_bad_option) {
  SandboxOptions options = real_options();
  options.memory_bytes = 1000;
  EXPECT_EQ(start_code(options, "memory_bytes of at least 16777216, got: 1000"), StatusCode::kInvalidArgument);
  options = real_options();
  options.program = "";
  EXPECT_EQ(start_code(options, "path of darkroom-decoder"), StatusCode::kInvalidArgument);
  for (const int64_t count : {0, 600'001}) {
    options = real_options();
    options.time_per_picture = milliseconds(count);
    EXPECT_EQ(start_code(options, fmt::format("1..600000 ms, got: {}", count)), StatusCode::kInvalidArgument);
  }
  options = real_options();
  options.time_per_child = seconds(0);
  EXPECT_EQ(start_code(options, "time_per_child must be at least 1 s, got: 0"), StatusCode::kInvalidArgument);
  options = real_options();
  options.input_bytes = options.largest_input_bytes + 1;
  EXPECT_EQ(start_code(options, "got: 268435457"), StatusCode::kInvalidArgument);
}

// From now on, for ever, these system calls fail with EPERM in this process and in all that it starts.
void forbid(const std::vector<long>& calls) {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::abort();
  }
}

// What a process that may not make these calls is told when it wants a decoder, or else what `bytes` give there.
std::string told_where_forbidden(const std::vector<long>& calls, const std::string& bytes) {
  return said_by_child(ChildStderr::kPipe, [&] {
    forbid(calls);
    const auto protection = examine_sandbox(planted_options());
    std::string told = protection.is_ok() ? protection->missing : protection.status().to_string();
    if (protection.is_ok()) {
      told += " | " + checked(*decoder_in_child(planted_options()).value(), bytes);
    }
    std::fputs(told.c_str(), stderr);
  });
}

TEST(Sandbox, fails_where_neither_seccomp_nor_landlock_can_be_had) {
  const std::string told = told_where_forbidden({SYS_seccomp, SYS_landlock_create_ruleset}, "");
  EXPECT_THAT(told, testing::StartsWith("failed_precondition: cannot lock a decoder in"));
  EXPECT_THAT(told, HasSubstr("--no-sandbox"));
  EXPECT_THAT(told, HasSubstr("seccomp filter (Operation not permitted) and Landlock ruleset (Operation not permitted)"));
}

TEST(Sandbox, fails_where_no_limit_can_be_set) {
  EXPECT_THAT(told_where_forbidden({SYS_prlimit64, SYS_setrlimit}, ""),
              testing::StartsWith("failed_precondition: cannot limit what a decoder takes"));
}

TEST(Sandbox, goes_on_without_landlock_and_says_so) {
  for (const long call : {SYS_landlock_create_ruleset, SYS_landlock_restrict_self}) {
    EXPECT_EQ(told_where_forbidden({call}, plant("deeds")),
              "decoders run without Landlock: Landlock ruleset (Operation not permitted) | decode_failed: ");
  }
}

TEST(Sandbox, goes_on_without_seccomp_and_says_so) {
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) {
    GTEST_SKIP() << "this kernel has no Landlock";
  }
  EXPECT_EQ(told_where_forbidden({SYS_seccomp}, plant("deeds")),
            "decoders run without seccomp: seccomp filter (Operation not permitted) | decode_failed: ");
}

// Waits for a process that is not ours by birth, at most half a minute: how it ended.
int end_of(pid_t pid) {
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd process{descriptor, POLLIN, 0};
  const bool has_ended = descriptor >= 0 && poll(&process, 1, 30'000) == 1;
  EXPECT_TRUE(has_ended) << "a child lives on: " << pid;
  if (!has_ended) {
    kill(pid, SIGKILL);
  }
  int state = 0;
  EXPECT_EQ(waitpid(pid, &state, 0), pid);
  close(descriptor);
  return state;
}

// Starts a process that starts a decoder, asks it for `bytes` if there are any, and waits for ever. Both ids.
std::pair<pid_t, pid_t> start_parent_and_child(const std::string& bytes) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto decoder = decoder_in_child(planted_options());
    const std::set<pid_t> all = children();
    if (!decoder.is_ok() || all.size() != 1) {
      _exit(1);
    }
    const pid_t child = *all.begin();
    (void)!write(ends[1], &child, sizeof(child));
    if (!bytes.empty()) {
      checked(**decoder, bytes);
    }
    for (;;) {
      pause();
    }
  }
  EXPECT_GT(parent, 0);
  close(ends[1]);  // So that the end of a child that could not start is seen.
  pid_t child = -1;
  EXPECT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  close(ends[0]);
  return {parent, child};
}

TEST(Sandbox, a_killed_parent_leaves_no_child) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // So that orphans become ours.
  for (const std::string& bytes : {""s, plant("spin"), plant("sleep")}) {
    const auto [parent, child] = start_parent_and_child(bytes);
    ASSERT_GT(child, 0);
    kill(parent, SIGKILL);
    EXPECT_EQ(WTERMSIG(end_of(parent)), SIGKILL);
    const int end = end_of(child);
    EXPECT_TRUE(WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL) << end;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace darkroom
