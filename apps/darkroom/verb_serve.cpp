#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/serve/drain.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/painting_service.h"
#include "darkroom/web/address_policy.h"
#include "jobs/job_observation.h"
#include "painting/painter_flags.h"
#include "resources.h"
#include "serving/dataset_opener.h"
#include "serving/painter_opener.h"
#include "serving/safety_hook.h"
#include "verb.h"

namespace darkroom {
namespace {

constexpr const char* kSageMakerModel = "/opt/ml/model";
constexpr const char* kSageMakerModels = "/opt/ml/models";
constexpr std::chrono::seconds kLastCall{1};      // For what nobody waits for any more.
constexpr double kContainerDeadlineSeconds = 55;  // The platform gives up after 60 s, without a word of why.

struct ServeFlags {
  PainterFlags painter;  // Of all models.
  std::vector<std::string> models;
  std::string model_root;
  int64_t memory_bytes = 0;  // 0: usual_model_memory.
  std::string host = "127.0.0.1";
  bool is_host_given = false;  // Where they are not, a container has defaults of its own.
  int port = 8080;
  std::string keys;
  TlsFiles tls;
  double rate = 0;
  StepBatcherOptions batching = {.max_batch = 8, .queue_cost = 0};
  RequestLimits limits;
  double deadline_seconds = 60;
  bool is_deadline_given = false;
  int threads = 0;  // 0: every processor.
  PngSettings png_settings = PngSettings::kWebui;
  bool has_watermark = false;
  std::string safety_hook;
  bool is_sandboxed = true;
  ObservationFlags observation;
  std::vector<std::string> runs;
  std::vector<std::string> datasets;
};

bool is_loopback(const IpAddress& ip) { return ip.is_ipv4 ? ip.bytes[0] == 127 : ip.to_string() == "::1"; }

// In a container of SageMaker the platform asks for keys, outside of it; everywhere else somebody must.
Status take_container(ServeFlags& flags, bool& is_container) {
  if (!flags.models.empty()) {
    return Status::ok();
  }
  const char* const several = std::getenv("SAGEMAKER_MULTI_MODEL");
  is_container = several != nullptr && std::string_view(several) == "true";
  if (is_container && flags.model_root.empty()) {
    flags.model_root = kSageMakerModels;
  }
  if (is_container || !flags.model_root.empty()) {
    return Status::ok();  // Models come by requests.
  }
  DARKROOM_ASSIGN_OR_RETURN(is_container, local_files().exists(kSageMakerModel));
  if (!is_container) {
    return Status::invalid_argument(fmt::format("which model? Name one; without it {} is served, which is not there", kSageMakerModel));
  }
  flags.models = {kSageMakerModel};
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

/// "small=models/tiny" has the name before the first =, where no / stands before it; else the last part of the path is the name.
ModelEntry named_entry(const std::string& text) {
  const size_t equals = text.find('=');
  const bool is_named = equals != 0 && equals != std::string::npos && text.find('/') > equals;
  return {.name = is_named ? text.substr(0, equals) : file_name(without_trailing_slashes(text)),
          .address = is_named ? text.substr(equals + 1) : text};
}

// What cannot be served is refused at the start; models that lie elsewhere are looked at when they are first asked for.
Result<std::vector<ModelEntry>> read_models(const ServeFlags& flags, ServedPainters& opener, const std::stop_token& stop) {
  std::vector<ModelEntry> models;
  for (const std::string& text : flags.models) {
    ModelEntry model = named_entry(text);
    const bool is_there = std::ranges::any_of(models, [&](const ModelEntry& other) { return other.name == model.name; });
    if (model.name.empty() || model.address.empty() || is_there) {
      return Status::invalid_argument("each MODEL is a place, or NAME=PLACE, and has a name of its own, got:", text);
    }
    if (models.empty() || model.address.find("://") == std::string::npos) {
      DARKROOM_ASSIGN_OR_RETURN(const int64_t num_bytes, opener.measure(model, stop));
      if (num_bytes > flags.memory_bytes) {
        return Status::invalid_argument("the model is larger than --memory (model, bytes, bound):", text, num_bytes, flags.memory_bytes);
      }
    }
    models.push_back(std::move(model));
  }
  return models;
}

// Loads the first model, so that requests find it there and one that does not paint is refused with its reason.
Result<ModelFacts> fill_shelf(const ServeFlags& flags, ServedPainters& opener, ModelShelf& shelf, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<ModelEntry> models, read_models(flags, opener, stop));
  ModelFacts facts;
  for (const ModelEntry& model : models) {
    if (&model != &models.front()) {
      DARKROOM_RETURN_IF_ERROR(shelf.add(model));
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_bytes, opener.measure(model, stop));
    DARKROOM_ASSIGN_OR_RETURN(ServedModel loaded, opener.open(model, stop));
    facts = loaded.facts;
    DARKROOM_RETURN_IF_ERROR(shelf.add_loaded(model, num_bytes, std::move(loaded)));
  }
  return facts;
}

// A model may take minutes to load, and who renews the certificate meanwhile must not end the process: the files are read after that.
// A handler that does nothing, because programs that are started would inherit that the signal is ignored.
void outlive_hangups() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigaction(SIGHUP, &action, nullptr);
}

/// Why the server ends: the program is told to, or the GPU is lost, and whoever supervises the process shall start it anew.
class ServeEnd {
 public:
  explicit ServeEnd(const std::stop_token& asked) : asked_(asked, [this] { end_.request_stop(); }) {}
  std::stop_token token() const { return end_.get_token(); }
  void lose_device(const Status& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (lost_.is_ok()) {
        lost_ = reason;
        log_error("serve: {}; the server ends", reason.message());
      }
    }
    end_.request_stop();
  }
  Status lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  std::stop_source end_;
  mutable std::mutex mutex_;
  Status lost_;
  std::stop_callback<std::function<void()>> asked_;  // Last: it may be called at once.
};

/// What serves, in the order in which it ends: the server, then what hands orders to the batcher, then the batcher, whose orders answer
/// through the service, then the rest.
struct Serving {
  std::unique_ptr<JobObservation> observation = {};
  std::optional<ServedPainters> opener = {};
  ServedDatasets datasets = {};
  std::optional<PaintingService> service = {};
  std::optional<StepBatcher> batcher = {};
  std::optional<ModelShelf> shelf = {};
  std::optional<PictureIntake> intake = {};
  std::unique_ptr<HttpServer> server = {};
};

// Pictures are decoded as those of requests are, and without a decoder there are none: latents need none. The first model's autoencoder
// decodes latents.
Status open_datasets(const ServeFlags& flags, const std::vector<ModelEntry>& models, Serving& serving, const std::stop_token& stop) {
  if (flags.datasets.empty()) {
    return Status::ok();
  }
  DatasetPagesOptions options;
  if (!models.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(options.vae_folder, serving.opener->vae_folder(models.front(), stop));
  }
  options.open_decoder = [program = flags.is_sandboxed ? find_decoder() : Result<std::string>(std::string()),
                          limits = options.limits](const std::stop_token& ended) -> Result<std::unique_ptr<PictureDecoder>> {
    return program.is_ok() ? open_decoder(*program, limits, ended) : program.status();
  };
  return serving.datasets.open(flags.datasets, options, stop);
}

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

/// Whether all that may run for nobody ends by itself within kLastCall.
bool await_idle(const Serving& serving) {
  const Clock::Instant until = system_clock().now() + kLastCall;
  const auto left = [&] {
    return std::max(std::chrono::milliseconds(0), std::chrono::duration_cast<std::chrono::milliseconds>(until - system_clock().now()));
  };
  return serving.batcher->await_idle(left()) && serving.shelf->await_idle(left()) && serving.service->await_idle(left());
}

std::vector<std::string> names_of(const ModelShelf& shelf) {
  std::vector<std::string> names;
  for (ModelEntry& model : shelf.models()) {
    names.push_back(std::move(model.name));
  }
  return names;
}

Result<int> run_serve(const ServeFlags& asked, VerbContext& context) {
  ServeFlags flags = asked;
  if (!flags.tls.is_empty()) {
    outlive_hangups();
  }
  bool is_container = false;
  DARKROOM_RETURN_IF_ERROR(take_container(flags, is_container));
  DARKROOM_ASSIGN_OR_RETURN(const SocketAddress address, choose_address(flags, is_container));
  DARKROOM_ASSIGN_OR_RETURN(AccessKeys keys, read_keys(flags.keys));
  DARKROOM_ASSIGN_OR_RETURN(std::vector<ServedRun> runs, name_served_runs(flags.runs));
  SafetyCheck safety_check;
  if (!flags.safety_hook.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(safety_check, safety_program(flags.safety_hook));
  }
  if (flags.memory_bytes == 0) {
    DARKROOM_ASSIGN_OR_RETURN(flags.memory_bytes, usual_model_memory(flags.painter));
  }
  auto serving = std::make_unique<Serving>();
  DARKROOM_ASSIGN_OR_RETURN(serving->observation, JobObservation::start(flags.observation, {.verb = "serve", .has_own_route = true}));
  MetricsRegistry& metrics = serving->observation->registry();
  const auto end = std::make_shared<ServeEnd>(context.stop);  // Shared with the engines, which may outlive this call.
  PainterFlags painter = flags.painter;
  painter.source.is_one_of_several = flags.models.size() > 1 || !flags.model_root.empty();
  ServedPainters& opener = serving->opener.emplace(painter, flags.threads > 0 ? flags.threads : num_processors(), flags.batching.queue_cost,
                                                   [end](const Status& reason) { end->lose_device(reason); });
  StepBatcherOptions batching = flags.batching;
  batching.queue_cost = std::max(batching.queue_cost, 1.0);  // Each model brings its own bound.
  StepBatcher& batcher = serving->batcher.emplace(batching, metrics);
  ModelShelf& shelf = serving->shelf.emplace(ModelShelfOptions{.memory_bytes = flags.memory_bytes}, opener, metrics);
  DARKROOM_ASSIGN_OR_RETURN(const ModelFacts model, fill_shelf(flags, opener, shelf, context.stop));
  const double deadline = is_container && !flags.is_deadline_given ? kContainerDeadlineSeconds : flags.deadline_seconds;
  open_intake(flags, context.stop, serving->intake);
  DARKROOM_RETURN_IF_ERROR(open_datasets(flags, shelf.models(), *serving, context.stop));
  serving->service.emplace(PaintingServiceOptions{.model = model,
                                                  .models = &shelf,
                                                  .model_root = flags.model_root,
                                                  .limits = flags.limits,
                                                  .keys = std::move(keys),
                                                  .deadline = std::chrono::milliseconds(std::llround(1000 * deadline)),
                                                  .only_local_hosts = !is_container,
                                                  .rate_per_minute = flags.rate,
                                                  .png_settings = flags.png_settings,
                                                  .has_watermark = flags.has_watermark,
                                                  .safety_check = std::move(safety_check),
                                                  .intake = serving->intake.has_value() ? &*serving->intake : nullptr,
                                                  .runs = std::move(runs),
                                                  .datasets = serving->datasets.named()},
                           batcher, metrics);
  DARKROOM_ASSIGN_OR_RETURN(
      serving->server,
      HttpServer::start(*serving->service, {.address = address, .tls = flags.tls, .max_body_bytes = kMaxPictureBodyBytes}));
  const std::vector<std::string> names = names_of(shelf);
  log_info("serving {} at {}://{}", names.empty() ? "no model yet" : fmt::format("{}", fmt::join(names, ", ")),
           flags.tls.is_empty() ? "http" : "https", serving->server->address().to_string());
  system_clock().sleep_until(Clock::Instant::max(), end->token());
  drain({.server = *serving->server,
         .service = *serving->service,
         .batcher = batcher,
         .models = &shelf,
         .intake = serving->intake.has_value() ? &*serving->intake : nullptr});
  const int64_t num_pictures = batcher.num_pictures();
  context.summary["serve"] = {{"pictures", num_pictures}};
  serving->observation->tell_cost(context.summary["serve"]);
  serving->server.reset();
  serving->service->stop_finishing();
  serving->datasets.end();
  const Status lost = end->lost();
  const bool is_idle = await_idle(*serving);
  if (!is_idle) {
    log_warning("serve: a network call still runs, or a model or dataset is still read, for nobody; the process ends without it");
  }
  if (!is_idle || !lost.is_ok()) {  // What lies on a lost GPU cannot be given back either.
    context.ends_with_threads = true;
    static_cast<void>(serving.release());
  }
  DARKROOM_RETURN_IF_ERROR(lost);
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
      "MODEL", value::uris(flags.models, "MODEL"),
      fmt::format("model folders, checkpoints or original checkpoints, each as PLACE or NAME=PLACE; requests that name none get the first; "
                  "without any {} of a SageMaker container, at 0.0.0.0",
                  kSageMakerModel));
  verb.group("Model");
  add_source_flags(verb, flags.painter);
  add_place_flags(verb, flags.painter);
  verb.flag(
      "--memory", value::bytes(flags.memory_bytes).also("auto", 0),
      "for the weights of all models together: where it lacks, the model goes that was asked for least recently; auto: three quarters "
      "of the GPU's memory, on the CPU of what this process may use");
  verb.flag("--multi-model", value::folder(flags.model_root, "FOLDER", "none"),
            fmt::format("routes of SageMaker's containers of several models, which load what lies below FOLDER; {} where the platform sets "
                        "SAGEMAKER_MULTI_MODEL",
                        kSageMakerModels));
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
  verb.flag("--rate", value::number(flags->rate).least(0).most(1e6).also("none", 0).shown("N"),
            "requests for pictures per minute and key, of which a minute's worth may come at once; above it: 429");
  verb.flag("--tls-cert", value::path(flags->tls.certificate, "FILE", "none"),
            "serve by TLS 1.2 and later: the certificate and those by which it was signed, in PEM; SIGHUP has both files read again");
  verb.flag("--tls-key", value::path(flags->tls.key, "FILE", "none"), "its private key in PEM, without a password");
  verb.flag("--max-batch", value::count(flags->batching.max_batch).least(1).most(1024), "pictures in one network call");
  verb.flag("--queue-cost", value::number(flags->batching.queue_cost).least(0).also("auto", 0).shown("C"),
            "bound on width x height x (steps + 2) of all open pictures, above which requests get 429; auto: 32 of the size of the model "
            "that is asked");
  verb.flag("--max-side", value::count(flags->limits.max_side).least(8).most(16'384), "pixels of a side that a request may ask for");
  verb.flag("--max-steps", value::count(flags->limits.max_steps).least(1).most(1000),
            "steps that a request may ask for; one that names none gets 50, or as many as it may have");
  verb.flag("--max-images", value::count(flags->limits.max_images).least(1).most(100), "pictures that a request may ask for");
  verb.flag("--deadline", noted(value::seconds(flags->deadline_seconds).least(1).most(86'400), flags->is_deadline_given),
            "after which a request gets 503; a container's default is 55");
  verb.flag("--png-settings",
            value::choice(flags->png_settings, {{"a1111", PngSettings::kWebui}, {"on", PngSettings::kOn}, {"off", PngSettings::kOff}}),
            "prompts and settings as text in the PNGs, where whoever gets the file can read them: those of A1111's routes, all, or none");
  verb.flag("--watermark", value::toggle(flags->has_watermark),
            "mark pictures of at least 128 pixels a side as made by a machine, invisibly (inspect --watermark reads it)");
  verb.flag("--safety-hook", value::text(flags->safety_hook, "COMMAND", "none"),
            "program that gets each picture as a PNG on its stdin and writes allow or block; without an answer within 10 s: 503");
  verb.flag("--no-sandbox", value::toggle_off(flags->is_sandboxed),
            "decode pictures of requests in this process, where the kernel refuses the sandbox");
  add_metrics_flags(verb, flags->observation);
  verb.flag("--run", value::paths(flags->runs, "FOLDER"),
            "run folders of train whose curves and samples the page shows, also while they train");
  verb.flag("--dataset", value::uris(flags->datasets, "URI"),
            "datasets of images or latents, local or on a store, whose rows the page shows and searches");
  verb.example("darkroom serve models/tiny", "the tiny model at http://127.0.0.1:8080");
  verb.example("darkroom serve own=run/checkpoints/step-00002000 models/tiny --memory 8GB", "two models, by the names own and tiny");
  verb.example("darkroom serve run/checkpoints/step-00002000 --host 0.0.0.0 --keys keys.txt", "a checkpoint, for whoever has a key");
  verb.run([flags](VerbContext& context) { return run_serve(*flags, context); });
}

}  // namespace darkroom
