#include "darkroom/paint/picture_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/png.h"
#include "darkroom/paint/picture_settings.h"
#include "darkroom/prompts/picture_folder.h"
#include "job_sheets.h"
#include "picture_notes.h"
#include "side_by_side.h"

namespace darkroom {
namespace {

PromptReading reading_of(const PictureFields& fields) {
  PromptReading reading;
  for (const PromptSyntax syntax : {PromptSyntax::kPlain, PromptSyntax::kWeighted}) {
    reading.syntax = prompt_syntax_name(syntax) == fields.prompt_syntax ? syntax : reading.syntax;
  }
  for (const LongPrompts handling : {LongPrompts::kAuto, LongPrompts::kTruncate, LongPrompts::kChunks}) {
    reading.long_prompts = long_prompts_name(handling) == fields.long_prompts ? handling : reading.long_prompts;
  }
  return reading;
}

PaintRequest request_of(const PictureFields& fields) {
  PaintRequest request;
  request.prompts = {fields.prompt};
  request.seeds = {fields.seed};
  request.negative = fields.negative;
  request.reading = reading_of(fields);
  request.sampler = {.name = fields.sampler, .num_steps = static_cast<int>(fields.steps), .eta = fields.eta};
  request.guidance = fields.guidance;
  request.guidance_rescale = fields.guidance_rescale;
  request.width = static_cast<int>(fields.width);
  request.height = static_cast<int>(fields.height);
  request.strength = fields.strength;
  request.batch_size = 1;
  return request;
}

// One run; its stages in their order, then what they share.
class PictureRunner {
 public:
  PictureRunner(FileSystem& files, const PictureRun& run, std::stop_token stop, PictureRunReport& report,
                const PaintingProgress& on_painted)
      : files_(files), run_(run), stop_(std::move(stop)), report_(report), on_painted_(on_painted), record_{run.origin, run.pictures} {}

  Status paint(const PictureModelOpener& open_model);

 private:
  Status read_init_images();
  Status resolve();
  Status check_settings();
  Status warn();
  Status find_missing();
  Status paint_missing();
  Status paint_one(RecordedPicture& picture);
  Status draw_sheets();
  Status compare() const;
  void count(int64_t num_pictures, int64_t num_not_finite = 0);
  Result<PaintRequest> full_request(const RecordedPicture& picture) const;

  FileSystem& files_;
  const PictureRun& run_;
  std::stop_token stop_;
  PictureRunReport& report_;
  const PaintingProgress& on_painted_;
  std::mutex mutex_;  // Guards report_.num_painted, which only grows in the eyes of on_painted_, and the next.
  int64_t num_not_finite_ = 0;
  PictureRecord record_;
  PictureModel model_;
  std::unique_ptr<PictureFolder> folder_;
  std::vector<RecordedPicture*> missing_;
  std::set<std::string> missing_folders_;
  std::map<std::string, std::pair<int, int>> init_sizes_;  // Width and height by path.
};

Status PictureRunner::paint(const PictureModelOpener& open_model) {
  report_.num_asked = static_cast<int64_t>(record_.pictures.size());
  if (record_.pictures.empty()) {
    return Status::invalid_argument("there is nothing to paint");
  }
  count(0);
  DARKROOM_RETURN_IF_ERROR(read_init_images());
  DARKROOM_ASSIGN_OR_RETURN(folder_, PictureFolder::open(files_, run_.output));
  DARKROOM_ASSIGN_OR_RETURN(model_, open_model());
  report_.place = model_.painter->place();
  record_.origin.device = report_.place.device_class();
  record_.origin.precision = std::string(float_type_name(report_.place.type));
  record_.origin.fingerprints = model_.fingerprints;
  DARKROOM_RETURN_IF_ERROR(check_same_model(run_.wanted_fingerprints, model_.fingerprints));
  DARKROOM_RETURN_IF_ERROR(resolve());
  DARKROOM_RETURN_IF_ERROR(check_settings());
  DARKROOM_RETURN_IF_ERROR(find_missing());
  DARKROOM_RETURN_IF_ERROR(warn());
  const Status painted = paint_missing();
  warn_of_not_finite(num_not_finite_, report_.num_painted, report_.place);
  DARKROOM_RETURN_IF_ERROR(painted);
  DARKROOM_RETURN_IF_ERROR(draw_sheets());
  DARKROOM_RETURN_IF_ERROR(folder_->finish(record_));
  return compare();
}

// Only what the pictures are is kept: many of them would not fit into memory.
Status PictureRunner::read_init_images() {
  std::map<std::string, std::string> digests;
  for (RecordedPicture& picture : record_.pictures) {
    const std::string& path = picture.picture.fields.init_image;
    if (path.empty()) {
      continue;
    }
    if (!digests.contains(path)) {
      DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(files_, path));
      DARKROOM_ASSIGN_OR_RETURN(const Image image, decode_init_image(bytes, path));
      digests[path] = sha256_hex(bytes);
      init_sizes_[path] = {image.width, image.height};
    }
    const std::string& digest = digests[path];
    if (!picture.init_image_sha256.empty() && picture.init_image_sha256 != digest) {
      return Status::failed_precondition("the picture to start from is another one than was recorded (picture, path):", picture.file, path);
    }
    picture.init_image_sha256 = digest;
  }
  return Status::ok();
}

// What is left to the model is written out, so that the record says it.
Status PictureRunner::resolve() {
  const auto factor = static_cast<uint64_t>(model_.painter->latent_factor());
  const auto native = static_cast<uint64_t>(model_.painter->native_size());
  for (RecordedPicture& picture : record_.pictures) {
    PictureFields& fields = picture.picture.fields;
    DARKROOM_ASSIGN_OR_RETURN(fields.sampler, resolve_sampler_name({.name = fields.sampler, .num_steps = static_cast<int>(fields.steps)},
                                                                   model_.painter->scheduler()));
    const auto init_size = init_sizes_.find(fields.init_image);
    const auto side = [&](int init_side) { return static_cast<uint64_t>(init_side) / factor * factor; };
    if (fields.width == 0) {
      fields.width = init_size == init_sizes_.end() ? native : side(init_size->second.first);
    }
    if (fields.height == 0) {
      fields.height = init_size == init_sizes_.end() ? native : side(init_size->second.second);
    }
  }
  return Status::ok();
}

// Of pictures that differ in prompt and seed alone the first one.
Status PictureRunner::check_settings() {
  std::set<std::string> checked;
  for (const RecordedPicture& picture : record_.pictures) {
    PictureFields settings = picture.picture.fields;
    settings.prompt.clear();
    settings.negative.clear();
    settings.seed = 0;
    if (!checked.insert(picture_fields_to_json(settings).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)).second) {
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const PaintRequest request, full_request(picture));
    const Status status = model_.painter->check(request);
    if (!status.is_ok()) {
      return status.with_context(picture.file);
    }
  }
  return Status::ok();
}

Status PictureRunner::warn() {
  std::map<std::pair<std::string, std::string>, std::set<std::string>> texts;  // By how they are read.
  std::set<std::tuple<std::string, uint64_t>> samplers;
  for (const RecordedPicture* picture : missing_) {
    const PictureFields& fields = picture->picture.fields;
    auto& alike = texts[{fields.prompt_syntax, fields.long_prompts}];
    alike.insert(fields.prompt);
    if (Guidance{fields.guidance, fields.guidance_rescale}.is_active()) {
      alike.insert(fields.negative);
    }
    if (samplers.emplace(fields.sampler, fields.steps).second) {
      warn_of_useless_step(request_of(fields).sampler, fields.sampler, model_.painter->scheduler());
    }
  }
  for (const auto& [names, alike] : texts) {
    const PromptReading reading = reading_of({.prompt_syntax = names.first, .long_prompts = names.second});
    DARKROOM_RETURN_IF_ERROR(warn_of_lost_text(*model_.painter, alike, reading));
  }
  return Status::ok();
}

Status PictureRunner::find_missing() {
  for (size_t i = 0; i < record_.pictures.size(); ++i) {
    RecordedPicture& picture = record_.pictures[i];
    const auto digest = folder_->find(picture.file, picture_identity(record_.origin, picture));
    if (digest) {
      picture.sha256 = *digest;
      ++report_.num_kept;
    } else {
      missing_.push_back(&picture);
      missing_folders_.insert(parent_folder(picture.file));
    }
    if (stop_.stop_requested()) {
      return Status::cancelled("stopped before anything was painted");
    }
  }
  count(0);
  return Status::ok();
}

void PictureRunner::count(int64_t num_pictures, int64_t num_not_finite) {
  const std::lock_guard hold(mutex_);
  num_not_finite_ += num_not_finite;
  report_.num_painted += num_pictures;
  if (on_painted_) {
    on_painted_(report_.num_kept + report_.num_painted, report_.num_asked);
  }
}

Result<PaintRequest> PictureRunner::full_request(const RecordedPicture& picture) const {
  const PictureFields& fields = picture.picture.fields;
  PaintRequest request = request_of(fields);
  if (!fields.init_image.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(files_, fields.init_image));
    if (sha256_hex(bytes) != picture.init_image_sha256) {
      return Status::failed_precondition("the picture to start from changed while the run painted:", fields.init_image);
    }
    DARKROOM_ASSIGN_OR_RETURN(Image image, decode_init_image(bytes, fields.init_image));
    request.init_images.push_back(std::move(image));
  }
  return request;
}

Status PictureRunner::paint_one(RecordedPicture& picture) {
  DARKROOM_ASSIGN_OR_RETURN(const PaintRequest request, full_request(picture));
  DARKROOM_ASSIGN_OR_RETURN(const Painting painting, model_.painter->paint(request, stop_));
  const PictureFields& fields = picture.picture.fields;
  const PaintedWith with{.sampler = fields.sampler,
                         .model = record_.origin.model,
                         .weights = record_.origin.weights,
                         .start_latents = {},
                         .init_image = fields.init_image,
                         .place = report_.place};
  const std::string png = encode_png(painting.images.front(), picture_settings(request, with, 0, painting.images.front()));
  picture.sha256.clear();
  DARKROOM_ASSIGN_OR_RETURN(picture.sha256, folder_->add(picture.file, picture_identity(record_.origin, picture), png));
  count(1, painting.num_not_finite);
  return Status::ok();
}

Status PictureRunner::paint_missing() {
  if (missing_.empty()) {
    return Status::ok();
  }
  DARKROOM_RETURN_IF_ERROR(folder_->begin({missing_folders_.begin(), missing_folders_.end()}));
  const RecordedPicture* largest = *std::ranges::max_element(
      missing_, {}, [](const RecordedPicture* picture) { return picture->picture.fields.width * picture->picture.fields.height; });
  const int64_t workers = choose_workers(*model_.painter, request_of(largest->picture.fields), run_.workers);
  return run_side_by_side(static_cast<int64_t>(missing_.size()), workers, [&](int64_t i) {
    RecordedPicture& picture = *missing_[static_cast<size_t>(i)];
    return paint_one(picture).with_context(picture.file);
  });
}

Status PictureRunner::draw_sheets() {
  for (const PictureJob& job : run_.jobs) {
    const auto pictures = std::span<const RecordedPicture>(record_.pictures).subspan(job.first_picture, job.num_pictures);
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_pages, draw_job_sheet(files_, run_.output, job, pictures, stop_));
    report_.num_sheets += num_pages;
  }
  return Status::ok();
}

Status PictureRunner::compare() const {
  std::string first;
  size_t num_others = 0;
  for (size_t i = 0; i < record_.pictures.size(); ++i) {
    const std::string& wanted = run_.pictures[i].sha256;
    if (!wanted.empty() && wanted != record_.pictures[i].sha256) {
      first = num_others++ == 0 ? record_.pictures[i].file : first;
    }
  }
  if (num_others == 0) {
    return Status::ok();
  }
  return Status::failed_precondition(
      fmt::format("{} of {} pictures are painted, but have other bytes than were recorded, as on another kind of processor or by another "
                  "version; the first:",
                  num_others, record_.pictures.size()),
      first);
}

}  // namespace

std::vector<RecordedPicture> pictures_to_paint(const PictureJobs& jobs) {
  std::vector<RecordedPicture> pictures;
  for (const PictureJob& job : jobs.jobs) {
    for (size_t i = 0; i < job.num_pictures; ++i) {
      pictures.push_back({.file = picture_file(job, i), .picture = jobs.pictures[job.first_picture + i]});
    }
  }
  return pictures;
}

Status paint_pictures(FileSystem& files, const PictureRun& run, const PictureModelOpener& open_model, std::stop_token stop,
                      PictureRunReport& report, const PaintingProgress& on_painted) {
  report = {};
  const Status status = PictureRunner(files, run, std::move(stop), report, on_painted).paint(open_model);
  if (status.code() != StatusCode::kCancelled) {
    return status;
  }
  return Status::cancelled(fmt::format("stopped with {} of {} pictures painted; the same command goes on with the others",
                                       report.num_kept + report.num_painted, report.num_asked));
}

}  // namespace darkroom
