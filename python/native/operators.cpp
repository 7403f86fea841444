#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrow_batches.h"
#include "bindings.h"
#include "darkroom/core/metrics.h"
#include "darkroom/encode/record_batches.h"
#include "darkroom/nn/placement.h"
#include "opening/open_stores.h"
#include "transform_names.h"

namespace nb = nanobind;

namespace darkroom {
namespace {

/// What is handed back: the batches that came out, and what became of the rows.
using RowsAndTally = std::pair<std::vector<ArrowBatch>, ItemTally>;

/// `work` on every batch of `rows`, without the GIL.
template <typename Work>
RowsAndTally apply_to_batches(const nb::object& rows, Work&& work) {
  const auto batches = import_batches(rows);
  return value_or_raise(without_gil([&]() -> Result<RowsAndTally> {
    RowsAndTally out;
    for (const auto& batch : batches) {
      DARKROOM_ASSIGN_OR_RETURN(RecordsOut made, work(batch));
      made.tally.failed_rows.clear();  // Numbers within a batch say nothing about a table.
      out.second.add(made.tally);
      out.first.push_back({std::move(made.rows)});
    }
    return out;
  }));
}

std::unique_ptr<BatchTransformer> open_transformer(int resolution, const std::string& resize, const std::string& crop,
                                                   const std::string& orientation, uint64_t seed, const std::string& caption_column,
                                                   const std::vector<std::string>& keep_columns, const std::string& decoder_program) {
  const BatchTransformOptions options{.transform = transform_of_names(resolution, resize, crop, orientation),
                                      .seed = seed,
                                      .caption_column = caption_column,
                                      .keep_columns = keep_columns,
                                      .decoder_program = decoder_program};
  return value_or_raise(without_gil([&] { return BatchTransformer::create(options); }));
}

template <typename T>
T chosen(const char* what, const std::string& name, std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [known, value] : choices) {
    if (name == known) {
      return value;
    }
    names += names.empty() ? known : std::string(", ") + known;
  }
  raise_failure(Status::invalid_argument(std::string(what) + " must be one of " + names + ", got:", name));
}

void take_storage(ProcessOptions& options, const std::string& latents, const std::string& text, const std::string& dtype,
                  const std::string& dialect, const std::string& tokenizer_dialect) {
  options.latents = chosen<LatentsKind>("latents", latents, {{"sample", LatentsKind::kSample}, {"moments", LatentsKind::kMoments}});
  options.text =
      chosen<TextKind>("text", text, {{"embeddings", TextKind::kEmbeddings}, {"tokens", TextKind::kTokens}, {"both", TextKind::kBoth}});
  options.dtype = chosen<std::optional<torch::Dtype>>("dtype", dtype,
                                                      {{"auto", std::nullopt}, {"float16", torch::kFloat16}, {"float32", torch::kFloat32}});
  options.dialect = chosen<LatentsDialect>("output_dialect", dialect,
                                           {{"darkroom", LatentsDialect::kDarkroom},
                                            {"anyscale", LatentsDialect::kAnyscale},
                                            {"ray-summit", LatentsDialect::kRaySummit},
                                            {"mosaicml", LatentsDialect::kMosaicMl},
                                            {"huggingface", LatentsDialect::kHuggingFace}});
  options.tokenizer_dialect = value_or_raise(parse_tokenizer_dialect(tokenizer_dialect));
}

void take_work(ProcessOptions& options, const std::string& batching, int batch_size, int threads) {
  options.batching =
      chosen<Batching>("batching", batching, {{"auto", Batching::kAuto}, {"alone", Batching::kAlone}, {"together", Batching::kTogether}});
  options.batch_size = batch_size;
  options.encoder_threads = threads;
}

Result<std::unique_ptr<BatchEncoder>> load_encoder(ProcessOptions options, const std::string& device, const std::string& precision) {
  DARKROOM_ASSIGN_OR_RETURN(options.place, find_network_place(device, precision, torch::kFloat16));
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, {});
  return BatchEncoder::open(*stores, options, {}, &gpu_turn());
}

}  // namespace

void bind_operators(nb::module_& module) {
  nb::class_<ItemTally>(module, "Tally")
      .def_ro("rows_in", &ItemTally::rows_in)
      .def_ro("rows_out", &ItemTally::rows_out)
      .def_ro("rows_by_error", &ItemTally::rows_by_error);
  nb::class_<BatchTransformer>(module, "BatchTransformer")
      .def(nb::new_(&open_transformer), nb::arg("resolution"), nb::arg("resize"), nb::arg("crop"), nb::arg("orientation"), nb::arg("seed"),
           nb::arg("caption_column"), nb::arg("keep_columns"), nb::arg("decoder_program"))
      .def(
          "apply",
          [](BatchTransformer& transformer, const nb::object& rows) {
            return apply_to_batches(rows, [&](const auto& batch) { return transformer.transform(batch); });
          },
          nb::arg("rows"));
  nb::class_<ProcessOptions>(module, "EncodeOptions")
      .def(nb::init<>())
      .def_rw("model", &ProcessOptions::model)
      .def_rw("caption_column", &ProcessOptions::caption_column)
      .def_rw("keep_columns", &ProcessOptions::keep_columns)
      .def_rw("seed", &ProcessOptions::seed)
      .def_rw("decoder_program", &ProcessOptions::decoder_program)
      .def(
          "transform",
          [](ProcessOptions& options, int resolution, const std::string& resize, const std::string& crop, const std::string& orientation) {
            options.transform = transform_of_names(resolution, resize, crop, orientation);
          },
          nb::arg("resolution"), nb::arg("resize"), nb::arg("crop"), nb::arg("orientation"))
      .def("store", &take_storage, nb::arg("latents"), nb::arg("text"), nb::arg("dtype"), nb::arg("output_dialect"),
           nb::arg("tokenizer_dialect"))
      .def("work", &take_work, nb::arg("batching"), nb::arg("batch_size"), nb::arg("threads"));
  nb::class_<BatchEncoder>(module, "BatchEncoder")
      .def(nb::new_([](const ProcessOptions& options, const std::string& device, const std::string& precision) {
             return value_or_raise(without_gil([&] { return load_encoder(options, device, precision); }));
           }),
           nb::arg("options"), nb::arg("device"), nb::arg("precision"))
      .def(
          "apply",
          [](BatchEncoder& encoder, const nb::object& rows) {
            return apply_to_batches(rows, [&](const auto& batch) { return encoder.encode(batch); });
          },
          nb::arg("rows"));
}

}  // namespace darkroom
