#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "darkroom/core/result.h"
#include "darkroom/tensor/gpu_turn.h"

namespace darkroom {

// What Python sees of the C++ code: the extension module darkroom._native, which the package's own Python files wrap. Each function takes
// and gives plain values; everything that works or waits does so without the GIL.

void bind_tokenizer(nanobind::module_& module);
void bind_transform(nanobind::module_& module);
void bind_painter(nanobind::module_& module);
void bind_arrow_batches(nanobind::module_& module);
void bind_dataset_rows(nanobind::module_& module);
void bind_operators(nanobind::module_& module);
void bind_job_items(nanobind::module_& module);

/// Throws a status as the Python exception that darkroom.errors makes of it. REQUIRES: the GIL is held, the status is no success.
/// `row_error`: the stable name of a row's error, where it is one.
[[noreturn]] void raise_failure(const Status& status, const std::string& row_error = {});

inline void raise_if_failed(const Status& status) {
  if (!status.is_ok()) {
    raise_failure(status);
  }
}

template <typename T>
T value_or_raise(Result<T> result) {
  raise_if_failed(result.status());
  return std::move(result).value();
}

/// What `work` returns, done without the GIL. REQUIRES: it is held; `work` touches no Python object.
template <typename Work>
auto without_gil(Work&& work) {
  const nanobind::gil_scoped_release released;
  return std::forward<Work>(work)();
}

/// Of all painters and encoders of this process that are on a GPU, whichever: held while one is opened, works or goes, and never while
/// Python runs, so that a callback may paint. REQUIRES: it is taken and let go without the GIL.
GpuTurn& gpu_turn();

}  // namespace darkroom
