#include "darkroom/paint/sample_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "darkroom/files/paths.h"
#include "darkroom/image/contact_sheet.h"
#include "darkroom/paint/picture_settings.h"
#include "darkroom/tensor/safetensors.h"
#include "job_sheets.h"
#include "picture_notes.h"

namespace darkroom {
namespace {

Status fill_prompts(FileSystem& files, const SampleJob& job, PaintRequest& request) {
  std::vector<std::string> prompts = job.prompts;
  if (!job.prompts_file.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<std::string> lines, read_prompts(files, job.prompts_file));
    prompts.insert(prompts.end(), lines.begin(), lines.end());
  }
  if (prompts.empty()) {
    return Status::invalid_argument("there is nothing to paint; give --prompt or --prompts-file");
  }
  if (job.images_per_prompt < 1) {
    return Status::invalid_argument("--images must be at least 1, got:", job.images_per_prompt);
  }
  for (const std::string& prompt : prompts) {
    for (int j = 0; j < job.images_per_prompt; ++j) {
      request.prompts.push_back(prompt);
      request.seeds.push_back(job.seed + static_cast<uint64_t>(j));
    }
  }
  return check_prompts(request);
}

Status read_init_image(FileSystem& files, const std::string& path, PaintRequest& request) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(files, path));
  DARKROOM_ASSIGN_OR_RETURN(Image image, decode_init_image(bytes, path));
  request.init_images.push_back(std::move(image));
  return Status::ok();
}

Status read_start_latents(const std::string& path, PaintRequest& request) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(path));
  DARKROOM_ASSIGN_OR_RETURN(const torch::Tensor latents, file->tensor("latents"));
  if (latents.dim() != 4 || latents.scalar_type() != torch::kFloat32) {
    return Status::failed_precondition("--latents: the tensor `latents` must be float32 [N, C, h, w] (path, shape, type):", path,
                                       c10::str(latents.sizes()), c10::toString(latents.scalar_type()));
  }
  if (latents.size(0) != static_cast<int64_t>(request.prompts.size())) {
    return Status::failed_precondition("--latents holds another number of pictures than asked for (path, latents, pictures):", path,
                                       latents.size(0), request.prompts.size());
  }
  if (!torch::isfinite(latents).all().item<bool>()) {
    return Status::failed_precondition("--latents holds a NaN or an infinity:", path);
  }
  request.unit_noise_nchw = latents;
  return Status::ok();
}

Result<PaintRequest> fill_request(FileSystem& files, const SampleJob& job) {
  PaintRequest request = job.request;
  DARKROOM_RETURN_IF_ERROR(fill_prompts(files, job, request));
  if (!job.init_image.empty()) {
    DARKROOM_RETURN_IF_ERROR(read_init_image(files, job.init_image, request));
  }
  if (!job.start_latents.empty()) {
    DARKROOM_RETURN_IF_ERROR(read_start_latents(job.start_latents, request));
  }
  return request;
}

// Start noise tells the size of the pictures where nothing else does.
void take_size_of_noise(const Painter& painter, PaintRequest& request) {
  if (request.unit_noise_nchw.defined() && request.width == 0 && request.height == 0) {
    request.height = static_cast<int>(request.unit_noise_nchw.size(2)) * painter.latent_factor();
    request.width = static_cast<int>(request.unit_noise_nchw.size(3)) * painter.latent_factor();
  }
}

Status write_latents(FileSystem& files, const std::string& path, const torch::Tensor& latents) {
  DARKROOM_RETURN_IF_ERROR(files.create_folders(parent_folder(path)));
  return write_safetensors_atomic(files, path, {{"latents", latents}});
}

Status write_painting(FileSystem& files, const SampleJob& job, const PaintRequest& request, const Painting& painting,
                      SampleReport& report) {
  const bool numbered = painting.images.size() > 1 || job.grid;
  const PaintedWith with{report.sampler, job.model, job.weights, job.start_latents, job.init_image, report.place};
  for (size_t i = 0; i < painting.images.size(); ++i) {
    const std::string png = encode_png(painting.images[i], picture_settings(request, with, i, painting.images[i]));
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, numbered ? numbered_path(job.output, i) : job.output, png));
    ++report.num_written;
  }
  if (job.grid) {
    const Image sheet = draw_sample_sheet(painting.images, request.prompts, job.images_per_prompt);
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, job.output, encode_png(sheet)));
  }
  return job.latents_output.empty() ? Status::ok() : write_latents(files, job.latents_output, painting.latents_nchw);
}

std::set<std::string> read_texts(const PaintRequest& request) {
  std::set<std::string> texts(request.prompts.begin(), request.prompts.end());
  if (Guidance{request.guidance, request.guidance_rescale}.is_active()) {
    texts.insert(request.negative);
  }
  return texts;
}

}  // namespace

Status run_sample_job(FileSystem& files, const SampleJob& job, const PainterOpener& open_painter, std::stop_token stop,
                      SampleReport& report, const PaintingProgress& on_painted) {
  report = {};
  DARKROOM_ASSIGN_OR_RETURN(PaintRequest request, fill_request(files, job));
  report.num_asked = static_cast<int64_t>(request.prompts.size());
  std::mutex mutex;  // Guards the count, which only grows in the eyes of on_painted.
  const auto count = [&](int64_t num_pictures) {
    const std::lock_guard hold(mutex);
    report.num_painted += num_pictures;
    if (on_painted) {
      on_painted(report.num_painted, report.num_asked);
    }
  };
  count(0);
  DARKROOM_RETURN_IF_ERROR(files.create_folders(parent_folder(job.output)));
  DARKROOM_ASSIGN_OR_RETURN(const auto painter, open_painter());
  report.place = painter->place();
  DARKROOM_ASSIGN_OR_RETURN(report.sampler, resolve_sampler_name(request.sampler, painter->scheduler()));
  take_size_of_noise(*painter, request);
  warn_of_useless_step(request.sampler, report.sampler, painter->scheduler());
  DARKROOM_RETURN_IF_ERROR(warn_of_lost_text(*painter, read_texts(request), request.reading));
  const auto painting = paint_side_by_side(*painter, request, job.workers, stop, count);
  DARKROOM_RETURN_IF_ERROR(painting.status());
  warn_of_not_finite(painting->num_not_finite, report.num_asked, report.place);
  return write_painting(files, job, request, *painting, report);
}

Result<std::vector<std::string>> read_prompts(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  std::vector<std::string> prompts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    prompts.push_back(std::move(line));
    begin = end + 1;
  }
  return prompts;
}

std::string numbered_path(const std::string& path, size_t index) {
  const std::string name = file_name(path);
  const size_t dot = name.rfind('.');
  const std::string stem = dot == std::string::npos || dot == 0 ? path : path.substr(0, path.size() - (name.size() - dot));
  return fmt::format("{}-{:05}{}", stem, index, path.substr(stem.size()));
}

Image draw_sample_sheet(const std::vector<Image>& images, const std::vector<std::string>& captions, int images_per_prompt) {
  auto num_columns = static_cast<size_t>(images_per_prompt);
  if (num_columns == 1) {
    while (num_columns * num_columns < images.size()) {
      ++num_columns;
    }
  }
  std::vector<std::vector<ContactSheetCell>> rows;
  for (size_t i = 0; i < images.size(); ++i) {
    if (i % num_columns == 0) {
      rows.emplace_back();
    }
    rows.back().push_back({images[i], captions[i]});
  }
  const int cell = std::clamp(std::max(images[0].width, images[0].height), kSmallestSheetCell, kLargestSheetCell);
  return render_contact_sheet(rows, {.cell_width = cell, .cell_height = cell});
}

}  // namespace darkroom
