#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/feed/dataset_files.h"
#include "darkroom/files/file_system.h"
#include "darkroom/paint/sample_job.h"
#include "opening/open_stores.h"
#include "opening/remote_models.h"
#include "painting/painter_flags.h"
#include "painting/painting_progress.h"
#include "painting/sample_jobs.h"
#include "verb.h"

namespace darkroom {
namespace {

struct SampleFlags {
  PainterFlags painter;
  SampleJob job;
  SampleJobsFlags jobs;
  int threads = 1;  // 0: every processor.
};

// One picture after another where each has every processor.
void set_up_threads(int threads, SampleJob& job) {
  at::set_num_threads(threads > 0 ? threads : num_processors());
  if (threads == 0 && job.workers == 0) {
    job.workers = 1;
  }
}

nlohmann::json summary_of(const SampleReport& report, const SampleJob& job, const NetworkPlace& place, double seconds) {
  return {{"rows_in", report.num_painted},
          {"rows_out", report.num_painted},
          {"rows_by_error", nlohmann::json::object()},
          {"rows_asked", report.num_asked},
          {"rows_written", report.num_written},
          {"retries", 0},
          {"seconds", seconds},
          {"rows_per_second", static_cast<double>(report.num_painted) / seconds},
          {"sampler", report.sampler},
          {"steps", job.request.sampler.num_steps},
          {"device", place.device.str()},
          {"precision", float_type_name(place.type)}};
}

// Paints on this machine and shows how far it is.
Status paint_here(const SampleJob& job, const PainterSource& source, const std::stop_token& stop, SampleReport& report) {
  PaintingProgressLine progress("sample");
  return run_sample_job(
      local_files(), job, [&] { return open_painter(source); }, stop, report, progress.teller());
}

// Paints with a model from anywhere to anywhere.
Status paint(const SampleJob& asked, PainterSource source, const std::stop_token& stop, SampleReport& report) {
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, stop);
  SampleJob job = asked;
  DARKROOM_ASSIGN_OR_RETURN(const OutputPlace output, OutputPlace::open(*stores, asked.output));
  job.output = output.path();
  std::optional<OutputPlace> latents;
  if (!asked.latents_output.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(latents, OutputPlace::open(*stores, asked.latents_output));
    job.latents_output = latents->path();
  }
  DARKROOM_ASSIGN_OR_RETURN(const SourceCopies copies, fetch_source(*stores, source, stop));
  DARKROOM_RETURN_IF_ERROR(paint_here(job, source, stop, report));
  DARKROOM_RETURN_IF_ERROR(output.store());
  return latents.has_value() ? latents->store() : Status::ok();
}

// What the flags of single pictures say, for --jobs.
SampleJobsFlags jobs_flags_of(const SampleFlags& flags) {
  const PaintRequest& request = flags.job.request;
  SampleJobsFlags jobs = flags.jobs;
  jobs.output = flags.job.output;
  jobs.workers = flags.job.workers;
  jobs.threads = flags.threads;
  jobs.images = static_cast<uint64_t>(flags.job.images_per_prompt);
  jobs.fields = {.negative = request.negative,
                 .seed = flags.job.seed,
                 .sampler = request.sampler.name,
                 .steps = static_cast<uint64_t>(request.sampler.num_steps),
                 .guidance = request.guidance,
                 .guidance_rescale = request.guidance_rescale,
                 .eta = request.sampler.eta,
                 .width = static_cast<uint64_t>(request.width),
                 .height = static_cast<uint64_t>(request.height),
                 .prompt_syntax = std::string(prompt_syntax_name(request.reading.syntax)),
                 .long_prompts = std::string(long_prompts_name(request.reading.long_prompts)),
                 .init_image = flags.job.init_image,
                 .strength = request.strength};
  return jobs;
}

Result<int> run_sample(const SampleFlags& flags, VerbContext& context) {
  if (flags.jobs.are_asked_for()) {
    return run_sample_jobs(jobs_flags_of(flags), flags.painter, context);
  }
  const auto start = std::chrono::steady_clock::now();
  DARKROOM_ASSIGN_OR_RETURN(const PainterSource source, chosen_source(flags.painter));
  if (source.place == NetworkPlace{.device = torch::kCPU, .type = torch::kFloat16}) {
    log_warning("sample: few processors have instructions for float16, so that it is many times slower here than float32 or bfloat16");
  }
  SampleJob job = flags.job;
  job.model = recorded_uri(source.model);
  job.weights = source.weights;
  set_up_threads(flags.threads, job);
  SampleReport report;
  const Status status = paint(job, source, context.stop, report);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  context.summary["sample"] = summary_of(report, job, source.place, seconds);
  DARKROOM_RETURN_IF_ERROR(status);
  log_info("painted {} pictures in {:.1f} s ({}, {} steps, guidance {}): {}", report.num_written, seconds, report.sampler,
           job.request.sampler.num_steps, job.request.guidance, job.output);
  return 0;
}

void add_prompt_flags(VerbDefinition& verb, SampleFlags& flags) {
  verb.group("What to paint");
  verb.flag("--prompt", value::free_texts(flags.job.prompts, "TEXT"), "what to paint; several texts give several pictures");
  verb.flag("--prompts-file", value::path(flags.job.prompts_file, "PATH", "none"), "one prompt a line");
  verb.flag("--negative", value::free_text(flags.job.request.negative, "TEXT"), "what guidance leads away from");
  verb.flag("--init-image", value::path(flags.job.init_image, "PATH", "none"),
            "start from this picture (image to image) instead of noise alone; JPEG, PNG or WebP");
  verb.flag("--strength", value::number(flags.job.request.strength).above(0).most(1).shown("S"),
            "with --init-image: share of the steps taken");
  verb.flag("--seed", value::count(flags.job.seed), "image j of every prompt uses seed + j");
  verb.flag("--images", value::count(flags.job.images_per_prompt).least(1), "pictures per prompt");
  verb.flag("--size", value::picture_size(flags.job.request.width, flags.job.request.height), "of the pictures");
  add_reading_flags(verb, flags.job.request.reading);
}

void add_jobs_flags(VerbDefinition& verb, SampleJobsFlags& jobs) {
  verb.group("Many pictures from a file");
  verb.flag(
      "--jobs", value::path(jobs.jobs_file, "FILE.toml", "none"),
      "templates, lists of words, styles, seeds and grids over any field (docs/formats/jobs.md); --output is a folder then, and other "
      "flags fill in what the file leaves open");
  verb.flag("--max-pictures", value::count(jobs.max_pictures).least(1), "that a job file may ask for; checked before any is painted")
      .only_with("--jobs");
  verb.flag("--reproduce", value::path(jobs.record_file, "pictures.json", "none"),
            "paint the pictures that a record of --jobs names once more, and compare their bytes; --output is another folder");
  verb.flag("--only", value::texts(jobs.only, "NAME"), "of the record: jobs, or pictures such as apples/00007.png")
      .only_with("--reproduce");
  verb.flag("--init-images", value::folder(jobs.init_images, "DIR", "none"),
            "folder below which initial pictures of the record may lie; without it only those below the record's own folder are opened")
      .only_with("--reproduce");
}

void add_painting_flags(VerbDefinition& verb, SampleFlags& flags) {
  verb.group("How to paint");
  add_sampler_flags(verb, flags.job.request);
  verb.flag("--batch-size", value::count(flags.job.request.batch_size).least(1),
            "pictures in one call of the networks; changes the last bits of a picture");
  add_place_flags(verb, flags.painter);
  verb.flag("--workers", value::count(flags.job.workers).least(1).also("auto", 0),
            "such calls side by side on the CPU; changes no bit; auto: one per processor, as far as the memory holds");
  verb.flag(
      "--threads", value::count(flags.threads).least(1).also("auto", 0),
      "CPU threads inside an operation, which change the last bits of a picture; auto: every processor, for one picture after another");
}

void add_output_flags(VerbDefinition& verb, SampleFlags& flags) {
  verb.group("What is written");
  verb.flag("--output", value::uri(flags.job.output, "PATH.png"),
            "picture; several pictures become PATH-00000.png, PATH-00001.png, ...; with --jobs and --reproduce a folder")
      .required();
  verb.flag("--grid", value::toggle(flags.job.grid), "write one sheet with captions to PATH.png, besides numbered single files");
  verb.flag("--save-latents", value::uri(flags.job.latents_output, "PATH.safetensors", "none"),
            "tensor `latents`, float32 [N, C, h, w], scaled");
  verb.flag("--latents", value::path(flags.job.start_latents, "PATH.safetensors", "none"),
            "start noise of variance 1 instead of the seeds': tensor `latents`, float32 [N, C, h, w]");
}

}  // namespace

void add_sample_verb(CommandLine& line) {
  const auto flags = std::make_shared<SampleFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("sample", "checkpoint or model folder + prompts -> pictures");
  verb.group("Model");
  verb.flag("--model", value::uri(flags->painter.source.model, "DIR_or_CHECKPOINT"),
            "model folder, checkpoint, or original checkpoint of SD1 or SD2 as one safetensors file")
      .required_unless("--reproduce");
  add_source_flags(verb, flags->painter);
  add_prompt_flags(verb, *flags);
  add_jobs_flags(verb, flags->jobs);
  add_painting_flags(verb, *flags);
  add_output_flags(verb, *flags);
  verb.example("darkroom sample --model models/tiny --prompt 'a red apple' --output apple.png", "one picture");
  verb.example("darkroom sample --model run/checkpoints/step-00002000 --prompts-file prompts.txt --images 4 --grid --output sheet.png",
               "four pictures per line of a file, from a checkpoint, and a sheet of them");
  verb.example("darkroom sample --model models/tiny --jobs recipes/prompts.toml --output studies",
               "every picture that a job file asks for");
  verb.example("darkroom sample --reproduce studies/pictures.json --only apples/00007 --output again", "one of these once more");
  verb.run([flags](VerbContext& context) { return run_sample(*flags, context); });
}

}  // namespace darkroom
