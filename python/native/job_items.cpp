#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/utf8.h"
#include "darkroom/ingest/pinned_job.h"
#include "opening/open_stores.h"

namespace nb = nanobind;

namespace darkroom {
namespace {

/// An item as Python sees it.
struct ListedItem {
  int64_t number = 0;
  std::string input;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  std::string part;
};

Result<std::vector<ListedItem>> list_items(const std::string& uri) {
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, {});
  DARKROOM_ASSIGN_OR_RETURN(const Location output, stores->resolve(uri, Access::kRead));
  DARKROOM_ASSIGN_OR_RETURN(const PinnedJob job, read_pinned_job(output));
  std::vector<ListedItem> items;
  for (int64_t number = 0; number < job.num_items(); ++number) {
    const WorkItem work = job.item(number);
    items.push_back({.number = number,
                     .input = replace_invalid_utf8(job.inputs[work.input].name).first,
                     .first_row = work.first_row,
                     .num_rows = work.num_rows,
                     .part = work.part_name()});
  }
  return items;
}

}  // namespace

void bind_job_items(nb::module_& module) {
  nb::class_<ListedItem>(module, "ListedItem")
      .def_ro("number", &ListedItem::number)
      .def_ro("input", &ListedItem::input)
      .def_ro("first_row", &ListedItem::first_row)
      .def_ro("num_rows", &ListedItem::num_rows)
      .def_ro("part", &ListedItem::part);
  module.def(
      "list_items", [](const std::string& output) { return value_or_raise(without_gil([&] { return list_items(output); })); },
      nb::arg("output"));
}

}  // namespace darkroom
