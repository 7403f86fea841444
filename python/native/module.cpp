#include <arrow/config.h>

#include "bindings.h"
#include "darkroom/core/utf8.h"
#include "darkroom/core/version.h"

namespace nb = nanobind;

namespace darkroom {

void raise_failure(const Status& status, const std::string& row_error) {
  const std::string code(status_code_name(status.code()));
  const nb::object error =
      nb::module_::import_("darkroom.errors").attr("error_of")(code, replace_invalid_utf8(status.message()).first, row_error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

GpuTurn& gpu_turn() {
  static auto* turn = new GpuTurn;  // Never destroyed: threads may be at work when the process ends.
  return *turn;
}

}  // namespace darkroom

NB_MODULE(_native, module) {
  module.doc() = "The C++ code behind the package darkroom; use that. Nothing here is promised to stay.";
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const darkroom::CheckFailure& failure) {
      try {
        darkroom::raise_failure(darkroom::Status::internal(failure.what()));
      } catch (nb::python_error& error) {
        error.restore();
      }
    }
  });
  module.attr("__version__") = darkroom::kVersion;
  module.def(
      "arrow_version", [] { return arrow::GetBuildInfo().version_string; }, "The version of the libarrow that is used.");
  darkroom::bind_tokenizer(module);
  darkroom::bind_transform(module);
  darkroom::bind_painter(module);
  darkroom::bind_arrow_batches(module);
  darkroom::bind_dataset_rows(module);
  darkroom::bind_operators(module);
  darkroom::bind_job_items(module);
}
