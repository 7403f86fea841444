#include "painting/sample_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/core/version.h"
#include "darkroom/diffusion/sampler.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/prompts/picture_folder.h"
#include "opening/open_picture_model.h"
#include "opening/open_stores.h"
#include "opening/remote_models.h"
#include "painting/painting_progress.h"

namespace darkroom {
namespace {

// Flags for what a job file says in its own way, or has not.
const std::vector<std::pair<std::string, std::string>>& flags_without_jobs() {
  static const std::vector<std::pair<std::string, std::string>> flags = {
      {"--prompt", "the file says what is painted"},
      {"--prompts-file", "the file says what is painted"},
      {"--grid", "every job has its sheet"},
      {"--batch-size", "each picture is a batch of its own, so that its bytes depend on nothing else"},
      {"--latents", "start noise comes from the seeds"},
      {"--save-latents", "pictures are written one by one"}};
  return flags;
}

// Flags that fill in what a job file leaves open, and the field of each.
const std::vector<std::pair<std::string, std::string>>& flags_of_fields() {
  static const std::vector<std::pair<std::string, std::string>> flags = {{"--negative", "negative"},
                                                                         {"--init-image", "init_image"},
                                                                         {"--strength", "strength"},
                                                                         {"--seed", "seed"},
                                                                         {"--images", "images"},
                                                                         {"--size", "size"},
                                                                         {"--size", "width"},
                                                                         {"--size", "height"},
                                                                         {"--prompt-syntax", "prompt_syntax"},
                                                                         {"--long-prompts", "long_prompts"},
                                                                         {"--sampler", "sampler"},
                                                                         {"--steps", "steps"},
                                                                         {"--guidance", "guidance"},
                                                                         {"--guidance-rescale", "guidance_rescale"},
                                                                         {"--eta", "eta"}};
  return flags;
}

Status check_flags(const SampleJobsFlags& flags, const GivenWords& given) {
  if (!flags.jobs_file.empty() && !flags.record_file.empty()) {
    return Status::invalid_argument("--jobs and --reproduce do not go together: a record has all that it paints");
  }
  if (!flags.jobs_file.empty()) {
    for (const auto& [flag, reason] : flags_without_jobs()) {
      if (given.contains(flag)) {
        return Status::invalid_argument(fmt::format("{} does not go with --jobs: {}", flag, reason));
      }
    }
    return Status::ok();
  }
  const std::set<std::string> fitting = {"--reproduce", "--only",         "--init-images", "--output", "--workers", "--model",
                                         "--frozen",    "--json-summary", "--config",      "--quiet",  "--verbose"};
  for (const auto& [flag, words] : given) {
    if (!fitting.contains(flag)) {
      return Status::invalid_argument(fmt::format("{} does not go with --reproduce: the record says how each picture is painted", flag));
    }
  }
  return Status::ok();
}

Result<std::string> read_named_file(const std::string& flag, const std::string& path) {
  Result<std::string> text = read_file(local_files(), path);
  return text.is_ok() ? text : Status::invalid_argument(fmt::format("{} names a file that cannot be read:", flag), text.status().message());
}

Result<PictureRun> plan_jobs(const SampleJobsFlags& flags, const GivenWords& given) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_named_file("--jobs", flags.jobs_file));
  const auto samplers = sampler_names();
  DARKROOM_ASSIGN_OR_RETURN(const PictureJobs jobs, expand_picture_jobs(text, flags.jobs_file,
                                                                        {.defaults = flags.fields,
                                                                         .images = flags.images,
                                                                         .samplers = {samplers.begin(), samplers.end()},
                                                                         .max_pictures = flags.max_pictures}));
  for (const auto& [flag, field] : flags_of_fields()) {
    if (given.contains(flag) && jobs.fields_set.contains(field)) {
      return Status::invalid_argument(
          fmt::format("{} is given, but {} sets {}, too; a flag fills in only what the file leaves open: take one of the two away", flag,
                      flags.jobs_file, field));
    }
  }
  return PictureRun{.pictures = pictures_to_paint(jobs), .jobs = jobs.jobs};
}

// A job's name, or a picture's file with or without its ending.
bool is_named(const std::string& file, const std::string& name) {
  return file == name || file == name + ".png" || file.starts_with(name + "/");
}

Status choose(const SampleJobsFlags& flags, std::vector<RecordedPicture>& pictures) {
  for (const std::string& name : flags.only) {
    if (std::ranges::none_of(pictures, [&](const RecordedPicture& picture) { return is_named(picture.file, name); })) {
      return Status::invalid_argument(
          "--only names no job and no picture of the record, such as apples or apples/00007.png (record, name):", flags.record_file, name);
    }
  }
  std::erase_if(pictures, [&](const RecordedPicture& picture) {
    return !flags.only.empty() && std::ranges::none_of(flags.only, [&](const std::string& name) { return is_named(picture.file, name); });
  });
  return Status::ok();
}

bool is_below(const std::filesystem::path& place, const std::string& folder) {
  std::error_code failure;
  const std::filesystem::path whole = std::filesystem::canonical(folder, failure);
  return !failure && std::mismatch(whole.begin(), whole.end(), place.begin(), place.end()).first == whole.end();
}

// A record may come from anybody, and what it names is read: no file that its reader does not expect, no pipe, no device.
Status check_init_image(const SampleJobsFlags& flags, const std::string& path) {
  constexpr uintmax_t kMaxBytes = 100'000'000;
  std::error_code failure;
  const std::filesystem::path place = std::filesystem::canonical(path, failure);
  if (failure) {
    return Status::invalid_argument("the record starts from a picture that is not there:", path);
  }
  if (!is_below(place, parent_folder(flags.record_file)) && (flags.init_images.empty() || !is_below(place, flags.init_images))) {
    return Status::invalid_argument(
        "the record starts from a picture outside its own folder; if you want it opened, name its folder with --init-images:", path);
  }
  if (!std::filesystem::is_regular_file(place, failure)) {
    return Status::invalid_argument("the record starts from a picture that is no regular file:", path);
  }
  if (const uintmax_t num_bytes = std::filesystem::file_size(place, failure); failure || num_bytes > kMaxBytes) {
    return Status::invalid_argument("the record starts from a picture that is too large (path, bytes, at most):", path, num_bytes,
                                    kMaxBytes);
  }
  return Status::ok();
}

Status check_init_images(const SampleJobsFlags& flags, const std::vector<RecordedPicture>& pictures) {
  std::set<std::string> checked = {""};
  for (const RecordedPicture& picture : pictures) {
    const std::string& path = picture.picture.fields.init_image;
    if (checked.insert(path).second) {
      DARKROOM_RETURN_IF_ERROR(check_init_image(flags, path).with_context(picture.file));
    }
  }
  return Status::ok();
}

Result<PictureRun> plan_reproduction(const SampleJobsFlags& flags, PainterFlags& painter, int& threads) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_named_file("--reproduce", flags.record_file));
  DARKROOM_ASSIGN_OR_RETURN(PictureRecord record, read_picture_record(text, flags.record_file));
  DARKROOM_RETURN_IF_ERROR(choose(flags, record.pictures));
  DARKROOM_RETURN_IF_ERROR(check_init_images(flags, record.pictures));
  const PictureOrigin& origin = record.origin;
  if (origin.version != kVersion) {
    log_warning("sample: {} was written by version {}; this is {}, which its pictures' files name", flags.record_file, origin.version,
                kVersion);
  }
  painter.device = origin.device;
  painter.precision = origin.precision;
  painter.source.model = painter.source.model.empty() ? origin.model : painter.source.model;
  painter.source.frozen = painter.source.frozen.empty() ? origin.frozen : painter.source.frozen;
  painter.source.weights = origin.weights;
  painter.source.tokenizer_dialect = origin.tokenizer_dialect;
  painter.source.prediction_type = origin.prediction_type;
  threads = static_cast<int>(std::clamp<uint64_t>(origin.threads, 1, 1024));
  return PictureRun{.pictures = std::move(record.pictures), .origin = origin, .wanted_fingerprints = origin.fingerprints};
}

PictureOrigin origin_of(const PainterSource& source, int threads) {
  return {.version = kVersion,
          .model = recorded_uri(source.model),
          .weights = source.weights,
          .frozen = recorded_uri(source.frozen),
          .tokenizer_dialect = source.tokenizer_dialect,
          .prediction_type = source.prediction_type,
          .threads = static_cast<uint64_t>(threads)};
}

// Errors: kInvalidArgument for a place on another machine: a run goes on from what lies in its folder.
Result<std::string> local_output(const std::string& uri) {
  const Result<std::string> local = local_path(uri);
  return local.is_ok() ? local : Status::invalid_argument("--output of --jobs and --reproduce must be a folder of this machine, got:", uri);
}

Status check_output(const SampleJobsFlags& flags, const std::string& output) {
  std::error_code failure;
  if (!flags.record_file.empty() && std::filesystem::equivalent(parent_folder(flags.record_file), output, failure)) {
    return Status::invalid_argument("--output is the folder of the record, whose pictures would be painted over; name another:", output);
  }
  if (std::filesystem::exists(output, failure) && !std::filesystem::is_directory(output, failure)) {
    return Status::invalid_argument("--output of --jobs and --reproduce names a folder, but this is a file:", output);
  }
  return Status::ok();
}

nlohmann::json summary_of(const PictureRunReport& report, double seconds) {
  return {{"rows_in", report.num_asked},
          {"rows_out", report.num_kept + report.num_painted},
          {"rows_by_error", nlohmann::json::object()},
          {"rows_asked", report.num_asked},
          {"rows_kept", report.num_kept},
          {"rows_written", report.num_painted},
          {"sheets", report.num_sheets},
          {"retries", 0},
          {"seconds", seconds},
          {"rows_per_second", static_cast<double>(report.num_painted) / seconds},
          {"device", report.place.device.str()},
          {"precision", float_type_name(report.place.type)}};
}

Status paint(PictureRun& run, PainterSource source, const SampleJobsFlags& flags, const std::stop_token& stop, PictureRunReport& report) {
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, stop);
  DARKROOM_ASSIGN_OR_RETURN(run.output, local_output(flags.output));
  DARKROOM_RETURN_IF_ERROR(check_output(flags, run.output));
  DARKROOM_ASSIGN_OR_RETURN(const SourceCopies copies, fetch_source(*stores, source, stop));
  PaintingProgressLine progress("sample");
  return paint_pictures(
      local_files(), run, [&] { return open_picture_model(source); }, stop, report, progress.teller());
}

}  // namespace

Result<int> run_sample_jobs(const SampleJobsFlags& flags, const PainterFlags& given_painter, VerbContext& context) {
  const auto start = std::chrono::steady_clock::now();
  PainterFlags painter = given_painter;
  int threads = flags.threads > 0 ? flags.threads : num_processors();
  DARKROOM_RETURN_IF_ERROR(check_flags(flags, context.given));
  DARKROOM_ASSIGN_OR_RETURN(PictureRun run,
                            flags.record_file.empty() ? plan_jobs(flags, context.given) : plan_reproduction(flags, painter, threads));
  DARKROOM_ASSIGN_OR_RETURN(const PainterSource source, chosen_source(painter));
  at::set_num_threads(threads);
  const std::string recorded_model = run.origin.model;
  run.origin = origin_of(source, threads);
  run.origin.model = recorded_model.empty() ? run.origin.model : recorded_model;
  run.workers = flags.threads == 0 && flags.workers == 0 ? 1 : flags.workers;  // One picture after another where each has every processor.
  PictureRunReport report;
  const Status status = paint(run, source, flags, context.stop, report);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  context.summary["sample"] = summary_of(report, seconds);
  DARKROOM_RETURN_IF_ERROR(status);
  log_info("painted {} pictures in {:.1f} s, {} were there; {} sheets: {}", report.num_painted, seconds, report.num_kept, report.num_sheets,
           flags.output);
  return 0;
}

}  // namespace darkroom
