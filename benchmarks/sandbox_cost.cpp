#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/median.h"
#include "darkroom/image/sandbox.h"

// What decoding in a sandbox costs beside decoding in this process:
//   sandbox_cost [--judge] DECODER RESOLUTION ROUNDS JPEG...
// A round transforms all pictures here and all of them in a child, which is started anew for each round; every other round
// begins with the child. Prints the ratio there / here of a clock on the wall and of processor time (this process and its
// children together): min, median, max. Before that, every square must be equal. --judge: exit code 1 where the median of
// processor time is above kGoal.
namespace darkroom {
namespace {

constexpr ImageLimits kLimits{.min_size = 1};
constexpr double kGoal = 1.10;

struct Spent {
  double wall = 0;
  double processor = 0;
};

double seconds_of(const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6; }

// Children count once they have ended.
Spent spent_until_now() {
  Spent spent;
  spent.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    spent.processor += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  }
  return spent;
}

using Pictures = std::vector<std::string>;

std::vector<uint8_t> transform_all(PictureDecoder& decoder, const Pictures& pictures, const TransformOptions& options) {
  const size_t size = square_bytes(options);
  std::vector<uint8_t> squares(size * pictures.size());
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto result =
        decoder.transform(std::as_bytes(std::span(pictures[i])), options, kLimits, {}, std::span(squares).subspan(i * size, size));
    DARKROOM_CHECK(result.value().is_ok(), "a picture cannot be decoded:", result.value().error().detail);
  }
  return squares;
}

template <typename Work>
Spent time_of(const Work& work) {
  const Spent start = spent_until_now();
  work();
  const Spent end = spent_until_now();
  return {.wall = end.wall - start.wall, .processor = end.processor - start.processor};
}

void print_ratios(const char* what, std::vector<double> ratios) {
  const auto [least, most] = std::ranges::minmax(ratios);
  std::printf("%-15s there / here: min %.3f median %.3f max %.3f\n", what, least, median(ratios), most);
}

// The median ratio of processor time.
double run(const std::string& program, int resolution, int num_rounds, const std::vector<std::string>& paths) {
  Pictures pictures;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    pictures.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const TransformOptions options{.resolution = resolution};
  const SandboxOptions sandbox{.program = program};
  const auto here = decoder_in_process();
  DARKROOM_CHECK(transform_all(*here, pictures, options) == transform_all(*decoder_in_child(sandbox).value(), pictures, options),
                 "the sandbox gives other pixels");
  std::vector<double> wall;
  std::vector<double> processor;
  for (int round = 0; round < num_rounds; ++round) {
    const auto transform_here = [&] { transform_all(*here, pictures, options); };
    const auto transform_there = [&] { transform_all(*decoder_in_child(sandbox).value(), pictures, options); };
    const bool is_child_first = round % 2 == 1;
    const Spent first = is_child_first ? time_of(transform_there) : time_of(transform_here);
    const Spent second = is_child_first ? time_of(transform_here) : time_of(transform_there);
    const Spent& in_process = is_child_first ? second : first;
    const Spent& in_child = is_child_first ? first : second;
    wall.push_back(in_child.wall / in_process.wall);
    processor.push_back(in_child.processor / in_process.processor);
  }
  std::printf("%zu pictures to %dx%d, %d rounds\n", pictures.size(), resolution, resolution, num_rounds);
  print_ratios("wall clock", wall);
  print_ratios("processor time", processor);
  return median(processor);
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool is_judged = std::erase(words, "--judge") > 0;
  if (words.size() < 4) {
    std::fputs("usage: sandbox_cost [--judge] DECODER RESOLUTION ROUNDS JPEG...\n", stderr);
    return 2;
  }
  const double ratio =
      darkroom::run(words[0], std::atoi(words[1].c_str()), std::max(1, std::atoi(words[2].c_str())), {words.begin() + 3, words.end()});
  if (is_judged && ratio > darkroom::kGoal) {
    std::printf("processor time: the median is above %.2f\n", darkroom::kGoal);
    return 1;
  }
  return 0;
}
