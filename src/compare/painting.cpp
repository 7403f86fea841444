#include "painting.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "darkroom/core/machine.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/png.h"
#include "darkroom/paint/picture_settings.h"

namespace darkroom {
namespace {

// What a model brings into a comparison.
struct PainterFacts {
  SharedSettings settings;
  int latent_factor = 0;
};

struct PicturePlace {
  size_t prompt = 0;
  size_t seed = 0;
};

// One model's part of a comparison.
struct SideWork {
  const CompareSide& model;
  Side side;
  std::vector<PicturePlace> missing;
};

Result<PainterFacts> facts_of(const Painter& painter, const PaintRequest& request) {
  const auto side_of = [&](int asked) { return asked > 0 ? asked : painter.native_size(); };
  PainterFacts facts{.settings = {.sampler = {}, .width = side_of(request.width), .height = side_of(request.height)},
                     .latent_factor = painter.latent_factor()};
  DARKROOM_ASSIGN_OR_RETURN(facts.settings.sampler, resolve_sampler_name(request.sampler, painter.scheduler()));
  return facts;
}

Status check_shared(const PainterFacts& a, const PainterFacts& b) {
  if (a.settings.width != b.settings.width || a.settings.height != b.settings.height) {
    return Status::failed_precondition(
        "the models were made for pictures of different sizes; --size names one for both (A, B):", a.settings.width, b.settings.width);
  }
  if (a.latent_factor != b.latent_factor) {
    return Status::failed_precondition(
        "the models' latents differ in size, so that they share no noise (pixels a latent of A, of B):", a.latent_factor, b.latent_factor);
  }
  if (a.settings.sampler != b.settings.sampler) {
    return Status::failed_precondition("the models' own samplers differ; --sampler names one for both (A, B):", a.settings.sampler,
                                       b.settings.sampler);
  }
  return Status::ok();
}

Result<std::vector<PicturePlace>> missing_pictures(FileSystem& files, const std::string& output, const CompareRecord& record, Side side) {
  const std::string folder = parent_folder(picture_path(output, side, 0, 0));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(folder));
  std::set<std::string> names;
  if (is_there) {
    DARKROOM_ASSIGN_OR_RETURN(const auto found, files.list(folder));
    for (const FileInfo& info : found) {
      names.insert(file_name(info.path));
    }
  }
  std::vector<PicturePlace> missing;
  for (size_t prompt = 0; prompt < record.num_prompts(); ++prompt) {
    for (size_t seed = 0; seed < record.num_seeds(); ++seed) {
      if (!names.contains(file_name(picture_path(output, side, prompt, seed)))) {
        missing.push_back({prompt, seed});
      }
    }
  }
  return missing;
}

/// Paints one model's missing pictures, a few at a time, so that a run that is cut keeps most of them.
class SidePainter {
 public:
  SidePainter(FileSystem& files, const CompareJob& job, const CompareRecord& record, const SideWork& work, CompareReport& report)
      : files_(files), job_(job), record_(record), prompts_(record.prompts()), work_(work), report_(report) {}

  Status paint(Painter& painter, const std::stop_token& stop, const PaintingProgress& on_painted) {
    const size_t at_once = 4 * std::max<size_t>(2, static_cast<size_t>(num_processors()));
    for (size_t first = 0; first < work_.missing.size(); first += at_once) {
      const auto places = std::span(work_.missing).subspan(first, std::min(at_once, work_.missing.size() - first));
      const PaintRequest request = request_of(places);
      auto painting = paint_side_by_side(painter, request, job_.workers, stop);
      DARKROOM_RETURN_IF_ERROR(painting.status());
      DARKROOM_RETURN_IF_ERROR(write(places, request, *painting, painter.place()));
      if (on_painted) {
        on_painted(report_.num_painted + report_.num_found, report_.num_asked);
      }
    }
    return Status::ok();
  }

 private:
  PaintRequest request_of(std::span<const PicturePlace> places) const {
    PaintRequest request = job_.request;
    request.sampler.name = record_.shared.sampler;
    request.width = record_.shared.width;
    request.height = record_.shared.height;
    for (const PicturePlace& place : places) {
      request.prompts.push_back(prompts_[place.prompt]);
      request.seeds.push_back(record_.seed_of(place.prompt, place.seed));
    }
    return request;
  }

  Status write(std::span<const PicturePlace> places, const PaintRequest& request, const Painting& painting, const NetworkPlace& place) {
    const PaintedWith with{.sampler = record_.shared.sampler, .model = work_.model.model, .weights = work_.model.weights, .place = place};
    for (size_t i = 0; i < places.size(); ++i) {
      if (!painting.latents_nchw[static_cast<int64_t>(i)].isfinite().all().item<bool>()) {
        return Status::failed_precondition("a model paints values that are no numbers (model, path, prompt, seed):", side_name(work_.side),
                                           work_.model.model, request.prompts[i], request.seeds[i]);
      }
      const std::string png = encode_png(painting.images[i], picture_settings(request, with, i, painting.images[i]));
      DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, picture_path(job_.output, work_.side, places[i].prompt, places[i].seed), png));
      ++report_.num_painted;
    }
    return Status::ok();
  }

  FileSystem& files_;
  const CompareJob& job_;
  const CompareRecord& record_;
  const std::vector<std::string> prompts_;
  const SideWork& work_;
  CompareReport& report_;
};

}  // namespace

Status paint_comparison(FileSystem& files, const CompareJob& job, bool is_begun, const std::stop_token& stop,
                        const PaintingProgress& on_painted, CompareRecord& record, CompareReport& report) {
  DARKROOM_ASSIGN_OR_RETURN(auto missing_a, missing_pictures(files, job.output, record, Side::kA));
  DARKROOM_ASSIGN_OR_RETURN(auto missing_b, missing_pictures(files, job.output, record, Side::kB));
  const SideWork a{.model = job.a, .side = Side::kA, .missing = std::move(missing_a)};
  const SideWork b{.model = job.b, .side = Side::kB, .missing = std::move(missing_b)};
  report.num_asked = static_cast<int64_t>(2 * record.num_prompts() * record.num_seeds());
  report.num_found = report.num_asked - static_cast<int64_t>(a.missing.size() + b.missing.size());
  if (on_painted) {
    on_painted(report.num_found, report.num_asked);
  }
  if (!is_begun) {
    DARKROOM_ASSIGN_OR_RETURN(auto painter, job.a.open());
    DARKROOM_ASSIGN_OR_RETURN(const PainterFacts facts_a, facts_of(*painter, job.request));
    painter.reset();  // Two large models need not be in memory together.
    DARKROOM_ASSIGN_OR_RETURN(painter, job.b.open());
    DARKROOM_ASSIGN_OR_RETURN(const PainterFacts facts_b, facts_of(*painter, job.request));
    DARKROOM_RETURN_IF_ERROR(check_shared(facts_a, facts_b));
    record.shared = facts_a.settings;
    DARKROOM_RETURN_IF_ERROR(write_compare_record(files, job.output, record));
    DARKROOM_RETURN_IF_ERROR(SidePainter(files, job, record, b, report).paint(*painter, stop, on_painted));
  } else if (!b.missing.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const auto painter, job.b.open());
    DARKROOM_RETURN_IF_ERROR(SidePainter(files, job, record, b, report).paint(*painter, stop, on_painted));
  }
  if (!a.missing.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const auto painter, job.a.open());
    DARKROOM_RETURN_IF_ERROR(SidePainter(files, job, record, a, report).paint(*painter, stop, on_painted));
  }
  return Status::ok();
}

Result<Image> read_compared_picture(FileSystem& files, const std::string& path, const SharedSettings& shared) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(files, path));
  RowResult<Image> image = decode_image(std::as_bytes(std::span(bytes)), kAnySize);
  if (!image.is_ok()) {
    return Status::corrupt_data("a picture of the comparison is damaged; delete it, and the same command paints it anew (path, error):",
                                path, image.error().name());
  }
  if (image.value().width != shared.width || image.value().height != shared.height) {
    return Status::corrupt_data(
        "a picture of the comparison has another size; delete it, and the same command paints it anew (path, size):", path,
        image.value().width, image.value().height);
  }
  return std::move(image).value();
}

}  // namespace darkroom
