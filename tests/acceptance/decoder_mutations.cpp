// Damaged pictures and bombs through the sandboxed decoder, for tests/acceptance/decoder.py. Prints one line of JSON.
// usage: decoder_mutations mutate DECODER FOLDER FIRST COUNT SEED    mutations FIRST, FIRST + 1, ... of the files of FOLDER
//        decoder_mutations decode DECODER check|transform|resize FILE   the file as it is, by a decoder as the jobs open it
// Exits 1 when the decoder itself is lost, which a picture must never do.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/image/sandbox.h"
#include "support/byte_mutations.h"

namespace darkroom {
namespace {

namespace fs = std::filesystem;

std::string read_bytes(const fs::path& path) {
  std::string bytes(fs::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

/// In the order of their names.
std::vector<std::string> read_pictures(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_bytes(entry.path());
  }
  std::vector<std::string> pictures;
  std::ranges::transform(files, std::back_inserter(pictures), [](auto& file) { return std::move(file.second); });
  return pictures;
}

std::unique_ptr<PictureDecoder> started(Result<std::unique_ptr<PictureDecoder>> decoder) {
  if (!decoder.is_ok()) {
    std::fprintf(stderr, "%s\n", decoder.status().to_string().c_str());
    std::exit(1);
  }
  return *std::move(decoder);
}

template <typename Value>
std::string outcome_of(const Result<RowResult<Value>>& result) {
  if (!result.is_ok()) {
    std::fprintf(stderr, "the decoder is lost: %s\n", result.status().to_string().c_str());
    std::exit(1);
  }
  return result->is_ok() ? "good" : result->error().name();
}

nlohmann::json run_mutations(const std::string& program, const std::string& folder, uint64_t first, uint64_t count, uint64_t seed) {
  const std::vector<std::string> pictures = read_pictures(folder);
  const auto decoder =
      started(decoder_in_child({.program = program, .memory_bytes = size_t{256} << 20, .time_per_picture = std::chrono::seconds(5)}));
  const TransformOptions options{.resolution = 32};
  std::vector<uint8_t> square(square_bytes(options));
  const ImageLimits limits{.min_size = 1, .max_pixels = 16'000'000};
  std::map<std::string, int64_t> outcomes;
  for (uint64_t number = first; number < first + count; ++number) {
    const std::string bytes = mutate_bytes(pictures, seed, number);
    const auto view = std::as_bytes(std::span(bytes));
    ++outcomes[number % 2 == 0 ? outcome_of(decoder->check(view, limits))
                               : outcome_of(decoder->transform(view, options, limits, CropDraw{}, square))];
  }
  return outcomes;
}

std::string run_task(PictureDecoder& decoder, const std::string& task, std::span<const std::byte> bytes) {
  if (task == "check") {
    return outcome_of(decoder.check(bytes, kAnySize));
  }
  const TransformOptions options{.resolution = 256};
  std::vector<uint8_t> square(square_bytes(options));
  if (task == "transform") {
    return outcome_of(decoder.transform(bytes, options, kAnySize, CropDraw{}, square));
  }
  return outcome_of(decoder.resize_to(bytes, {.width = options.resolution, .height = options.resolution}, kAnySize, square));
}

/// By a decoder as the jobs open it, with their limit of pixels and its memory. One picture per process: the kernel begins the count of a
/// child's peak with what its parent had when it started it.
nlohmann::json run_decode(const std::string& program, const std::string& task, const std::string& path) {
  const std::string bytes = read_bytes(path);
  auto decoder = started(open_decoder(program, kAnySize, {}));
  const std::string outcome = run_task(*decoder, task, std::as_bytes(std::span(bytes)));
  decoder.reset();
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const double seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  return {{"outcome", outcome},
          {"cpu_seconds", seconds},
          {"bytes", bytes.size()},
          {"granted_mb", static_cast<double>(sandbox_for(program, kAnySize, {}).memory_bytes) / 1e6},
          {"largest_child_mb", static_cast<double>(usage.ru_maxrss) * 1024 / 1e6}};
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 6 && words[0] == "mutate") {
    std::printf(
        "%s\n",
        darkroom::run_mutations(words[1], words[2], std::stoull(words[3]), std::stoull(words[4]), std::stoull(words[5])).dump().c_str());
    return 0;
  }
  if (words.size() == 4 && words[0] == "decode" && (words[2] == "check" || words[2] == "transform" || words[2] == "resize")) {
    std::printf("%s\n", darkroom::run_decode(words[1], words[2], words[3]).dump().c_str());
    return 0;
  }
  std::fprintf(stderr, "usage: decoder_mutations mutate DECODER FOLDER FIRST COUNT SEED | decode DECODER check|transform|resize FILE\n");
  return 2;
}
