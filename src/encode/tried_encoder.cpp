#include "tried_encoder.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/core/used_up_memory.h"

namespace darkroom {
namespace {

using TryClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTryFor{2};
constexpr int kMostTries = 64;

PreparedRow grey_row(const RowEncoder& encoder) {
  constexpr uint8_t kGrey = 128;
  const int side = encoder.options().transform.resolution;
  return {.key = "grey",
          .caption = "",
          .width = side,
          .height = side,
          .square = Image::filled(side, side, 3, kGrey),
          .ids = std::vector<int32_t>(ClipTokenizer::kContextLength, 0)};
}

TriedEncoder time_rows(const RowEncoder& encoder) {
  const std::vector<PreparedRow> rows(static_cast<size_t>(encoder.options().rows_together), grey_row(encoder));
  (void)encoder.encode(rows);
  TriedEncoder tried;
  const TryClock::time_point begin = TryClock::now();
  for (int i = 0; i < kMostTries && (i == 0 || TryClock::now() - begin < kTryFor); ++i) {
    const TryClock::time_point start = TryClock::now();
    (void)encoder.encode(rows);
    const double rate = static_cast<double>(rows.size()) / std::max(1e-9, std::chrono::duration<double>(TryClock::now() - start).count());
    tried.slowest = i == 0 ? rate : std::min(tried.slowest, rate);
    tried.fastest = std::max(tried.fastest, rate);
  }
  return tried;
}

}  // namespace

Status run_apart(int num_threads, const char* doing, const std::function<void()>& work) {
  std::packaged_task<void()> task([&] {
    at::set_num_threads(num_threads);
    work();
  });
  std::future<void> done = task.get_future();
  try {
    std::jthread(std::move(task)).join();
    done.get();
    return Status::ok();
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted(fmt::format("no thread can be started for {}; let there be more processes (ulimit -u):", doing),
                                      failure.what());
  } catch (const std::exception& failure) {
    return caught_failure("it failed:", failure).with_context(doing);
  }
}

Result<TriedEncoder> try_encoder(const RowEncoder& encoder, int num_threads) {
  TriedEncoder tried;
  DARKROOM_RETURN_IF_ERROR(run_apart(num_threads, "trying the encoder", [&] { tried = time_rows(encoder); }));
  return tried;
}

}  // namespace darkroom
