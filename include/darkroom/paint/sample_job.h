#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/image.h"
#include "darkroom/paint/painter.h"

namespace darkroom {

/// A run of `sample`: what to paint and the files that it reads and writes. Empty paths: not asked for.
struct SampleJob {
  std::vector<std::string> prompts;
  std::string prompts_file;   ///< More of them, one a line.
  uint64_t seed = 0;          ///< Picture j of every prompt has seed + j.
  int images_per_prompt = 1;  ///< At least 1.
  /// The settings. The job fills in prompts, seeds, start noise and initial pictures. A picture's bits depend on the batch that it is
  /// painted in, so each has its own unless the caller wants otherwise.
  PaintRequest request = [] {
    PaintRequest settings;
    settings.batch_size = 1;
    return settings;
  }();
  int workers = 0;             ///< Batches painted side by side, which changes no bit; 0: see paint_side_by_side.
  std::string start_latents;   ///< Start noise of variance 1: tensor `latents`, float32 [N, C, h, w].
  std::string init_image;      ///< Picture to start from.
  std::string output;          ///< One picture; several become numbered_path() of it.
  bool grid = false;           ///< Write a sheet of all to `output`, and single pictures under numbers.
  std::string latents_output;  ///< The final latents: tensor `latents`, float32 [N, C, h, w], scaled.
  std::string model;           ///< Named in the pictures' text chunks, as `weights`.
  std::string weights;
};

/// How far a job came, also one that failed or was stopped.
struct SampleReport {
  int64_t num_asked = 0;    ///< Pictures to paint.
  int64_t num_painted = 0;  ///< Of these, so far.
  int64_t num_written = 0;  ///< Pictures with a file of their own; 0 until all are painted.
  std::string sampler;      ///< The one that is used; empty until the model is open.
  NetworkPlace place = {};  ///< Where the U-Net is, once the model is open.
};

using PainterOpener = std::function<Result<std::unique_ptr<Painter>>()>;
/// Is told how many pictures are painted, of how many.
using PaintingProgress = std::function<void(int64_t num_painted, int64_t num_asked)>;

/// Paints a job and writes its files, the pictures with their settings as PNG text. Files are read before the model is opened.
/// Errors: kInvalidArgument (nothing to paint; a setting that does not fit), kFailedPrecondition (latents or a picture that do not
/// fit), kCancelled, those of opening the model and of the files. Nothing is written before everything is painted. `on_painted` is told
/// before the model is opened and after each batch, by the thread that painted it, one call at a time.
Status run_sample_job(FileSystem& files, const SampleJob& job, const PainterOpener& open_painter, std::stop_token stop,
                      SampleReport& report, const PaintingProgress& on_painted = {});

/// The batches of a request, `workers` at a time or as many as threads can be started, each with the caller's number of threads inside an
/// operation. The same bits as painter.paint() for every number of workers. 0: one for each processor, and no more than batches_that_fit in
/// usable_memory_bytes(). On a GPU they go one after another. `on_painted` is told the number of pictures of each batch as it is done, by
/// the worker that painted it. Errors: the first one in the order of the pictures, of paint(). REQUIRES: nobody else uses the painter
/// meanwhile.
Result<Painting> paint_side_by_side(Painter& painter, const PaintRequest& request, int workers, std::stop_token stop = {},
                                    const std::function<void(int64_t)>& on_painted = {});

/// How many batches of a request half of the memory holds, at least 1. A pixel is taken for 8 kB (eight tensors of 256 channels, as in
/// the decoder of Stable Diffusion).
int64_t batches_that_fit(const Painter& painter, const PaintRequest& request, int64_t memory_bytes);

/// The lines of a text file; an empty line is an empty prompt, and a line may end as on Windows.
Result<std::vector<std::string>> read_prompts(FileSystem& files, const std::string& path);

/// PATH.png, 7 -> PATH-00007.png.
std::string numbered_path(const std::string& path, size_t index);

/// A sheet of captioned pictures: rows of `images_per_prompt`, or with one each a square. REQUIRES: images not empty, as many captions.
Image draw_sample_sheet(const std::vector<Image>& images, const std::vector<std::string>& captions, int images_per_prompt);

}  // namespace darkroom
