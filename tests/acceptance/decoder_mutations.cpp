// Damaged pictures and bombs through the sandboxed decoder, for tests/acceptance/decoder.py. Prints one line of JSON.
// usage: decoder_mutations mutate DECODER FOLDER FIRST COUNT SEED    mutations FIRST, FIRST + 1, ... of the files of FOLDER
//        decoder_mutations bombs DECODER FOLDER                      each file as it is, each in a child of its own
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
#include <random>
#include <span>
#include <string>
#include <vector>

#include "darkroom/image/sandbox.h"

namespace darkroom {
namespace {

namespace fs = std::filesystem;

struct PictureFile {
  std::string name;
  std::string bytes;
};

std::vector<PictureFile> read_pictures(const std::string& folder) {
  std::vector<PictureFile> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files.push_back({entry.path().filename().string(), std::string(std::istreambuf_iterator<char>(file), {})});
  }
  std::ranges::sort(files, {}, &PictureFile::name);
  return files;
}

/// Mutation `number` is the same on every machine: mt19937_64 and plain arithmetic.
std::string mutate(const std::vector<PictureFile>& files, uint64_t seed, uint64_t number) {
  std::mt19937_64 chance(seed * 1'000'003 + number);
  std::string bytes = files[chance() % files.size()].bytes;
  const uint64_t num_changes = 1 + chance() % 6;
  for (uint64_t change = 0; change < num_changes && !bytes.empty(); ++change) {
    // Half of the changes hit the headers.
    const size_t at = chance() % 2 == 0 ? chance() % std::min<size_t>(bytes.size(), 600) : chance() % bytes.size();
    switch (chance() % 8) {
      case 0:
        bytes[at] = static_cast<char>(chance());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (chance() % 8)));
        break;
      case 2:
        bytes[at] = chance() % 2 == 0 ? '\0' : '\xFF';
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(at, bytes.substr(chance() % bytes.size(), chance() % 64));
        break;
      case 5:
        bytes.erase(at, chance() % 64);
        break;
      case 6: {
        const std::string& other = files[chance() % files.size()].bytes;
        bytes = bytes.substr(0, at) + other.substr(std::min<size_t>(other.size(), chance() % (other.size() + 1)));
        break;
      }
      default:
        for (size_t i = at; i < std::min(bytes.size(), at + 4); ++i) {
          bytes[i] = static_cast<char>(chance());
        }
    }
  }
  return bytes;
}

std::unique_ptr<PictureDecoder> start_decoder(const std::string& program, size_t memory_bytes) {
  auto decoder = decoder_in_child({.program = program, .memory_bytes = memory_bytes, .time_per_picture = std::chrono::seconds(5)});
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
  const std::vector<PictureFile> files = read_pictures(folder);
  const auto decoder = start_decoder(program, size_t{256} << 20);
  const TransformOptions options{.resolution = 32};
  std::vector<uint8_t> square(square_bytes(options));
  const ImageLimits limits{.min_size = 1, .max_pixels = 16'000'000};
  std::map<std::string, int64_t> outcomes;
  for (uint64_t number = first; number < first + count; ++number) {
    const std::string bytes = mutate(files, seed, number);
    const auto view = std::as_bytes(std::span(bytes));
    ++outcomes[number % 2 == 0 ? outcome_of(decoder->check(view, limits))
                               : outcome_of(decoder->transform(view, options, limits, CropDraw{}, square))];
  }
  return outcomes;
}

nlohmann::json run_bombs(const std::string& program, const std::string& folder) {
  nlohmann::json bombs = nlohmann::json::array();
  for (const PictureFile& file : read_pictures(folder)) {
    rusage before{};
    getrusage(RUSAGE_CHILDREN, &before);
    auto decoder = start_decoder(program, size_t{256} << 20);
    const std::string outcome = outcome_of(decoder->check(std::as_bytes(std::span(file.bytes)), ImageLimits{}));
    decoder.reset();
    rusage after{};
    getrusage(RUSAGE_CHILDREN, &after);
    const auto seconds = [](const rusage& usage) {
      return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
             static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    };
    bombs.push_back({{"name", file.name},
                     {"outcome", outcome},
                     {"cpu_seconds", seconds(after) - seconds(before)},
                     {"bytes", file.bytes.size()},
                     {"largest_child_mb", static_cast<double>(after.ru_maxrss) * 1024 / 1e6}});
  }
  rusage all{};
  getrusage(RUSAGE_CHILDREN, &all);
  return {{"bombs", bombs}, {"largest_child_mb", static_cast<double>(all.ru_maxrss) * 1024 / 1e6}};
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
  if (words.size() == 3 && words[0] == "bombs") {
    std::printf("%s\n", darkroom::run_bombs(words[1], words[2]).dump().c_str());
    return 0;
  }
  std::fprintf(stderr, "usage: decoder_mutations mutate DECODER FOLDER FIRST COUNT SEED | bombs DECODER FOLDER\n");
  return 2;
}
