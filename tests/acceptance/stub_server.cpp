// The server of `darkroom serve` with a stub for its model, for the acceptance checks (endpoint_load.py): a network call takes the same
// time however many pictures it has, and the first two pixels of a picture are the numbers of its first and last call (red x 65,536 + green
// x 256 + blue). Says where it listens on stderr and serves until its input ends.
//
// usage: stub_server CALL_MS MAX_BATCH QUEUE_COST      QUEUE_COST: StepBatcherOptions::queue_cost
//
// Its input: "hold N" lets calls go on up to the N-th; answered by "held", and by N once the next one waits, or by "idle" where none does
// for a minute. "go" lets them all go on; answered by "go".

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "darkroom/core/metrics.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/serve/http_server.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/painting_service.h"
#include "darkroom/serve/step_batcher.h"
#include "darkroom/web/metrics_server.h"

namespace darkroom {
namespace {

constexpr int kSide = 64;
constexpr std::chrono::hours kDeadline{1};
constexpr std::chrono::minutes kPatience{1};

class FixedTimeEngine final : public StepEngine {
 public:
  explicit FixedTimeEngine(std::chrono::milliseconds time_of_call) : time_of_call_(time_of_call) {}

  Status check(const PictureSpec& /*spec*/) const override { return Status::ok(); }
  UnreadTexts unread(const PictureSpec& /*spec*/) const override { return {}; }
  Result<std::unique_ptr<EnginePicture>> begin(const PictureSpec& spec) override {
    return std::unique_ptr<EnginePicture>(std::make_unique<Picture>(spec));
  }

  void step(std::span<EnginePicture* const> pictures) override {
    {
      std::unique_lock lock(mutex_);
      is_waiting_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return num_calls_ < most_calls_; });
      is_waiting_ = false;
      ++num_calls_;
    }
    std::this_thread::sleep_for(time_of_call_);
    for (EnginePicture* picture : pictures) {
      auto& work = static_cast<Picture&>(*picture);
      --work.calls_left;
      work.first_call = work.first_call == 0 ? num_calls_ : work.first_call;
      work.last_call = num_calls_;
    }
  }

  Image preview(const EnginePicture& /*picture*/) override { return Image::filled(kMaxPreviewSide / 8, kMaxPreviewSide / 8, 3); }

  Result<Image> finish(const EnginePicture& picture) override {
    const auto& work = static_cast<const Picture&>(picture);
    Image image = Image::filled(work.width, work.height, 3, static_cast<uint8_t>(work.seed));
    uint8_t* byte = image.row(0);
    for (const uint64_t call : {work.first_call, work.last_call}) {
      for (const int shift : {16, 8, 0}) {
        *byte++ = static_cast<uint8_t>(call >> shift);
      }
    }
    return image;
  }

  void let_go_on(uint64_t most_calls) {
    const std::lock_guard lock(mutex_);
    most_calls_ = most_calls;
    changed_.notify_all();
  }
  /// Whether a call waits that is one more than so many. Waits for it for a while.
  bool await_held() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [this] { return is_waiting_ && num_calls_ >= most_calls_; });
  }

 private:
  struct Picture final : EnginePicture {
    explicit Picture(const PictureSpec& spec)
        : width(spec.width), height(spec.height), seed(spec.seed), calls_left(static_cast<size_t>(spec.num_steps_taken())) {}
    size_t num_calls_left() const override { return calls_left; }
    int width;
    int height;
    uint64_t seed;
    size_t calls_left;
    uint64_t first_call = 0;
    uint64_t last_call = 0;
  };

  const std::chrono::milliseconds time_of_call_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t num_calls_ = 0;  // Written by the batcher's thread alone.
  uint64_t most_calls_ = UINT64_MAX;
  bool is_waiting_ = false;
};

void obey(FixedTimeEngine& engine) {
  std::string word;
  while (std::cin >> word) {
    if (word == "go") {
      engine.let_go_on(UINT64_MAX);
      std::cout << "go" << std::endl;
      continue;
    }
    uint64_t most_calls = 0;
    std::cin >> most_calls;
    engine.let_go_on(most_calls);
    std::cout << "held" << std::endl;
    std::cout << (engine.await_held() ? std::to_string(most_calls) : "idle") << std::endl;
  }
  engine.let_go_on(UINT64_MAX);
}

Status serve(std::chrono::milliseconds time_of_call, const StepBatcherOptions& batching) {
  DARKROOM_RETURN_IF_ERROR(batching.validate());
  MetricsRegistry metrics;
  FixedTimeEngine engine(time_of_call);
  std::optional<PaintingService> service;  // Goes behind the batcher, whose orders answer through it.
  StepBatcher batcher(engine, batching, metrics);
  PictureIntake intake({}, [](const std::stop_token&) { return Result<std::unique_ptr<PictureDecoder>>(decoder_in_process()); });
  service.emplace(PaintingServiceOptions{.model = {.name = "stub", .native_size = kSide, .samplers = {"ddim"}, .default_sampler = "ddim"},
                                         .deadline = kDeadline,
                                         .intake = &intake},
                  batcher, metrics);
  DARKROOM_ASSIGN_OR_RETURN(const SocketAddress address, parse_metrics_address("0"));
  DARKROOM_ASSIGN_OR_RETURN(auto server, HttpServer::start(*service, {.address = address, .max_body_bytes = kMaxPictureBodyBytes}));
  std::cerr << fmt::format("serving stub at http://{}", server->address().to_string()) << std::endl;
  obey(engine);
  server.reset();
  service->stop_finishing();
  return Status::ok();
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  constexpr int kWords = 4;
  if (argc != kWords) {
    std::cerr << "usage: stub_server CALL_MS MAX_BATCH QUEUE_COST\n";
    return 2;
  }
  const darkroom::Status ended =
      darkroom::serve(std::chrono::milliseconds(std::atoll(argv[1])), {.max_batch = std::atoi(argv[2]), .queue_cost = std::atof(argv[3])});
  if (!ended.is_ok()) {
    std::cerr << ended.to_string() << '\n';
    return 1;
  }
  return 0;
}
