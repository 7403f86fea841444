#pragma once

#include <arrow/record_batch.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

namespace darkroom {

/// A record batch as Python holds it: speaks the PyCapsule protocol of Arrow's C data interface, so that pyarrow.record_batch(it) shares
/// its memory.
struct ArrowBatch {
  std::shared_ptr<arrow::RecordBatch> rows;
};

/// The batches of an object that speaks the protocol for arrays (a record batch) or streams (a table), which share its memory; of a table
/// without batches one without rows. Raises TypeError for another object, and what goes wrong. REQUIRES: the GIL is held.
std::vector<std::shared_ptr<arrow::RecordBatch>> import_batches(const nanobind::object& rows);

}  // namespace darkroom
