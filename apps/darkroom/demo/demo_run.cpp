#include "demo_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "corpus_pictures.h"
#include "corpus_split.h"
#include "corpus_web.h"
#include "darkroom/core/log.h"
#include "darkroom/encode/process_job.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/png.h"
#include "darkroom/ingest/download_job.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/show/run_report.h"
#include "darkroom/train/checkpoint.h"
#include "darkroom/train/run_files.h"
#include "demo_folder.h"
#include "demo_painting.h"
#include "demo_sheet.h"
#include "demo_tools.h"
#include "demo_training.h"
#include "latents_subset.h"
#include "opening/open_painter.h"
#include "opening/open_stores.h"
#include "planted_troubles.h"
#include "reconstruction.h"

namespace darkroom {
namespace {

using SteadyClock = std::chrono::steady_clock;
using nlohmann::json;

// Each slow drip of the corpus costs the whole deadline; they overlap. The later deadlines are for a machine that is so slow
// or so busy that good pictures miss the earlier one, too.
constexpr std::chrono::seconds kFetchDeadlines[] = {std::chrono::seconds(6), std::chrono::seconds(60)};
constexpr size_t kSubsetRows = 512;
constexpr size_t kMeasuredCaptions = 200;
constexpr uint64_t kMeasureSeed = 1;  // Draws the captions; picture i is painted from seed 1 + i.
constexpr size_t kPreviewPrompts = 8;
constexpr size_t kSheetColumns = 8;
constexpr int64_t kTrainingBatch = 32;  // In a few minutes more steps teach more than larger batches.
constexpr int kPaintingThreads = 1;     // Of each batch; batches are painted side by side. Part of the bits.

double seconds_since(SteadyClock::time_point start) { return std::chrono::duration<double>(SteadyClock::now() - start).count(); }

Result<std::unique_ptr<Painter>> open_weights(const std::string& model_or_checkpoint) {
  PainterSource source;
  source.model = model_or_checkpoint;
  return open_painter(source);
}

struct SheetPainter {
  std::string title;
  Painter* painter;
};

/// One demo. The stages run in order, each leaves what the next ones need in the members.
class Demo {
 public:
  Demo(const DemoOptions& options, json& summary, const std::stop_token& stop)
      : options_(options), summary_(summary), stop_(stop), start_(SteadyClock::now()) {}

  Status run() {
    DARKROOM_RETURN_IF_ERROR(prepare());
    const std::pair<const char*, Status (Demo::*)()> stages[] = {{"corpus", &Demo::make_corpus}, {"download", &Demo::download},
                                                                 {"process", &Demo::process},    {"train", &Demo::train},
                                                                 {"sample", &Demo::sample},      {"sheet", &Demo::draw_sheet}};
    for (const auto& [name, stage] : stages) {
      DARKROOM_RETURN_IF_ERROR((this->*stage)().with_context(fmt::format("stage {}", name)));
    }
    return finish();
  }

 private:
  Status prepare();
  Status make_corpus();
  Status download();
  Status process();
  Status train();
  Status sample();
  Status draw_sheet();
  Status finish();

  Status choose_subset();
  Status download_within(std::chrono::seconds deadline);
  Result<std::vector<Image>> paint(Painter& painter, std::span<const std::string> captions, const std::string& what);
  Result<RetrievalShares> measure(Painter& painter, const std::string& name, std::span<const size_t> rows);
  Result<SheetBand> make_band(std::string heading, std::span<const std::string> prompts, std::span<const SheetPainter> painters);
  double corpus_size() const { return static_cast<double>(corpus_.size()); }
  int resolution() const { return static_cast<int>(recipe_.data.resolution); }

  const DemoOptions& options_;
  json& summary_;
  std::stop_token stop_;
  SteadyClock::time_point start_;
  FileSystem& files_ = local_files();
  DemoTools tools_;
  DemoFolder folder_;
  std::unique_ptr<FileLock> lock_;  // Null where the file system knows no locks.
  Recipe recipe_;
  std::unique_ptr<TroubledWeb> web_;  // From corpus to download.
  uint16_t web_port_ = 0;
  PlantedTroubles planted_;
  CorpusPictures corpus_;
  CorpusSplit split_;
  std::vector<ReducedPicture> reduced_;  // The corpus's pictures as retrieval compares them.
  std::vector<size_t> subset_rows_;      // Of the corpus, in its order.
  TrainSummary training_;
  std::unique_ptr<Painter> shipped_;
  std::unique_ptr<Painter> trained_;
  double painting_seconds_ = 0;
  size_t num_painted_ = 0;
};

Status Demo::prepare() {
  DARKROOM_ASSIGN_OR_RETURN(tools_, find_demo_tools(options_.model));
  DARKROOM_ASSIGN_OR_RETURN(recipe_, load_recipe(files_, tools_.recipe));
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files_.exists(options_.output));
  DARKROOM_RETURN_IF_ERROR(exists ? Status::ok() : files_.create_folders(options_.output));
  auto lock = files_.try_lock(options_.output);
  if (lock.is_ok() && lock.value() == nullptr) {
    return Status::failed_precondition("another demo is running in this folder; wait for it or name another OUT:", options_.output);
  }
  lock_ = lock.is_ok() ? std::move(lock).value() : nullptr;
  DARKROOM_ASSIGN_OR_RETURN(folder_, prepare_demo_folder(files_, options_.output));
  summary_ = json::object();
  return Status::ok();
}

Status Demo::make_corpus() {
  const auto start = SteadyClock::now();
  DARKROOM_ASSIGN_OR_RETURN(web_, make_corpus_web(tools_, folder_.corpus(), static_cast<uint64_t>(options_.seed), stop_));
  web_port_ = web_->port();
  DARKROOM_ASSIGN_OR_RETURN(const std::string expected, read_file(files_, join_path(folder_.corpus(), "expected.json")));
  DARKROOM_ASSIGN_OR_RETURN(planted_, PlantedTroubles::parse(expected));
  const double seconds = seconds_since(start);
  summary_["corpus"] = {{"rows_in", planted_.rows},
                        {"rows_out", planted_.rows},
                        {"rows_by_error", json::object()},
                        {"retries", 0},
                        {"seconds", seconds},
                        {"rows_per_second", static_cast<double>(planted_.rows) / seconds}};
  log_info("demo 1/5 corpus: {} URLs in {:.1f} s, {} of them to a picture; served at {} with the troubles of the web", planted_.rows,
           seconds, planted_.good_rows, web_->url());
  return Status::ok();
}

Status Demo::download() {
  return download_in_time(kFetchDeadlines, [this](std::chrono::seconds deadline) -> Status {
    if (web_ == nullptr) {  // The one before has given its passing troubles already.
      DARKROOM_ASSIGN_OR_RETURN(web_, TroubledWeb::start(folder_.corpus(), web_port_));
    }
    const Status downloaded = download_within(deadline);
    web_.reset();
    return downloaded;
  });
}

// One download of the whole corpus, in which every row must end within `deadline`.
Status Demo::download_within(std::chrono::seconds deadline) {
  DARKROOM_RETURN_IF_ERROR(files_.remove_tree(folder_.images()));
  DownloadOptions download{.output = folder_.images(), .metadata = {join_path(folder_.corpus(), "urls.parquet")}};
  download.fetch.timeout = deadline;
  DARKROOM_ASSIGN_OR_RETURN(const AllowedNetwork web, AllowedNetwork::parse(fmt::format("127.0.0.1/32:{}", web_port_)));
  download.fetch.allow_private.push_back(web);
  StageSummary result;
  MetricsRegistry metrics;
  const std::unique_ptr<StoreSet> stores = open_stores(metrics, stop_);
  const Status downloaded = run_download(*stores, download, stop_, result);
  summary_["download"] = result.to_json();
  DARKROOM_RETURN_IF_ERROR(downloaded);
  const int num_retries = download.fetch.num_retries;
  const Status verdict = check_download(planted_, result, num_retries);
  summary_["download"]["expected"] = planted_.to_json(num_retries);
  summary_["download"]["as_planted"] = verdict.is_ok();
  DARKROOM_RETURN_IF_ERROR(verdict.with_context(fmt::format("with a deadline of {} s for each URL", deadline.count())));
  log_info("demo 2/5 download: {} pictures in {:.1f} s; {} URLs failed and {} were tried again, exactly as planted", result.rows_out,
           result.seconds, result.rows_failed(), result.retries);
  return Status::ok();
}

Status Demo::process() {
  ProcessOptions process;
  process.input = folder_.images();
  process.output = folder_.latents();
  process.model = tools_.model;
  process.transform.resolution = resolution();
  process.seed = static_cast<uint64_t>(options_.seed);
  MetricsRegistry metrics;
  const std::unique_ptr<StoreSet> stores = open_stores(metrics, stop_);
  StageSummary result;
  const Status processed = run_process(*stores, process, stop_, result);  // Its own pictures: they need no sandbox.
  summary_["process"] = result.to_json();
  DARKROOM_RETURN_IF_ERROR(processed);
  if (result.rows_failed() > 0) {
    return Status::internal("the corpus lost pictures on the way to latents (rows in, rows out):", result.rows_in, result.rows_out);
  }
  DARKROOM_ASSIGN_OR_RETURN(corpus_, read_corpus_pictures(files_, folder_.images(), process.transform, stop_));
  DARKROOM_ASSIGN_OR_RETURN(const std::string held_out, read_file(files_, join_path(folder_.corpus(), "held_out.json")));
  DARKROOM_ASSIGN_OR_RETURN(const std::set<std::string> held_out_captions, parse_held_out(held_out));
  DARKROOM_ASSIGN_OR_RETURN(split_, split_corpus(corpus_, held_out_captions));
  for (const Image& picture : corpus_.pictures) {
    reduced_.push_back(reduce_picture(picture));
  }
  log_info("demo 3/5 process: latents and text states of {} pictures at {} px in {:.1f} s", result.rows_out, resolution(), result.seconds);
  return Status::ok();
}

// The sheet's prompts and training rows drawn by the seed: few enough that minutes suffice to learn them.
Status Demo::choose_subset() {
  DARKROOM_ASSIGN_OR_RETURN(subset_rows_,
                            choose_subset_rows(corpus_, split_, sheet_prompts(), static_cast<uint64_t>(options_.seed), kSubsetRows));
  std::set<std::string> keys;
  for (const size_t row : subset_rows_) {
    keys.insert(corpus_.keys[row]);
  }
  return write_latents_subset(files_, folder_.latents(), folder_.train_latents(), keys).status();
}

Status Demo::train() {
  DARKROOM_RETURN_IF_ERROR(choose_subset());
  DemoTrainingOptions training{
      .recipe = recipe_, .run = folder_.run(), .trial_run = folder_.trial_run(), .seconds = 60.0 * options_.minutes};
  training.recipe.model.path = tools_.model;
  training.recipe.model.start = "random";
  training.recipe.data.path = folder_.train_latents();
  training.recipe.runtime.seed = options_.seed;
  training.recipe.batch = {.global = kTrainingBatch, .micro = kTrainingBatch / 2};
  const auto prompts = sheet_prompts().first(kPreviewPrompts);
  training.recipe.samples.prompts.assign(prompts.begin(), prompts.end());
  const Status trained = train_for_time(files_, training, stop_, training_);
  summary_["train"] = training_.to_json();
  summary_["train"]["subset"] = {{"rows", subset_rows_.size()}, {"of", corpus_.size()}, {"seed", options_.seed}};
  DARKROOM_RETURN_IF_ERROR(trained);
  DARKROOM_RETURN_IF_ERROR(write_run_report(files_, folder_.run()));
  log_info("demo 4/5 train: {} steps on {} pictures in {:.0f} s from random weights: loss {:.3f} -> {:.3f}, {:.0f} img/s", training_.steps,
           training_.rows, training_.seconds, training_.loss_first, training_.loss_last, training_.images_per_second);
  return Status::ok();
}

Result<std::vector<Image>> Demo::paint(Painter& painter, std::span<const std::string> captions, const std::string& what) {
  const auto start = SteadyClock::now();
  DARKROOM_ASSIGN_OR_RETURN(std::vector<Image> images, paint_captions(painter, captions, kMeasureSeed, resolution(), what, stop_));
  painting_seconds_ += seconds_since(start);
  num_painted_ += images.size();
  return images;
}

Result<RetrievalShares> Demo::measure(Painter& painter, const std::string& name, std::span<const size_t> rows) {
  std::vector<std::string> captions;
  for (const size_t row : rows) {
    captions.push_back(corpus_.captions[row]);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<Image> painted, paint(painter, captions, "measure " + name));
  return rank_paintings(painted, rows, reduced_);
}

Status Demo::sample() {
  at::set_num_threads(kPaintingThreads);
  DARKROOM_ASSIGN_OR_RETURN(const auto checkpoints, list_checkpoints(files_, join_path(folder_.run(), kRunCheckpointsFolder)));
  if (checkpoints.empty()) {
    return Status::not_found("the training run left no checkpoint:", folder_.run());
  }
  DARKROOM_ASSIGN_OR_RETURN(shipped_, open_weights(tools_.model));
  DARKROOM_ASSIGN_OR_RETURN(trained_, open_weights(checkpoints.back().path));
  const auto known = draw_from(split_.training, kMeasureSeed, "demo/shipped", kMeasuredCaptions);
  const auto held_out = draw_from(split_.held_out, kMeasureSeed, "demo/held-out", kMeasuredCaptions);
  const auto learnt = draw_from(subset_rows_, kMeasureSeed, "demo/trained", kMeasuredCaptions);
  const std::tuple<const char*, Painter&, std::span<const size_t>> measured[] = {
      {"shipped", *shipped_, known}, {"heldout_shipped", *shipped_, held_out}, {"trained", *trained_, learnt}};
  json& retrieval = summary_["retrieval"];
  retrieval = {{"pictures", corpus_.size()}, {"chance_top1", 1.0 / corpus_size()}, {"chance_top5", 5.0 / corpus_size()}};
  for (const auto& [name, painter, rows] : measured) {
    DARKROOM_ASSIGN_OR_RETURN(const RetrievalShares shares, measure(painter, name, rows));
    retrieval[fmt::format("{}_captions", name)] = rows.size();
    retrieval[fmt::format("{}_top1", name)] = shares.top1;
    retrieval[fmt::format("{}_top5", name)] = shares.top5;
  }
  DARKROOM_ASSIGN_OR_RETURN(const AutoencoderKL vae, load_vae(join_path(tools_.model, "vae")));
  DARKROOM_ASSIGN_OR_RETURN(summary_["reconstruction_psnr_db"], mean_reconstruction_psnr_db(vae, corpus_.pictures, known, stop_));
  DARKROOM_ASSIGN_OR_RETURN(summary_["heldout_reconstruction_psnr_db"],
                            mean_reconstruction_psnr_db(vae, corpus_.pictures, held_out, stop_));
  log_info("demo 5/5 sample: {} pictures painted in {:.1f} s and each compared with all {}", num_painted_, painting_seconds_,
           corpus_.size());
  return Status::ok();
}

// A row for each of: the corpus's pictures, their decoded latents, what the painters make of the prompts.
Result<SheetBand> Demo::make_band(std::string heading, std::span<const std::string> prompts, std::span<const SheetPainter> painters) {
  SheetBand band{std::move(heading), {prompts.begin(), prompts.end()}, {}};
  SheetRow originals{"corpus picture", {}};
  std::vector<std::string> keys;
  for (const std::string& prompt : prompts) {
    DARKROOM_ASSIGN_OR_RETURN(const size_t row, corpus_.find_caption(prompt));
    originals.pictures.push_back(corpus_.pictures[row]);
    keys.push_back(corpus_.keys[row]);
  }
  band.rows.push_back(std::move(originals));
  DARKROOM_ASSIGN_OR_RETURN(const torch::Tensor latents, read_latents_of(files_, folder_.latents(), resolution(), keys));
  band.rows.push_back({"decoded latents", shipped_->decode(latents)});
  for (const auto& [title, painter] : painters) {
    DARKROOM_ASSIGN_OR_RETURN(std::vector<Image> painted, paint(*painter, prompts, fmt::format("the sheet: {}", title)));
    band.rows.push_back({title, std::move(painted)});
  }
  return band;
}

Status Demo::draw_sheet() {
  const SheetPainter both[] = {{"trained now", trained_.get()}, {"shipped weights", shipped_.get()}};
  const auto prompts = sheet_prompts();
  std::vector<SheetBand> bands;
  for (size_t first = 0; first < prompts.size(); first += kSheetColumns) {
    const char* heading = first == 0 ? "training pictures, painted from memory:" : "more training pictures:";
    DARKROOM_ASSIGN_OR_RETURN(SheetBand band, make_band(heading, prompts.subspan(first, kSheetColumns), both));
    bands.push_back(std::move(band));
  }
  DARKROOM_ASSIGN_OR_RETURN(
      SheetBand held_out,
      make_band("held-out pictures: persons and skin tones that no training saw together:", held_out_sheet_prompts(), {both + 1, 1}));
  bands.push_back(std::move(held_out));
  const std::string heading[] = {
      "darkroom demo: pictures painted from their captions alone, at " + fmt::format("{0} x {0} pixels", resolution()),
      fmt::format("trained now: {} steps in {:.1f} minutes on this machine, from random weights. shipped weights: the model folder {}.",
                  training_.steps, training_.seconds / 60.0, file_name(tools_.model))};
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, folder_.sheet(), encode_png(draw_demo_sheet(heading, bands))));
  summary_["sample"] = {{"rows_in", num_painted_},         {"rows_out", num_painted_},
                        {"rows_by_error", json::object()}, {"retries", 0},
                        {"seconds", painting_seconds_},    {"rows_per_second", static_cast<double>(num_painted_) / painting_seconds_}};
  return Status::ok();
}

Status Demo::finish() {
  const double seconds = seconds_since(start_);
  summary_["seconds_total"] = seconds;
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(files_, folder_.summary(), summary_.dump(2) + "\n"));
  const json& retrieval = summary_["retrieval"];
  const auto percent = [&](const char* name) { return 100.0 * retrieval[name].get<double>(); };
  log_info("demo done in {:.0f} s. The own picture of a painted caption is the nearest of {} (among the nearest 5):", seconds,
           corpus_.size());
  log_info("  shipped weights: {:.1f} % ({:.1f} %) of held-out captions, whose pictures no training saw; chance is {:.2f} % ({:.2f} %)",
           percent("heldout_shipped_top1"), percent("heldout_shipped_top5"), percent("chance_top1"), percent("chance_top5"));
  log_info("  memorised training pictures: {:.1f} % ({:.1f} %) by the shipped weights, {:.1f} % ({:.1f} %) of {} trained now",
           percent("shipped_top1"), percent("shipped_top5"), percent("trained_top1"), percent("trained_top5"), subset_rows_.size());
  log_info("  the VAE reconstructs held-out pictures with {:.1f} dB, training pictures with {:.1f} dB",
           summary_["heldout_reconstruction_psnr_db"].get<double>(), summary_["reconstruction_psnr_db"].get<double>());
  log_info("look at {}, then {} and {}", folder_.sheet(), join_path(folder_.run(), kRunReportFile), folder_.summary());
  return Status::ok();
}

}  // namespace

Status DemoOptions::validate() const {
  constexpr double kMostMinutes = 7 * 24 * 60;
  if (output.empty()) {
    return Status::invalid_argument("OUT must name a folder, got:", "''");
  }
  if (!(minutes > 0 && minutes <= kMostMinutes)) {
    return Status::invalid_argument("--minutes must be above 0 and at most 10080, got:", minutes);
  }
  if (seed < 0) {
    return Status::invalid_argument("--seed must be 0 or more, got:", seed);
  }
  return Status::ok();
}

Status run_demo(const DemoOptions& options, json& summary, const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  return Demo(options, summary, stop).run();
}

}  // namespace darkroom
