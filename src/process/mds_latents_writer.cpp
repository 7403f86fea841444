#include "mds_latents_writer.h"

#include <arrow/scalar.h>

#include <array>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "darkroom/process/kept_columns.h"
#include "darkroom/tables/bytes_column.h"
#include "good_rows.h"

namespace darkroom {
namespace {

constexpr int kMaxIndexRounds = 8;

/// Of a column that is carried along; empty: there is none. A whole number is JSON, because MDS has no null of its own.
std::string encoding_of(const arrow::DataType& type) {
  if (is_bytes_type(type)) {
    return type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY ? "bytes" : "str";
  }
  switch (type.id()) {
    case arrow::Type::HALF_FLOAT:
      return "float16";
    case arrow::Type::FLOAT:
      return "float32";
    case arrow::Type::DOUBLE:
      return "float64";
    default:
      return arrow::is_integer(type.id()) || type.id() == arrow::Type::BOOL ? "json" : "";
  }
}

/// A value as its encoding wants it: a missing number is a NaN, or null where it is JSON; a missing text is empty.
Result<std::string> encoded_value(const arrow::Array& array, int64_t row) {
  if (is_bytes_type(*array.type())) {
    return array.IsNull(row) ? std::string() : std::string(bytes_at(array, row));
  }
  const int width = array.type()->bit_width() / 8;
  if (!arrow::is_floating(array.type_id())) {
    const auto scalar = array.GetScalar(row);
    return scalar.ok() ? (*scalar)->is_valid ? (*scalar)->ToString() : std::string("null")
                       : Result<std::string>(Status::resource_exhausted("copying a value for an MDS shard:", scalar.status().ToString()));
  }
  if (array.IsNull(row)) {
    constexpr std::array<char, 2> kHalfNan = {'\x00', '\x7e'};
    const float single = std::numeric_limits<float>::quiet_NaN();
    const double full = std::numeric_limits<double>::quiet_NaN();
    return width == 2   ? std::string(kHalfNan.data(), kHalfNan.size())
           : width == 4 ? std::string(reinterpret_cast<const char*>(&single), sizeof single)
                        : std::string(reinterpret_cast<const char*>(&full), sizeof full);
  }
  const uint8_t* values = array.data()->buffers[1]->data();
  return std::string(reinterpret_cast<const char*>(values) + (array.offset() + row) * width, static_cast<size_t>(width));
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

Result<std::vector<MdsColumn>> mds_columns(const LatentsLayout& layout) {
  std::vector<MdsColumn> columns = {{"key", "str"},
                                    {"caption", "str"},
                                    {"width", "int"},
                                    {"height", "int"},
                                    {layout.latents_name, "bytes"},
                                    {layout.states_name, "bytes"}};
  for (const auto& field : layout.kept) {
    std::string encoding = encoding_of(*field->type());
    if (encoding.empty()) {
      return Status::failed_precondition(
          "the dialect mosaicml has no encoding for a column of --keep-columns; leave it out (column, type):", field->name(),
          field->type()->ToString());
    }
    columns.push_back({field->name(), std::move(encoding)});
  }
  return columns;
}

Result<std::unique_ptr<MdsLatentsWriter>> MdsLatentsWriter::open(JobRun& run, const WorkItem& work, const LatentsLayout& layout,
                                                                 ScratchFiles& scratch) {
  std::unique_ptr<MdsLatentsWriter> writer(new MdsLatentsWriter(run, work, layout));
  DARKROOM_ASSIGN_OR_RETURN(std::vector<MdsColumn> columns, mds_columns(layout));
  const Location& output = run.output();
  DARKROOM_ASSIGN_OR_RETURN(auto object, output.store->begin_object(output.path, work.part_name()));
  writer->shard_ = std::make_unique<MdsWriter>(std::move(object), std::move(columns), scratch);
  return writer;
}

Status MdsLatentsWriter::add(int64_t /*position*/, ProcessBatch batch) {
  tally_.add(batch.tally);
  run_.count_rows(batch.tally.rows_in, batch.tally.rows_by_error);
  return write_samples(batch);
}

Status MdsLatentsWriter::write_samples(const ProcessBatch& batch) {
  const GoodRowsOfBatch good(batch.encoded);
  if (good.size() == 0) {
    return Status::ok();
  }
  const RowTensors latents = good.of(batch.encoded.latents);
  const RowTensors states = good.of(batch.encoded.states);
  DARKROOM_ASSIGN_OR_RETURN(const arrow::ArrayVector kept, copy_kept(layout_.kept, kept_of(batch, good)));
  for (int64_t i = 0; i < good.size(); ++i) {
    const auto number = static_cast<size_t>(i);
    const PreparedRow& row = batch.prepared[static_cast<size_t>(good.numbers()[number])];
    const int64_t width = row.width;
    const int64_t height = row.height;
    std::vector<std::string> carried;
    for (const auto& column : kept) {
      DARKROOM_ASSIGN_OR_RETURN(carried.emplace_back(), encoded_value(*column, i));
    }
    std::vector<std::span<const std::byte>> values = {bytes_of(row.key), bytes_of(row.caption), bytes_of(width),
                                                      bytes_of(height),  latents.row(number),   states.row(number)};
    for (const std::string& value : carried) {
      values.push_back(bytes_of(value));
    }
    DARKROOM_RETURN_IF_ERROR(shard_->add(values));
  }
  return Status::ok();
}

Result<std::unique_ptr<FinishedItem>> MdsLatentsWriter::finish() {
  DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, shard_->finish(run_.plan().footer_of(work_, tally_, layout_.footer_pairs())));
  return std::unique_ptr<FinishedItem>(std::make_unique<FinishedPart>(std::move(shard), std::move(tally_)));
}

Result<std::unique_ptr<ScratchFiles>> open_mds_scratch(const Location& output) {
  const std::string folder = output.store->local_path(output.path).value_or("/var/tmp");
  const Result<int64_t> num_free = free_bytes_at(folder);
  auto scratch = num_free.is_ok() ? ScratchFiles::open(folder, std::max<int64_t>(*num_free, 1)) : num_free.status();
  return scratch.is_ok() ? std::move(scratch)
                         : scratch.status().with_context("opening a place on a disk, which the dialect mosaicml needs");
}

Status write_mds_index(JobPlan& plan, const LatentsLayout& layout, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<MdsColumn> columns, mds_columns(layout));
  const Location file = plan.output() / "index.json";
  std::string written;
  for (int round = 0; round < kMaxIndexRounds; ++round) {
    DARKROOM_RETURN_IF_ERROR(plan.refresh(stop));
    std::vector<MdsShardEntry> shards;
    for (const auto& [item, part] : plan.parts()) {
      shards.push_back({.name = part.name.text(), .num_bytes = part.size_bytes, .num_samples = part.tally.rows_out});
    }
    std::string index = print_mds_index(columns, shards);
    if (index == written) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(file.store->replace_small(file.path, index));
    written = std::move(index);
  }
  return Status::ok();
}

}  // namespace darkroom
