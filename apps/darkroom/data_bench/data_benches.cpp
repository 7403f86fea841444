#include "data_benches.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "darkroom/core/random.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/transform.h"
#include "darkroom/text/clip_tokenizer.h"
#include "darkroom/web/fetch.h"
#include "resources.h"
#include "troubled_web/troubled_web.h"

namespace darkroom {
namespace {

using nlohmann::json;

constexpr int64_t kDefaultSide = 256;
constexpr std::array kPictures = {"astronaut", "chelsea", "coffee"};  // benchmarks/pictures: 600x825 pixels each.
constexpr int kNumCaptions = 2000;
constexpr int kNumRequests = 600;
constexpr int kRequestsInFlight = 16;  // As many as the peer has threads.

// Pieces of captions: common, rare and made-up words, numbers, other scripts, combining marks, symbols, an entity.
constexpr std::array<std::string_view, 48> kPieces = {"a",
                                                      "photo",
                                                      "of",
                                                      "the",
                                                      "red",
                                                      "vintage",
                                                      "bicycle",
                                                      "in",
                                                      "front",
                                                      "old",
                                                      "brick",
                                                      "house",
                                                      "and",
                                                      "1969",
                                                      "HDTV",
                                                      "4k",
                                                      "wallpaper",
                                                      "chiaroscuro",
                                                      "antediluvian",
                                                      "zyzzyva",
                                                      "Rhombicosidodecahedron",
                                                      "iPhone's",
                                                      "don't",
                                                      "e-commerce",
                                                      "$12.99",
                                                      "#throwback",
                                                      "50%",
                                                      "sun-drenched",
                                                      "caf\u00e9",
                                                      "na\u00efve",
                                                      "\u00dcber",
                                                      "stra\u00dfe",
                                                      "\u041c\u043e\u0441\u043a\u0432\u0430",
                                                      "\u6771\u4eac",
                                                      "\u5bcc\u58eb\u5c71",
                                                      "\uc11c\uc6b8",
                                                      "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
                                                      "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
                                                      "\u2764\ufe0f",
                                                      "\U0001F600",
                                                      "\U0001F468\u200D\U0001F469\u200D\U0001F467",
                                                      "e\u0301",
                                                      "\u2014",
                                                      "|",
                                                      "...",
                                                      "&amp;",
                                                      "jpg",
                                                      "x"};

// What made-up words are put together of, as in benchmarks/bench_tokens.py.
constexpr std::array kSyllables = {"ba", "ce", "di", "fo",   "gu",  "ka",  "le",  "mi",   "no",   "pu",   "ra", "se", "ti", "vo", "wu",
                                   "xa", "ye", "zi", "stra", "kno", "phy", "ght", "schm", "tion", "ngla", "qu", "oo", "ei", "rd"};

/// Of all benchmarks here: a folder for what the peers read, removed at the end.
class SharedFolder {
 public:
  static Result<std::unique_ptr<SharedFolder>> make() {
    std::string pattern = (std::filesystem::temp_directory_path() / "darkroom-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return Status::unavailable("cannot make a folder for the benchmark's inputs:", pattern);
    }
    return std::unique_ptr<SharedFolder>(new SharedFolder(pattern));
  }
  ~SharedFolder() {
    std::error_code ignored;  // What stays is small and lies in the system's temporary folder.
    std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  const std::string& path() const { return path_; }
  Status write(const std::string& name, const std::string& text) const {
    std::ofstream file(path_ + "/" + name, std::ios::binary);
    file << text;
    file.close();
    return file.fail() ? Status::unavailable("cannot write the benchmark's input:", path_ + "/" + name) : Status::ok();
  }

 private:
  explicit SharedFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Status check_options(const BenchOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  if (options.device != "cpu" && options.device != "auto") {
    return Status::invalid_argument("this benchmark runs on the CPU only, so --device must be cpu or auto, got:", options.device);
  }
  if (options.dtype != "float32") {
    return Status::invalid_argument("this benchmark has no network, so --dtype must stay float32, got:", options.dtype);
  }
  if (options.threads != 1) {
    return Status::invalid_argument("this benchmark measures one thread, so --threads must be 1, got:", options.threads);
  }
  return Status::ok();
}

struct Pictures {
  std::vector<std::string> files;  // Encoded.
  std::vector<std::string> paths;

  static Result<Pictures> load() {
    Pictures pictures;
    for (const char* name : kPictures) {
      DARKROOM_ASSIGN_OR_RETURN(pictures.paths.emplace_back(), find_resource(fmt::format("benchmarks/pictures/{}.jpg", name)));
      DARKROOM_ASSIGN_OR_RETURN(pictures.files.emplace_back(), read_file(local_files(), pictures.paths.back()));
    }
    return pictures;
  }
  std::string list_of_paths() const {
    std::string list;
    for (const std::string& path : paths) {
      list += path + "\n";
    }
    return list;
  }
};

template <typename Value>
std::string digest_of(const std::vector<std::vector<Value>>& results) {
  Sha256 digest;
  for (const auto& result : results) {
    digest.update(std::as_bytes(std::span(result)));
  }
  return digest.finish_hex();
}

/// A benchmark that makes something of each picture at a time.
struct PictureBench {
  BenchOptions options;  // With the resolution that holds.
  Pictures pictures;
  std::unique_ptr<SharedFolder> folder;  // Lists the pictures for the peers.

  static Result<PictureBench> set_up(const BenchOptions& given) {
    DARKROOM_RETURN_IF_ERROR(check_options(given));
    PictureBench bench;
    bench.options = given;
    bench.options.resolution = given.resolution == 0 ? kDefaultSide : given.resolution;
    DARKROOM_ASSIGN_OR_RETURN(bench.pictures, Pictures::load());
    DARKROOM_ASSIGN_OR_RETURN(bench.folder, SharedFolder::make());
    DARKROOM_RETURN_IF_ERROR(bench.folder->write("pictures.txt", bench.pictures.list_of_paths()));
    return bench;
  }

  // `make(i)` is what is timed: the result of picture i, a vector of numbers.
  template <typename Make>
  Result<json> measure(const std::string& name, const Make& make) const {
    std::vector<decltype(make(size_t{0}))> results(pictures.files.size());
    const auto run = [&] {
      for (size_t i = 0; i < results.size(); ++i) {
        results[i] = make(i);
      }
    };
    DARKROOM_ASSIGN_OR_RETURN(json figures, measure_beside_peers({.name = name,
                                                                  .unit = "images",
                                                                  .units = static_cast<double>(results.size()),
                                                                  .run = run,
                                                                  .digest = [&] { return digest_of(results); }},
                                                                 peers_command(name, folder->path(), options), options));
    figures["resolution"] = options.resolution;
    return figures;
  }
};

Result<json> bench_transform(const BenchOptions& given) {
  DARKROOM_ASSIGN_OR_RETURN(const PictureBench bench, PictureBench::set_up(given));
  const TransformOptions transform{.resolution = static_cast<int>(bench.options.resolution)};
  DARKROOM_RETURN_IF_ERROR(transform.validate());
  return bench.measure("transform", [&](size_t i) {
    return transform_image(std::as_bytes(std::span(bench.pictures.files[i])), transform, ImageLimits{}).value().chw;
  });
}

Result<json> bench_resize(const BenchOptions& given) {
  DARKROOM_ASSIGN_OR_RETURN(const PictureBench bench, PictureBench::set_up(given));
  std::vector<Image> images;
  for (const std::string& file : bench.pictures.files) {
    images.push_back(decode_image(std::as_bytes(std::span(file)), ImageLimits{}).value());
  }
  const int64_t side = bench.options.resolution;
  return bench.measure("resize", [&](size_t i) {
    const Image& image = images[i];
    const int64_t width = image.width <= image.height ? side : side * image.width / image.height;
    const int64_t height = image.width <= image.height ? side * image.height / image.width : side;
    return resize(image, static_cast<int>(width), static_cast<int>(height), Filter::kBilinear).pixels;
  });
}

Result<json> bench_tokenize(const BenchOptions& options) {
  DARKROOM_RETURN_IF_ERROR(check_options(options));
  DARKROOM_ASSIGN_OR_RETURN(const std::string tokenizer_folder, find_resource("models/tiny/tokenizer"));
  DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer, ClipTokenizer::load(local_files(), tokenizer_folder, TokenizerDialect::kHuggingFace));
  const std::vector<std::string> captions = draw_captions(options.seed);
  DARKROOM_ASSIGN_OR_RETURN(const auto folder, SharedFolder::make());
  std::string lines;
  for (const std::string& caption : captions) {
    lines += caption + "\n";
  }
  DARKROOM_RETURN_IF_ERROR(folder->write("captions.txt", lines));
  DARKROOM_RETURN_IF_ERROR(folder->write("tokenizer.txt", tokenizer_folder));
  constexpr size_t kLength = ClipTokenizer::kContextLength;
  std::vector<std::vector<int32_t>> results(1, std::vector<int32_t>(captions.size() * kLength));
  const auto run = [&] {
    for (size_t i = 0; i < captions.size(); ++i) {
      tokenizer->encode(captions[i], std::span(results[0]).subspan(i * kLength, kLength));
    }
  };
  return measure_beside_peers({.name = "tokenize",
                               .unit = "captions",
                               .units = static_cast<double>(captions.size()),
                               .run = run,
                               .digest = [&] { return digest_of(results); }},
                              peers_command("tokenize", folder->path(), options), options);
}

/// Fetches every URL, `kRequestsInFlight` at a time, into `bodies`; a failed one stays empty, which the caller finds.
void fetch_all(Fetcher& fetcher, const std::vector<std::string>& urls, std::vector<std::string>& bodies) {
  size_t num_submitted = 0;
  for (size_t num_taken = 0; num_taken < urls.size();) {
    while (num_submitted < urls.size() && num_submitted - num_taken < kRequestsInFlight) {
      fetcher.submit({num_submitted, urls[num_submitted]});
      ++num_submitted;
    }
    std::optional<FetchReply> reply = fetcher.next();
    if (!reply) {
      return;
    }
    bodies[reply->id] = reply->body.is_ok() ? *std::move(reply->body) : std::string();
    ++num_taken;
  }
}

Result<json> bench_fetch(const BenchOptions& options) {
  DARKROOM_RETURN_IF_ERROR(check_options(options));
  DARKROOM_ASSIGN_OR_RETURN(const Pictures pictures, Pictures::load());
  DARKROOM_ASSIGN_OR_RETURN(const auto folder, SharedFolder::make());
  json routes = json::object();
  for (size_t i = 0; i < pictures.files.size(); ++i) {
    const std::string name = fmt::format("{}.jpg", kPictures[i]);
    DARKROOM_RETURN_IF_ERROR(folder->write(name, pictures.files[i]));
    routes["/" + name] = {{"file", name}};
  }
  DARKROOM_RETURN_IF_ERROR(folder->write("web.json", json{{"routes", routes}}.dump()));
  DARKROOM_ASSIGN_OR_RETURN(const auto web, TroubledWeb::start(folder->path()));
  std::vector<std::string> urls;
  std::string lines;
  int64_t want_bytes = 0;
  for (int i = 0; i < kNumRequests; ++i) {
    const size_t picture = static_cast<size_t>(i) % pictures.files.size();
    urls.push_back(fmt::format("{}/{}.jpg", web->url(), kPictures[picture]));
    lines += urls.back() + "\n";
    want_bytes += static_cast<int64_t>(pictures.files[picture].size());
  }
  DARKROOM_RETURN_IF_ERROR(folder->write("urls.txt", lines));
  FetchOptions fetch;
  fetch.num_concurrent = kRequestsInFlight;
  DARKROOM_ASSIGN_OR_RETURN(fetch.allow_private.emplace_back(), AllowedNetwork::parse(fmt::format("127.0.0.1:{}", web->port())));
  DARKROOM_ASSIGN_OR_RETURN(const auto fetcher, Fetcher::create(fetch));
  std::vector<std::string> bodies(urls.size());
  const auto digest = [&] {
    Sha256 state;
    for (const std::string& body : bodies) {
      state.update(body);
    }
    return state.finish_hex();
  };
  DARKROOM_ASSIGN_OR_RETURN(json figures, measure_beside_peers({.name = "fetch",
                                                                .unit = "requests",
                                                                .units = static_cast<double>(urls.size()),
                                                                .is_on_the_wall_clock = true,
                                                                .run = [&] { fetch_all(*fetcher, urls, bodies); },
                                                                .digest = digest},
                                                               peers_command("fetch", folder->path(), options), options));
  int64_t got_bytes = 0;
  for (const std::string& body : bodies) {
    got_bytes += static_cast<int64_t>(body.size());
  }
  if (got_bytes != want_bytes) {
    return Status::internal("not every body arrived whole from the loopback server (bytes wanted, got):", want_bytes, got_bytes);
  }
  figures["in_flight"] = kRequestsInFlight;
  return figures;
}

constexpr std::array kDataBenches = {
    Bench{"transform", "pictures of 600x825: decode, resize, crop, normalise", bench_transform},
    Bench{"resize", "pictures of 600x825 to --resolution, bilinear", bench_resize},
    Bench{"tokenize", "captions to token ids, dialect hf", bench_tokenize},
    Bench{"fetch", "pictures over HTTP from a server on loopback, 16 requests in flight", bench_fetch},
};

}  // namespace

std::span<const Bench> data_benches() { return kDataBenches; }

std::vector<std::string> draw_captions(uint64_t seed) {
  std::vector<std::string> captions;
  for (int i = 0; i < kNumCaptions; ++i) {
    const CounterRandom random(seed, Purpose::kShuffle, 0, fmt::format("bench/caption/{}", i));
    uint64_t num_draws = 0;
    const auto draw = [&](size_t bound) { return random.below(num_draws++, static_cast<uint32_t>(bound)); };
    std::string& caption = captions.emplace_back();
    for (uint32_t pieces_left = 3 + draw(13); pieces_left > 0; --pieces_left) {
      caption += caption.empty() ? "" : " ";
      if (draw(3) > 0) {
        caption += kPieces[draw(kPieces.size())];
        continue;
      }
      for (uint32_t syllables_left = 2 + draw(4); syllables_left > 0; --syllables_left) {
        caption += kSyllables[draw(kSyllables.size())];
      }
    }
  }
  return captions;
}

}  // namespace darkroom
