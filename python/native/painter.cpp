#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "darkroom/core/metrics.h"
#include "darkroom/paint/painter.h"
#include "darkroom/paint/usable_samplers.h"
#include "darkroom/tensor/intra_op_threads.h"
#include "opening/open_painter.h"
#include "opening/open_stores.h"
#include "opening/remote_models.h"
#include "owned_array.h"

namespace nb = nanobind;

namespace darkroom {
namespace {

using Pixels = nb::ndarray<nb::numpy, uint8_t>;
using GivenPixels = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;

constexpr std::chrono::milliseconds kBetweenSignals(200);

/// A painter, which works, and goes, in its turn.
struct OpenPainter {
  OpenPainter(std::unique_ptr<Painter> opened, int num_threads)
      : painter(std::move(opened)), threads(num_threads), turn(painter->place().device.is_cpu() ? nullptr : &gpu_turn()) {}
  ~OpenPainter() {
    without_gil([this] {
      const auto held = take_turn(turn);
      painter.reset();
    });
  }
  OpenPainter(const OpenPainter&) = delete;
  OpenPainter& operator=(const OpenPainter&) = delete;

  std::unique_ptr<Painter> painter;
  int threads;
  GpuTurn* turn;  // Null on the CPU.
};

/// The settings of one picture, as Python gives them.
struct PictureSettings {
  std::string negative;
  int steps = 0;
  double guidance = 0;
  double guidance_rescale = 0;
  double eta = 0;
  std::string sampler;
  int width = 0;
  int height = 0;
  double strength = 0;
  std::string prompt_syntax;
  std::string long_prompts;
  std::optional<Image> init_image;
};

Result<std::unique_ptr<Painter>> load_painter(PainterSource source, const std::string& device, const std::string& precision) {
  DARKROOM_ASSIGN_OR_RETURN(source.place, find_network_place(device, precision, torch::kBFloat16));
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, {});
  DARKROOM_ASSIGN_OR_RETURN(const SourceCopies copies, fetch_source(*stores, source, {}));
  return open_painter(source, {}, source.place.device.is_cpu() ? nullptr : &gpu_turn());
}

std::unique_ptr<OpenPainter> open_named_painter(const std::string& model, const std::string& device, const std::string& precision,
                                                int threads, const std::string& weights, const std::string& frozen,
                                                const std::string& tokenizer_dialect, const std::string& prediction_type,
                                                const std::string& shipped_tokenizer) {
  if (threads < 1) {
    raise_failure(Status::invalid_argument("threads must be at least 1, got:", threads));
  }
  PainterSource source;
  source.model = model;
  source.weights = weights;
  source.frozen = frozen;
  source.prediction_type = prediction_type;
  source.shipped_tokenizer = shipped_tokenizer;
  source.tokenizer_dialect = tokenizer_dialect;
  return std::make_unique<OpenPainter>(value_or_raise(without_gil([&] { return load_painter(std::move(source), device, precision); })),
                                       threads);
}

template <typename T>
T named(const char* what, const std::string& name, std::string_view (*name_of)(T), std::initializer_list<T> values) {
  for (const T value : values) {
    if (name == name_of(value)) {
      return value;
    }
  }
  raise_failure(Status::invalid_argument(std::string(what) + " has no such value:", name));
}

PaintRequest request_of(const std::string& prompt, uint64_t seed, const PictureSettings& settings) {
  PaintRequest request;
  request.prompts = {prompt};
  request.seeds = {seed};
  request.negative = settings.negative;
  request.reading = {
      .syntax = named("prompt_syntax", settings.prompt_syntax, prompt_syntax_name, {PromptSyntax::kPlain, PromptSyntax::kWeighted}),
      .long_prompts = named("long_prompts", settings.long_prompts, long_prompts_name,
                            {LongPrompts::kAuto, LongPrompts::kTruncate, LongPrompts::kChunks})};
  request.sampler = {.name = settings.sampler, .num_steps = settings.steps, .eta = settings.eta};
  request.guidance = settings.guidance;
  request.guidance_rescale = settings.guidance_rescale;
  request.width = settings.width;
  request.height = settings.height;
  request.strength = settings.strength;
  request.batch_size = 1;
  if (settings.init_image) {
    request.init_images = {*settings.init_image};
  }
  return request;
}

void check_picture(const OpenPainter& open, const std::string& prompt, const PictureSettings& settings) {
  const PaintRequest request = request_of(prompt, 0, settings);
  raise_if_failed(check_prompts(request));
  raise_if_failed(without_gil([&] { return open.painter->check(request); }));
}

/// With the GIL: Ctrl-C.
void look_for_signals() {
  if (PyErr_CheckSignals() != 0) {
    throw nb::python_error();
  }
}

/// Between two steps, with the GIL: Ctrl-C, and who wants to know.
void look_up(const nb::object& callback, size_t num_taken, size_t num_steps) {
  look_for_signals();
  if (!callback.is_none()) {
    callback(num_taken, num_steps);
  }
}

/// What `work`, a piece of a picture, returns: done without the GIL, on a GPU in the painter's turn. Who waits for that hears of Ctrl-C.
template <typename Work>
auto in_turn(const OpenPainter& open, const Work& work) {
  std::optional<decltype(work())> done;
  const auto try_it = [&] {
    std::unique_lock<GpuTurn> held;
    if (open.turn != nullptr && !(held = std::unique_lock(*open.turn, kBetweenSignals)).owns_lock()) {
      return false;
    }
    done.emplace(work());
    return true;
  };
  while (!without_gil(try_it)) {
    look_for_signals();
  }
  return *std::move(done);
}

/// The picture that paint() gives in a batch of one, step by step.
Pixels paint_picture(OpenPainter& open, const std::string& prompt, uint64_t seed, const PictureSettings& settings,
                     const nb::object& callback) {
  const PaintRequest request = request_of(prompt, seed, settings);
  Painter& painter = *open.painter;
  const IntraOpThreads threads(open.threads);
  const auto work = value_or_raise(in_turn(open, [&] { return painter.begin(request); }));
  const auto step = [&] {
    PictureInWork* const picture = work.get();
    painter.step({&picture, 1});
    return picture->num_calls_left();
  };
  const size_t num_steps = work->num_calls_left();
  for (size_t num_left = num_steps; num_left > 0;) {
    num_left = in_turn(open, step);
    look_up(callback, num_steps - num_left, num_steps);
  }
  Image image = value_or_raise(in_turn(open, [&] { return painter.finish(*work); }));
  return owned_array(std::move(image.pixels), {static_cast<size_t>(image.height), static_cast<size_t>(image.width), size_t{3}});
}

Image image_of(const GivenPixels& pixels) {
  return {.width = static_cast<int>(pixels.shape(1)),
          .height = static_cast<int>(pixels.shape(0)),
          .num_channels = 3,
          .pixels = std::vector<uint8_t>(pixels.data(), pixels.data() + pixels.size())};
}

void bind_settings(nb::module_& module) {
  nb::class_<PictureSettings>(module, "PictureSettings")
      .def(nb::init<>())
      .def_rw("negative", &PictureSettings::negative)
      .def_rw("steps", &PictureSettings::steps)
      .def_rw("guidance", &PictureSettings::guidance)
      .def_rw("guidance_rescale", &PictureSettings::guidance_rescale)
      .def_rw("eta", &PictureSettings::eta)
      .def_rw("sampler", &PictureSettings::sampler)
      .def_rw("width", &PictureSettings::width)
      .def_rw("height", &PictureSettings::height)
      .def_rw("strength", &PictureSettings::strength)
      .def_rw("prompt_syntax", &PictureSettings::prompt_syntax)
      .def_rw("long_prompts", &PictureSettings::long_prompts)
      .def("start_from", [](PictureSettings& settings, const GivenPixels& pixels) { settings.init_image = image_of(pixels); });
}

}  // namespace

void bind_painter(nb::module_& module) {
  bind_settings(module);
  nb::class_<OpenPainter>(module, "Painter")
      .def(nb::new_(&open_named_painter), nb::arg("model"), nb::arg("device"), nb::arg("precision"), nb::arg("threads"), nb::arg("weights"),
           nb::arg("frozen"), nb::arg("tokenizer_dialect"), nb::arg("prediction_type"), nb::arg("shipped_tokenizer"))
      .def("check", &check_picture, nb::arg("prompt"), nb::arg("settings"))
      .def("paint", &paint_picture, nb::arg("prompt"), nb::arg("seed"), nb::arg("settings"), nb::arg("callback").none())
      .def(
          "lost_text",
          [](const OpenPainter& open, const std::string& prompt) {
            return value_or_raise(without_gil([&] { return open.painter->lost_text(prompt, {}); }));
          },
          nb::arg("prompt"))
      .def_prop_ro("samplers", [](const OpenPainter& open) { return usable_samplers(open.painter->scheduler()); })
      .def_prop_ro("native_size", [](const OpenPainter& open) { return open.painter->native_size(); })
      .def_prop_ro("size_multiple", [](const OpenPainter& open) { return open.painter->latent_factor(); });
}

}  // namespace darkroom
