#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/painting_service.h"
#include "darkroom/web/address_policy.h"
#include "job_observation.h"
#include "open_stores.h"
#include "painter_engine.h"
#include "painter_flags.h"
#include "remote_models.h"
#include "resources.h"
#include "verb.h"

namespace darkroom {
namespace {

constexpr const char* kSageMakerModel = "/opt/ml/model";
constexpr std::chrono::seconds kDrainPatience{25};  // SIGKILL comes 30 s after SIGTERM.
constexpr std::chrono::seconds kLastWords{2};
constexpr std::chrono::seconds kLastCall{1};
constexpr double kContainerDeadlineSeconds = 55;  // The platform gives up after 60 s, without a word of why.
constexpr double kPicturesInQueue = 32;
constexpr size_t kMaxBodyBytes = 16'000'000;  // Of a request with a picture; what others may have is less.

struct ServeFlags {
  PainterFlags painter;
  std::string host = "127.0.0.1";
  bool is_host_given = false;  // Where they are not, a container has defaults of its own.
  int port = 8080;
  std::string keys;
  StepBatcherOptions batching = {.max_batch = 8, .queue_cost = 0};
  double deadline_seconds = 60;
  bool is_deadline_given = false;
  int threads = 0;  // 0: every processor.
  PngSettings png_settings = PngSettings::kWebui;
  bool is_sandboxed = true;
  ObservationFlags observation;
  std::vector<std::string> runs;
};

bool is_loopback(const IpAddress& ip) { return ip.is_ipv4 ? ip.bytes[0] == 127 : ip.to_string() == "::1"; }

// In a container of SageMaker the platform asks for keys, outside of it; everywhere else somebody must.
Status take_container(ServeFlags& flags, bool& is_container) {
  if (!flags.painter.source.model.empty()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(is_container, local_files().exists(kSageMakerModel));
  if (!is_container) {
    return Status::invalid_argument(fmt::format("which model? Name one; without it {} is served, which is not there", kSageMakerModel));
  }
  flags.painter.source.model = kSageMakerModel;
  return Status::ok();
}

Result<SocketAddress> choose_address(const ServeFlags& flags, bool is_container) {
  const std::string host = is_container && !flags.is_host_given ? "0.0.0.0" : flags.host;
  const auto ip = IpAddress::parse(host == "localhost" ? "127.0.0.1" : host);
  if (!ip.has_value()) {
    return Status::invalid_argument("--host must be localhost or an address, such as 127.0.0.1, 0.0.0.0 or ::1, got:", flags.host);
  }
  if (!is_container && flags.keys.empty() && !is_loopback(*ip)) {
    return Status::invalid_argument("whoever reaches this address could paint; give --keys FILE, or serve on loopback, --host:",
                                    flags.host);
  }
  return SocketAddress{.ip = *ip, .port = static_cast<uint16_t>(flags.port)};
}

Result<AccessKeys> read_keys(const std::string& path) {
  if (path.empty()) {
    return AccessKeys();
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(local_files(), path));
  return AccessKeys::parse(text, path);
}

Result<std::unique_ptr<PainterEngine>> open_engine(const ServeFlags& flags, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(PainterSource source, chosen_source(flags.painter));
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, stop);
  DARKROOM_ASSIGN_OR_RETURN(const SourceCopies copies, fetch_source(*stores, source, stop));
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<Painter> painter, open_painter(source));
  return PainterEngine::create(std::move(painter), flags.threads > 0 ? flags.threads : num_processors());
}

// The first picture takes longer than others, and shows whether the model paints at all.
Status warm_up(StepEngine& engine, const ModelFacts& model, const std::stop_token& stop) {
  const PictureSpec spec{.num_steps = 4, .width = model.native_size, .height = model.native_size};  // Every sampler takes 4 steps.
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<EnginePicture> picture, engine.begin(spec));
  EnginePicture* const one = picture.get();
  while (one->num_calls_left() > 0) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped while the first picture was painted");
    }
    engine.step(std::span(&one, 1));
  }
  engine.finish(*one);
  return Status::ok();
}

void drain(StepBatcher& batcher, HttpServer& server) {
  batcher.drain();
  server.drain();
  if (!server.await_quiet(kDrainPatience)) {
    log_warning("serve: requests that were not done within {} s are given up", kDrainPatience.count());
    batcher.give_up_all();
    server.await_quiet(kLastWords);
  }
  batcher.give_up_all();  // Jobs that nobody watches: who asked for them could not fetch their pictures any more.
}

/// What serves, in the order in which it ends: the server, then what reads pictures, then the batcher, whose orders answer through the
/// service, then the rest.
struct Serving {
  std::unique_ptr<PainterEngine> engine = {};
  std::unique_ptr<JobObservation> observation = {};
  std::optional<PaintingService> service = {};
  std::optional<StepBatcher> batcher = {};
  std::optional<PictureIntake> intake = {};  // Hands orders to the batcher.
  std::unique_ptr<HttpServer> server = {};
};

// A kernel that grants no sandbox, as a container's may, costs the requests with pictures and not the server.
void open_intake(const ServeFlags& flags, const std::stop_token& stop, std::optional<PictureIntake>& intake) {
  const PictureIntakeOptions options;
  const Result<std::string> program = flags.is_sandboxed ? find_decoder() : std::string();
  const Status checked = program.is_ok() ? check_decoder(*program, options.limits, stop) : program.status();
  if (!checked.is_ok()) {
    log_warning("serve: requests with pictures are refused, because there is no sandbox to decode them in (--no-sandbox does without): {}",
                checked.message());
    return;
  }
  intake.emplace(options, [program = *program, limits = options.limits](const std::stop_token& ended) {
    return open_decoder(program, limits, ended);
  });
}

StepBatcherOptions batching_of(const ServeFlags& flags, const ModelFacts& model) {
  const PictureSpec usual{.width = model.native_size, .height = model.native_size};
  StepBatcherOptions options = flags.batching;
  options.max_pixels = static_cast<double>(options.max_batch) * usual.width * usual.height;
  options.queue_cost = options.queue_cost == 0 ? kPicturesInQueue * usual.cost() : options.queue_cost;
  return options;
}

Result<int> run_serve(const ServeFlags& asked, VerbContext& context) {
  ServeFlags flags = asked;
  bool is_container = false;
  DARKROOM_RETURN_IF_ERROR(take_container(flags, is_container));
  DARKROOM_ASSIGN_OR_RETURN(const SocketAddress address, choose_address(flags, is_container));
  DARKROOM_ASSIGN_OR_RETURN(AccessKeys keys, read_keys(flags.keys));
  DARKROOM_ASSIGN_OR_RETURN(std::vector<ServedRun> runs, name_served_runs(flags.runs));
  auto serving = std::make_unique<Serving>();
  DARKROOM_ASSIGN_OR_RETURN(serving->observation, JobObservation::start(flags.observation, {.verb = "serve", .has_own_route = true}));
  MetricsRegistry& metrics = serving->observation->registry();
  DARKROOM_ASSIGN_OR_RETURN(serving->engine, open_engine(flags, context.stop));
  const ModelFacts model = serving->engine->facts(file_name(without_trailing_slashes(flags.painter.source.model)));
  DARKROOM_RETURN_IF_ERROR(warm_up(*serving->engine, model, context.stop));
  const double deadline = is_container && !flags.is_deadline_given ? kContainerDeadlineSeconds : flags.deadline_seconds;
  StepBatcher& batcher = serving->batcher.emplace(*serving->engine, batching_of(flags, model), metrics);
  open_intake(flags, context.stop, serving->intake);
  serving->service.emplace(PaintingServiceOptions{.model = model,
                                                  .limits = {},
                                                  .keys = std::move(keys),
                                                  .deadline = std::chrono::milliseconds(std::llround(1000 * deadline)),
                                                  .only_local_hosts = !is_container,
                                                  .png_settings = flags.png_settings,
                                                  .intake = serving->intake.has_value() ? &*serving->intake : nullptr,
                                                  .runs = std::move(runs)},
                           batcher, metrics);
  DARKROOM_ASSIGN_OR_RETURN(serving->server, HttpServer::start(*serving->service, {.address = address, .max_body_bytes = kMaxBodyBytes}));
  log_info("serving {} at http://{}", model.name, serving->server->address().to_string());
  system_clock().sleep_until(Clock::Instant::max(), context.stop);
  drain(batcher, *serving->server);
  const int64_t num_pictures = batcher.num_pictures();
  context.summary["serve"] = {{"pictures", num_pictures}};
  serving->server.reset();
  if (!batcher.await_idle(kLastCall)) {
    log_warning("serve: a network call still runs, for nobody; the process ends without it");
    context.ends_with_threads = true;
    static_cast<void>(serving.release());
  }
  return Status::cancelled("stopped; pictures painted:", num_pictures);
}

// Notes in `is_given` that the value was given.
ValueDefinition noted(ValueDefinition definition, bool& is_given) {
  definition.take = [take = std::move(definition.take), given = &is_given](const std::vector<std::string>& values) {
    *given = true;
    return take(values);
  };
  return definition;
}

void add_model_flags(VerbDefinition& verb, ServeFlags& flags) {
  verb.positional(
      "MODEL", value::uri(flags.painter.source.model, "MODEL"),
      fmt::format("model folder, checkpoint or original checkpoint; without it {} of a SageMaker container, at 0.0.0.0", kSageMakerModel));
  verb.group("Model");
  add_source_flags(verb, flags.painter);
  add_place_flags(verb, flags.painter);
  verb.flag("--threads", value::count(flags.threads).least(1).also("auto", 0),
            "CPU threads inside an operation, which change the last bits of a picture; auto: every processor");
}

}  // namespace

void add_serve_verb(CommandLine& line) {
  const auto flags = std::make_shared<ServeFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("serve", "model -> pictures over HTTP, many requests in one network call");
  add_model_flags(verb, *flags);
  verb.group("Server");
  verb.flag("--host", noted(value::text(flags->host, "ADDRESS"), flags->is_host_given),
            "where to listen; another address than loopback needs --keys; a container's default is 0.0.0.0");
  verb.flag("--port", value::count(flags->port).most(65'535), "where to listen; 0: one that is free, which the log names");
  verb.flag("--keys", value::path(flags->keys, "FILE", "none"), "keys, one a line, of which every request but liveness needs one");
  verb.flag("--max-batch", value::count(flags->batching.max_batch).least(1).most(1024), "pictures in one network call");
  verb.flag("--queue-cost", value::number(flags->batching.queue_cost).least(0).also("auto", 0).shown("C"),
            "bound on width x height x (steps + 2) of all open pictures, above which requests get 429; auto: 32 of the model's size");
  verb.flag("--deadline", noted(value::seconds(flags->deadline_seconds).least(1).most(86'400), flags->is_deadline_given),
            "after which a request gets 503; a container's default is 55");
  verb.flag("--png-settings",
            value::choice(flags->png_settings, {{"a1111", PngSettings::kWebui}, {"on", PngSettings::kOn}, {"off", PngSettings::kOff}}),
            "prompts and settings as text in the PNGs, where whoever gets the file can read them: those of A1111's routes, all, or none");
  verb.flag("--no-sandbox", value::toggle_off(flags->is_sandboxed),
            "decode pictures of requests in this process, where the kernel refuses the sandbox");
  add_metrics_flags(verb, flags->observation);
  verb.flag("--run", value::uris(flags->runs, "FOLDER"),
            "run folders of train whose curves and samples the page shows, also while they train");
  verb.later({"--memory", "--tls-cert", "--tls-key", "--watermark"});
  verb.example("darkroom serve models/tiny", "the tiny model at http://127.0.0.1:8080");
  verb.example("darkroom serve run/checkpoints/step-00002000 --host 0.0.0.0 --keys keys.txt", "a checkpoint, for whoever has a key");
  verb.run([flags](VerbContext& context) { return run_serve(*flags, context); });
}

}  // namespace darkroom
