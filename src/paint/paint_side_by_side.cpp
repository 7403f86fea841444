#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <system_error>
#include <utility>

#include "darkroom/core/machine.h"
#include "darkroom/paint/sample_job.h"
#include "side_by_side.h"

namespace darkroom {
namespace {

// The part of a request that shows pictures first, first + 1, ..., first + count - 1. `factor` is the painter's.
PaintRequest part_of(const PaintRequest& request, int64_t first, int64_t count, int factor) {
  const auto cut = [&](const auto& values) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
    return std::decay_t<decltype(values)>(begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  PaintRequest part = request;
  part.prompts = cut(request.prompts);
  part.seeds = request.seeds.empty() ? request.seeds : cut(request.seeds);
  part.init_images = request.init_images.size() == request.prompts.size() ? cut(request.init_images) : request.init_images;
  if (request.unit_noise_nchw.defined()) {
    part.unit_noise_nchw = request.unit_noise_nchw.narrow(0, first, count);
  }
  if (!request.init_images.empty()) {
    // A size that is left to the initial pictures is that of the first of all, not of the first of this part.
    const Image& leader = request.init_images.front();
    part.width = request.width == 0 ? leader.width / factor * factor : request.width;
    part.height = request.height == 0 ? leader.height / factor * factor : request.height;
  }
  return part;
}

// Only where every list has one entry a picture can a request be cut; painter.paint() says what is wrong with another one.
bool can_be_cut(const PaintRequest& request) {
  const size_t count = request.prompts.size();
  return request.batch_size >= 1 && (request.seeds.empty() || request.seeds.size() == count) &&
         (request.init_images.size() <= 1 || request.init_images.size() == count) &&
         (!request.unit_noise_nchw.defined() ||
          (request.unit_noise_nchw.dim() == 4 && request.unit_noise_nchw.size(0) == static_cast<int64_t>(count)));
}

// Runs `work` in as many threads, or those that are to be had, at least the caller's, and waits for all of them, before the first that
// threw lets go of what they use.
void run_workers(int64_t num_workers, const std::function<void()>& work) {
  if (num_workers <= 1) {
    work();  // Here: a GPU's libraries keep what they have learned for each thread.
    return;
  }
  std::vector<std::future<void>> running;
  try {
    for (int64_t i = 0; i < num_workers; ++i) {
      running.push_back(std::async(std::launch::async, work));
    }
  } catch (const std::system_error&) {
    // No more threads are to be had: those that run do it all.
  }
  if (running.empty()) {
    work();
  }
  for (auto& worker : running) {
    worker.wait();
  }
  for (auto& worker : running) {
    worker.get();
  }
}

Painting join(std::vector<Painting> batches) {
  Painting whole;
  std::vector<torch::Tensor> latents;
  for (Painting& painting : batches) {
    std::move(painting.images.begin(), painting.images.end(), std::back_inserter(whole.images));
    latents.push_back(std::move(painting.latents_nchw));
    whole.num_not_finite += painting.num_not_finite;
  }
  whole.latents_nchw = torch::cat(latents);
  return whole;
}

}  // namespace

int64_t choose_workers(const Painter& painter, const PaintRequest& request, int asked) {
  if (!painter.place().device.is_cpu()) {
    return 1;
  }
  return asked > 0 ? asked : std::min<int64_t>(batches_that_fit(painter, request, usable_memory_bytes()), num_processors());
}

Status run_side_by_side(int64_t count, int64_t num_workers, const std::function<Status(int64_t)>& work) {
  std::vector<Status> statuses(static_cast<size_t>(count));
  std::atomic<int64_t> next{0};
  std::atomic<bool> has_failed{false};
  const int threads = at::get_num_threads();
  run_workers(std::min(num_workers, count), [&] {
    at::set_num_threads(threads);  // OpenMP's setting is each thread's own.
    while (!has_failed) {          // What is taken is done: nothing before the first that failed may be missing.
      const int64_t index = next++;
      if (index >= count) {
        return;
      }
      try {
        statuses[static_cast<size_t>(index)] = work(index);
        if (!statuses[static_cast<size_t>(index)].is_ok()) {
          has_failed = true;
        }
      } catch (...) {
        has_failed = true;
        throw;
      }
    }
  });
  const auto failed = std::ranges::find_if(statuses, [](const Status& status) { return !status.is_ok(); });
  return failed == statuses.end() ? Status::ok() : *failed;
}

Result<Painting> paint_side_by_side(Painter& painter, const PaintRequest& request, int workers, std::stop_token stop,
                                    const std::function<void(int64_t)>& on_painted) {
  const auto num_pictures = static_cast<int64_t>(request.prompts.size());
  if (num_pictures == 0 || !can_be_cut(request)) {
    return painter.paint(request, stop);
  }
  const int64_t num_batches = (num_pictures - 1) / request.batch_size + 1;
  std::vector<Painting> batches(static_cast<size_t>(num_batches));
  const auto paint = [&](int64_t batch) -> Status {
    const int64_t first = batch * request.batch_size;
    const int64_t count = std::min(request.batch_size, num_pictures - first);
    DARKROOM_ASSIGN_OR_RETURN(batches[static_cast<size_t>(batch)],
                              painter.paint(part_of(request, first, count, painter.latent_factor()), stop));
    if (on_painted) {
      on_painted(count);
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(run_side_by_side(num_batches, choose_workers(painter, request, workers), paint));
  return join(std::move(batches));
}

int64_t batches_that_fit(const Painter& painter, const PaintRequest& request, int64_t memory_bytes) {
  constexpr double kBytesAPixel = 8 * 256 * 4;                   // Eight tensors of 256 channels in float32.
  const auto side = [&](int asked, int Image::*of_init_image) {  // As the painter takes it.
    return static_cast<double>(asked > 0                     ? asked
                               : request.init_images.empty() ? painter.native_size()
                                                             : request.init_images.front().*of_init_image);
  };
  const int64_t count = std::clamp<int64_t>(request.batch_size, 1, std::max<int64_t>(1, static_cast<int64_t>(request.prompts.size())));
  // In floating point: painter.paint() has yet to refuse sizes whose product no integer holds.
  const double batch_bytes =
      side(request.width, &Image::width) * side(request.height, &Image::height) * static_cast<double>(count) * kBytesAPixel;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(memory_bytes / 2) / std::max(1.0, batch_bytes)));
}

}  // namespace darkroom
