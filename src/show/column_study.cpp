#include "column_study.h"

#include <arrow/scalar.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>

#include "cell_text.h"
#include "darkroom/core/utf8.h"
#include "darkroom/image/probe.h"
#include "darkroom/tables/bytes_column.h"

namespace darkroom {
namespace {

std::string where(const BatchPlace& place, int64_t row) { return fmt::format("{} row {}", place.part.path, place.first_row + row); }

// The value of an int32 column of that name, or -1.
int64_t int32_at(const arrow::RecordBatch& batch, const std::string& name, int64_t row) {
  const auto column = batch.GetColumnByName(name);
  if (column == nullptr || column->type_id() != arrow::Type::INT32 || column->IsNull(row)) {
    return -1;
  }
  return static_cast<const arrow::Int32Array&>(*column).Value(row);
}

bool has_error(const arrow::RecordBatch& batch, int64_t row) {
  const auto column = batch.GetColumnByName("error");
  return column != nullptr && !column->IsNull(row);
}

// Bytes columns as stored, everything else (a number) as text.
Status visit_keys(const arrow::RecordBatch& batch, const std::string& name, const std::string& path,
                  const std::function<void(int64_t row, std::string_view key)>& visit) {
  const auto array = batch.GetColumnByName(name);
  const auto bytes = BytesColumn::open(path, name, array);
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    if (array->IsNull(row)) {
      continue;
    }
    if (bytes.is_ok()) {
      visit(row, bytes->at(row).value_or(""));
    } else {
      const auto scalar = array->GetScalar(row);
      visit(row, scalar.ok() ? (*scalar)->ToString() : "");
    }
  }
  return Status::ok();
}

uint64_t hash_of(std::string_view key) { return std::hash<std::string_view>()(key); }

}  // namespace

int64_t Distribution::median() const {
  int64_t total = 0;
  for (const auto& [value, count] : counts_) {
    total += count;
  }
  int64_t seen = 0;
  for (const auto& [value, count] : counts_) {
    seen += count;
    if (2 * seen >= total) {
      return value;
    }
  }
  return 0;
}

std::string Distribution::to_text() const {
  return counts_.empty() ? "-"
                         : fmt::format("{} / {} / {}", grouped_digits(counts_.begin()->first), grouped_digits(median()),
                                       grouped_digits(counts_.rbegin()->first));
}

nlohmann::json Distribution::to_json() const {
  if (counts_.empty()) {
    return nullptr;
  }
  return {{"min", counts_.begin()->first}, {"median", median()}, {"max", counts_.rbegin()->first}};
}

Status ImageStudy::add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog& damage) {
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn images, open_image_column(place.part.path, column_, batch.GetColumnByName(column_)));
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    const auto bytes = images.at(row);
    if (!bytes) {
      num_null_ += 1;
      if (damage.is_on() && place.part.is_ours && !has_error(batch, row)) {
        damage.add(fmt::format("{}: the image is null and there is no error code", where(place, row)));
      }
      continue;
    }
    const auto header = probe_image(std::as_bytes(std::span(*bytes)), kAnySize);
    if (!header.is_ok()) {
      rejected_[header.error().name()] += 1;
      if (damage.is_on()) {
        damage.add(fmt::format("{}: the image cannot be read: {}", where(place, row), header.error().name()));
      }
      continue;
    }
    const auto size = static_cast<int64_t>(bytes->size());
    least_bytes_ = num_images_ == 0 ? size : std::min(least_bytes_, size);
    most_bytes_ = std::max(most_bytes_, size);
    num_bytes_ += size;
    num_images_ += 1;
    formats_[std::string(mime_type(header->format))] += 1;
    widths_.add(header->width);
    heights_.add(header->height);
    const int64_t width = int32_at(batch, "width", row), height = int32_at(batch, "height", row);
    if (damage.is_on() && place.part.is_ours && width >= 0 && height >= 0 && (width != header->width || height != header->height)) {
      damage.add(fmt::format("{}: width and height differ from the image's header: {} x {}, {} x {}", where(place, row), width, height,
                             header->width, header->height));
    }
  }
  return Status::ok();
}

void ImageStudy::report(InspectReport& report) {
  ReportTable table{.title = "images (column " + clipped_text(column_, 64) + ")", .head = {}, .rows = {}};
  for (const auto& [format, count] : formats_) {
    table.rows.push_back({format, grouped_digits(count)});
  }
  for (const auto& [code, count] : rejected_) {
    table.rows.push_back({"not readable: " + code, grouped_digits(count)});
  }
  if (num_null_ > 0) {
    table.rows.push_back({"null", grouped_digits(num_null_)});
  }
  const int64_t mean_bytes = num_images_ == 0 ? 0 : num_bytes_ / num_images_;
  table.rows.push_back({"width, min / median / max", widths_.to_text()});
  table.rows.push_back({"height, min / median / max", heights_.to_text()});
  table.rows.push_back(
      {"bytes, min / mean / max", fmt::format("{} / {} / {}", bytes_text(least_bytes_), bytes_text(mean_bytes), bytes_text(most_bytes_))});
  report.tables.push_back(std::move(table));
  report.summary["statistics"]["images"] = {{"column", column_},
                                            {"formats", formats_},
                                            {"not_readable", rejected_},
                                            {"null", num_null_},
                                            {"width", widths_.to_json()},
                                            {"height", heights_.to_json()},
                                            {"bytes", {{"min", least_bytes_}, {"mean", mean_bytes}, {"max", most_bytes_}}}};
}

Status CaptionStudy::add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog&) {
  DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, BytesColumn::open(place.part.path, column_, batch.GetColumnByName(column_)));
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    const std::string_view caption = captions.at(row).value_or("");
    const auto [valid, was_invalid] = replace_invalid_utf8(caption);
    num_rows_ += 1;
    num_empty_ += caption.find_first_not_of(" \t\r\n") == std::string_view::npos ? 1 : 0;
    num_invalid_ += was_invalid ? 1 : 0;
    lengths_.add(count_characters(valid));
  }
  return Status::ok();
}

void CaptionStudy::report(InspectReport& report) {
  report.tables.push_back({.title = "captions (column " + clipped_text(column_, 64) + ")",
                           .head = {},
                           .rows = {{"characters, min / median / max", lengths_.to_text()},
                                    {"empty", grouped_digits(num_empty_) + " (" + percent_text(num_empty_, num_rows_) + ")"},
                                    {"invalid UTF-8", grouped_digits(num_invalid_)}}});
  report.summary["statistics"]["captions"] = {
      {"column", column_}, {"characters", lengths_.to_json()}, {"empty", num_empty_}, {"invalid_utf8", num_invalid_}, {"rows", num_rows_}};
}

Status KeyStudy::add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog&) {
  return visit_keys(batch, column_, place.part.path, [&](int64_t, std::string_view key) {
    if (static_cast<int64_t>(hashes_.size()) < max_keys_) {
      hashes_.push_back(hash_of(key));
    } else {
      num_unchecked_ += 1;
    }
  });
}

void KeyStudy::report(InspectReport& report) {
  std::sort(hashes_.begin(), hashes_.end());
  int64_t num_duplicates = 0;
  for (size_t i = 1; i < hashes_.size(); ++i) {
    num_duplicates += hashes_[i] == hashes_[i - 1] ? 1 : 0;
  }
  ReportTable table{
      .title = "keys (column " + clipped_text(column_, 64) + ")", .head = {}, .rows = {{"duplicates", grouped_digits(num_duplicates)}}};
  if (num_unchecked_ > 0) {
    table.rows.push_back({"not compared (too many)", grouped_digits(num_unchecked_)});
  }
  report.tables.push_back(std::move(table));
  report.summary["statistics"]["keys"] = {{"column", column_}, {"duplicates", num_duplicates}, {"not_compared", num_unchecked_}};
}

Status KeyStudy::name_duplicates(FileSystem& files, const TableParts& parts, const std::stop_token& stop, DamageLog& damage) {
  std::sort(hashes_.begin(), hashes_.end());
  const auto occurs_twice = [&](uint64_t hash) {
    const auto [first, last] = std::equal_range(hashes_.begin(), hashes_.end(), hash);
    return last - first > 1;
  };
  if (std::adjacent_find(hashes_.begin(), hashes_.end()) == hashes_.end()) {
    return Status::ok();
  }
  std::unordered_map<std::string, std::string> first_places;  // Only of keys whose hash occurs twice.
  for (const TablePart& part : parts.parts) {
    const auto visit = [&](const arrow::RecordBatch& batch, const BatchPlace& place) {
      return visit_keys(batch, column_, place.part.path, [&](int64_t row, std::string_view key) {
        if (!occurs_twice(hash_of(key))) {
          return;
        }
        const auto [entry, is_first] = first_places.emplace(std::string(key), where(place, row));
        if (!is_first) {
          damage.add(fmt::format("{}: the key occurred before (key, first place): {} {}", where(place, row), clipped_text(key, 64),
                                 entry->second));
        }
      });
    };
    const auto num_malformed = visit_rows(files, part, {.first = 0, .count = INT64_MAX}, {column_}, stop, visit);
    if (!num_malformed.is_ok() && num_malformed.status().code() == StatusCode::kCancelled) {
      return num_malformed.status();
    }
  }
  return Status::ok();
}

}  // namespace darkroom
