#include "arrow_batches.h"

#include <arrow/c/abi.h>
#include <arrow/c/bridge.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bindings.h"
#include "darkroom/tables/arrow_files.h"
#include "darkroom/tables/tensor_column.h"

namespace nb = nanobind;

namespace darkroom {
namespace {

constexpr const char* kSchemaName = "arrow_schema";
constexpr const char* kArrayName = "arrow_array";
constexpr const char* kStreamName = "arrow_array_stream";

template <typename Struct>
void release_capsule(PyObject* capsule, const char* name) {
  auto* held = static_cast<Struct*>(PyCapsule_GetPointer(capsule, name));
  if (held->release != nullptr) {  // Nobody took it over.
    held->release(held);
  }
  delete held;
}

template <typename Struct>
nb::object capsule_of(std::unique_ptr<Struct> exported, const char* name, PyCapsule_Destructor release) {
  PyObject* capsule = PyCapsule_New(exported.get(), name, release);
  if (capsule == nullptr) {
    exported->release(exported.get());
    throw nb::python_error();
  }
  exported.release();
  return nb::steal(capsule);
}

template <typename Struct>
Struct* held_by(const nb::object& capsule, const char* name) {
  auto* held = static_cast<Struct*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (held == nullptr) {
    throw nb::python_error();
  }
  return held;
}

void raise_if_arrow_failed(const arrow::Status& status, const char* what) {
  raise_if_failed(status.ok() ? Status::ok() : from_arrow(status, what));
}

nb::object export_schema(const ArrowBatch& batch) {
  auto schema = std::make_unique<ArrowSchema>();
  raise_if_arrow_failed(arrow::ExportSchema(*batch.rows->schema(), schema.get()), "handing a schema to Python");
  return capsule_of(std::move(schema), kSchemaName, [](PyObject* capsule) { release_capsule<ArrowSchema>(capsule, kSchemaName); });
}

nb::tuple export_array(const ArrowBatch& batch, const nb::object& /*requested_schema*/) {
  auto array = std::make_unique<ArrowArray>();
  raise_if_arrow_failed(arrow::ExportRecordBatch(*batch.rows, array.get()), "handing rows to Python");
  const nb::object rows =
      capsule_of(std::move(array), kArrayName, [](PyObject* capsule) { release_capsule<ArrowArray>(capsule, kArrayName); });
  return nb::make_tuple(export_schema(batch), rows);
}

std::shared_ptr<arrow::RecordBatch> import_array(const nb::object& rows) {
  const auto capsules = nb::cast<nb::tuple>(rows.attr("__arrow_c_array__")());
  auto* schema = held_by<ArrowSchema>(nb::object(capsules[0]), kSchemaName);
  auto* array = held_by<ArrowArray>(nb::object(capsules[1]), kArrayName);
  auto imported = arrow::ImportRecordBatch(array, schema);
  raise_if_arrow_failed(imported.status(), "taking rows from Python");
  return *imported;
}

std::vector<std::shared_ptr<arrow::RecordBatch>> import_stream(const nb::object& rows) {
  const nb::object capsule = rows.attr("__arrow_c_stream__")();
  auto reader = arrow::ImportRecordBatchReader(held_by<ArrowArrayStream>(capsule, kStreamName));
  raise_if_arrow_failed(reader.status(), "taking rows from Python");
  auto batches = without_gil([&] { return (*reader)->ToRecordBatches(); });  // Threads of the stream may need it.
  raise_if_arrow_failed(batches.status(), "taking rows from Python");
  if (batches->empty()) {
    auto empty = arrow::RecordBatch::MakeEmpty((*reader)->schema());
    raise_if_arrow_failed(empty.status(), "taking rows from Python");
    batches->push_back(*empty);
  }
  return *batches;
}

ArrowBatch batch_of(const nb::object& rows) { return {import_array(rows)}; }

/// The elements of all rows, one row after another: those of the batch where they lie so, else a copy. Errors: kCorruptData (a null).
Result<std::pair<const std::byte*, std::shared_ptr<void>>> joined_rows(const TensorColumn& column, const std::string& name,
                                                                       const std::shared_ptr<arrow::RecordBatch>& batch) {
  bool is_contiguous = true;
  size_t row_bytes = 0;
  for (int64_t row = 0; row < column.num_rows(); ++row) {
    if (column.is_null(row)) {
      return Status::corrupt_data("a column of tensors has a null (column, row of the batch):", name, row);
    }
    row_bytes = column.bytes(row).size();
    is_contiguous = is_contiguous && column.bytes(row).data() == column.bytes(0).data() + static_cast<size_t>(row) * row_bytes;
  }
  const auto element_size = column.num_elements() > 0 ? row_bytes / static_cast<size_t>(column.num_elements()) : 1;
  const bool is_aligned =
      column.num_rows() > 0 && reinterpret_cast<uintptr_t>(column.bytes(0).data()) % std::max<size_t>(element_size, 1) == 0;
  if (is_contiguous && is_aligned) {
    return std::pair{column.bytes(0).data(), std::shared_ptr<void>(batch)};
  }
  auto copy = std::make_shared<std::vector<std::byte>>(row_bytes * static_cast<size_t>(column.num_rows()));
  for (int64_t row = 0; row < column.num_rows(); ++row) {
    std::ranges::copy(column.bytes(row), copy->begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * row_bytes));
  }
  return std::pair{const_cast<const std::byte*>(copy->data()), std::shared_ptr<void>(copy)};
}

template <typename Framework, typename... Const>
nb::object tensor_of(const ArrowBatch& batch, const std::string& name, const std::vector<int64_t>& shape) {
  const auto field = batch.rows->schema()->GetFieldByName(name);
  if (field == nullptr) {
    raise_failure(Status::not_found("the batch has no such column, or has it twice:", name));
  }
  const auto column = value_or_raise(TensorColumn::open(*field, batch.rows->GetColumnByName(name), shape));
  auto [data, owner] = value_or_raise(without_gil([&] { return joined_rows(column, name, batch.rows); }));
  std::vector<size_t> extents = {static_cast<size_t>(column.num_rows())};
  extents.insert(extents.end(), column.shape().begin(), column.shape().end());
  const nb::capsule keeper(new std::shared_ptr<void>(std::move(owner)),
                           [](void* held) noexcept { delete static_cast<std::shared_ptr<void>*>(held); });
  const uint8_t bits = !column.element() ? 64 : *column.element() == TensorElement::kFloat16 ? 16 : 32;
  const nb::dlpack::dtype type{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), bits, 1};
  using Array = nb::ndarray<Framework, Const...>;
  return nb::cast(Array(const_cast<std::byte*>(data), extents.size(), extents.data(), keeper, nullptr, type, nb::device::cpu::value));
}

/// Whether TensorColumn reads the column without being told a shape.
bool is_tensor(const ArrowBatch& batch, const std::string& name) {
  const auto field = batch.rows->schema()->GetFieldByName(name);
  return field != nullptr && TensorColumn::open(*field, batch.rows->GetColumnByName(name)).is_ok();
}

}  // namespace

std::vector<std::shared_ptr<arrow::RecordBatch>> import_batches(const nb::object& rows) {
  if (nb::hasattr(rows, "__arrow_c_array__")) {
    return {import_array(rows)};
  }
  if (nb::hasattr(rows, "__arrow_c_stream__")) {
    return import_stream(rows);
  }
  throw nb::type_error("rows must be a pyarrow RecordBatch or Table, or another object of Arrow's C data interface");
}

void bind_arrow_batches(nb::module_& module) {
  nb::class_<ArrowBatch>(module, "ArrowBatch")
      .def(nb::new_([](const nb::object& rows) { return batch_of(rows); }), nb::arg("rows"))
      .def("__arrow_c_schema__", &export_schema)
      .def("__arrow_c_array__", &export_array, nb::arg("requested_schema") = nb::none())
      .def_prop_ro("num_rows", [](const ArrowBatch& batch) { return batch.rows->num_rows(); })
      .def("is_tensor", &is_tensor, nb::arg("column"))
      .def("numpy_tensor", &tensor_of<nb::numpy, nb::ro>, nb::arg("column"), nb::arg("shape"))
      .def("torch_tensor", &tensor_of<nb::pytorch>, nb::arg("column"), nb::arg("shape"));
}

}  // namespace darkroom
