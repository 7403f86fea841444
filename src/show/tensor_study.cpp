#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cell_text.h"
#include "column_study.h"
#include "darkroom/tables/tensor_column.h"

namespace darkroom {
namespace {

// Counts elements whose exponent bits are all ones: NaN and infinities.
template <typename Bits>
int64_t count_not_finite(std::span<const std::byte> bytes, Bits exponent) {
  int64_t count = 0;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

int64_t count_not_finite(const TensorColumn& column, int64_t row) {
  if (column.element() == TensorElement::kFloat16) {
    return count_not_finite<uint16_t>(column.bytes(row), 0x7C00);
  }
  return column.element() == TensorElement::kFloat32 ? count_not_finite<uint32_t>(column.bytes(row), 0x7F800000)
                                                     : count_not_finite<uint64_t>(column.bytes(row), 0x7FF0000000000000);
}

}  // namespace

Result<TensorColumn> open_tensor_column(const arrow::RecordBatch& batch, const std::string& name,
                                        const std::vector<std::vector<int64_t>>& shapes) {
  const int index = batch.schema()->GetFieldIndex(name);
  for (const auto& shape : shapes) {
    if (auto column = TensorColumn::open(*batch.schema()->field(index), batch.column(index), shape); column.is_ok()) {
      return column;
    }
  }
  return TensorColumn::open(*batch.schema()->field(index), batch.column(index));
}

void TensorStudy::Channel::add(const float* values, int64_t num_values) {
  for (int64_t i = 0; i < num_values; ++i) {
    const float value = values[i];
    if (!std::isfinite(value)) {
      num_not_finite += 1;
      continue;
    }
    least = count == 0 ? value : std::min(least, value);
    most = count == 0 ? value : std::max(most, value);
    count += 1;
    sum += value;
    sum_of_squares += static_cast<double>(value) * value;
  }
}

double TensorStudy::Channel::standard_deviation() const {
  return count == 0 ? 0 : std::sqrt(std::max(0.0, sum_of_squares / static_cast<double>(count) - mean() * mean()));
}

Status TensorStudy::add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog& damage) {
  auto opened = open_tensor_column(batch, column_, shapes_);
  if (!opened.is_ok()) {
    return opened.status().with_context(place.part.path);
  }
  const TensorColumn& column = *opened;
  if (shape_.empty()) {
    shape_ = column.shape();
    element_ = !column.element() ? "float64" : *column.element() == TensorElement::kFloat16 ? "float16" : "float32";
    channels_.resize(by_channel_ && shape_.size() == 3 ? static_cast<size_t>(shape_[0]) : 0);
  } else if (shape_ != column.shape()) {
    return Status::failed_precondition("a column changes its shape (path, column, shape before, shape here):", place.part.path, column_,
                                       shape_text(shape_), shape_text(column.shape()));
  }
  row_.resize(static_cast<size_t>(column.num_elements()));
  for (int64_t row = 0; row < column.num_rows(); ++row) {
    num_rows_ += 1;
    if (column.is_null(row)) {
      num_null_ += 1;
      if (damage.is_on()) {
        damage.add(fmt::format("{} row {}: {} is null", place.part.path, place.first_row + row, column_));
      }
      continue;
    }
    if (const int64_t num_bad = count_not_finite(column, row); num_bad > 0) {
      num_bad_rows_ += 1;
      if (damage.is_on()) {
        damage.add(fmt::format("{} row {}: {} holds NaN or infinities: {} of {} values", place.part.path, place.first_row + row, column_,
                               num_bad, column.num_elements()));
      }
    }
    if (!channels_.empty()) {
      column.read_floats(row, row_);
      const int64_t per_channel = column.num_elements() / static_cast<int64_t>(channels_.size());
      for (size_t c = 0; c < channels_.size(); ++c) {
        channels_[c].add(row_.data() + static_cast<int64_t>(c) * per_channel, per_channel);
      }
    }
  }
  return Status::ok();
}

void TensorStudy::report(InspectReport& report) {
  ReportTable facts{.title = fmt::format("column {}", column_),
                    .head = {},
                    .rows = {{"tensors", element_ + " " + shape_text(shape_)},
                             {"rows", grouped_digits(num_rows_)},
                             {"rows with NaN or infinities", grouped_digits(num_bad_rows_)}}};
  if (num_null_ > 0) {
    facts.rows.push_back({"null", grouped_digits(num_null_)});
  }
  report.tables.push_back(std::move(facts));
  nlohmann::json summary = {
      {"shape", shape_}, {"element", element_}, {"rows", num_rows_}, {"null", num_null_}, {"rows_not_finite", num_bad_rows_}};
  ReportTable table{.title = "", .head = {"channel", "mean", "std", "min", "max", "NaN, inf"}, .rows = {}};
  for (size_t c = 0; c < channels_.size(); ++c) {
    const Channel& channel = channels_[c];
    table.rows.push_back({fmt::format("{}", c), fmt::format("{:.4f}", channel.mean()), fmt::format("{:.4f}", channel.standard_deviation()),
                          fmt::format("{:.4f}", channel.least), fmt::format("{:.4f}", channel.most),
                          grouped_digits(channel.num_not_finite)});
    summary["channels"].push_back({{"mean", channel.mean()},
                                   {"std", channel.standard_deviation()},
                                   {"min", channel.least},
                                   {"max", channel.most},
                                   {"not_finite", channel.num_not_finite}});
  }
  if (!table.rows.empty()) {
    report.tables.push_back(std::move(table));
  }
  report.summary["statistics"]["tensors"][column_] = std::move(summary);
}

}  // namespace darkroom
