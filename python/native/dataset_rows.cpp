#include "darkroom/feed/dataset_rows.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arrow_batches.h"
#include "bindings.h"
#include "darkroom/core/metrics.h"
#include "opening/open_stores.h"

namespace nb = nanobind;

namespace darkroom {
namespace {

/// Rows with the stores that they come from.
struct OpenRows {
  MetricsRegistry metrics;
  std::unique_ptr<StoreSet> stores;
  std::mutex mutex;  // Held while rows are read.
  std::unique_ptr<DatasetRows> rows;
};

Result<std::unique_ptr<OpenRows>> open_rows(const std::string& uri, int64_t first, int64_t count, const std::vector<std::string>& columns,
                                            int64_t batch_rows) {
  if (batch_rows < 1) {
    return Status::invalid_argument("batch_rows must be at least 1, got:", batch_rows);
  }
  auto opened = std::make_unique<OpenRows>();
  opened->stores = open_stores(opened->metrics, {});
  DARKROOM_ASSIGN_OR_RETURN(DatasetFiles files, find_dataset(*opened->stores, uri));
  DARKROOM_ASSIGN_OR_RETURN(opened->rows, DatasetRows::open(std::move(files), first, count, columns, {.max_batch_rows = batch_rows}));
  return opened;
}

std::optional<ArrowBatch> next_batch(OpenRows& open) {
  auto batch = value_or_raise(without_gil([&] {
    const std::lock_guard hold(open.mutex);
    return open.rows->next();
  }));
  return batch == nullptr ? std::nullopt : std::optional(ArrowBatch{std::move(batch)});
}

}  // namespace

void bind_dataset_rows(nb::module_& module) {
  nb::class_<OpenRows>(module, "DatasetRows")
      .def(nb::new_([](const std::string& uri, int64_t first, int64_t count, const std::vector<std::string>& columns, int64_t batch_rows) {
             return value_or_raise(without_gil([&] { return open_rows(uri, first, count, columns, batch_rows); }));
           }),
           nb::arg("uri"), nb::arg("first"), nb::arg("count"), nb::arg("columns"), nb::arg("batch_rows"))
      .def("next", &next_batch);
}

}  // namespace darkroom
