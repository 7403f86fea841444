#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "damage_log.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/show/inspect.h"
#include "darkroom/tables/tensor_column.h"
#include "table_parts.h"

namespace darkroom {

/// Collects, batch by batch, what is to be said about one column. One thread.
class ColumnStudy {
 public:
  virtual ~ColumnStudy() = default;
  /// Errors: kFailedPrecondition (a column of another type). What is wrong with a row goes to `damage` while it is on.
  virtual Status add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog& damage) = 0;
  /// Called once, after the last add.
  virtual void report(InspectReport& report) = 0;
};

/// How often each value occurs: exact minimum, median and maximum. Memory grows with the number of distinct values.
class Distribution {
 public:
  void add(int64_t value) { counts_[value] += 1; }
  /// "min / median / max"; "-" without values.
  std::string to_text() const;
  nlohmann::json to_json() const;

 private:
  int64_t median() const;

  std::map<int64_t, int64_t> counts_;
};

/// Encoded pictures: formats, sizes, bytes; rows that are no pictures. While `damage` is on, these rows are damage, and so
/// are width and height columns of ours that differ from the picture's header.
class ImageStudy : public ColumnStudy {
 public:
  explicit ImageStudy(std::string column) : column_(std::move(column)) {}
  Status add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog& damage) override;
  void report(InspectReport& report) override;

 private:
  std::string column_;
  std::map<std::string, int64_t> formats_;
  Distribution widths_;
  Distribution heights_;
  std::map<std::string, int64_t> rejected_;  // By error code.
  int64_t num_images_ = 0;
  int64_t num_null_ = 0;
  int64_t num_bytes_ = 0;
  int64_t least_bytes_ = 0;
  int64_t most_bytes_ = 0;
};

/// Captions: lengths in characters, share of empty ones, invalid UTF-8.
class CaptionStudy : public ColumnStudy {
 public:
  explicit CaptionStudy(std::string column) : column_(std::move(column)) {}
  Status add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog& damage) override;
  void report(InspectReport& report) override;

 private:
  std::string column_;
  Distribution lengths_;
  int64_t num_rows_ = 0;
  int64_t num_empty_ = 0;
  int64_t num_invalid_ = 0;
};

/// Keys that occur more than once. Keeps 8 bytes a row, up to 256 Mi rows (2 GiB); later rows are not compared.
class KeyStudy : public ColumnStudy {
 public:
  static constexpr int64_t kMaxKeys = int64_t{1} << 28;

  explicit KeyStudy(std::string column, int64_t max_keys = kMaxKeys) : column_(std::move(column)), max_keys_(max_keys) {}
  Status add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog& damage) override;
  void report(InspectReport& report) override;
  /// Reads the key column again and names the rows whose key occurred before. Called once, after the last add.
  /// Errors: kCancelled; files that cannot be read were reported when they were studied and are left out.
  Status name_duplicates(FileSystem& files, const TableParts& parts, const std::stop_token& stop, DamageLog& damage);

 private:
  std::string column_;
  int64_t max_keys_;
  std::vector<uint64_t> hashes_;
  int64_t num_unchecked_ = 0;
};

/// Opens a column of tensors with the first of `shapes` that fits, else with the shape that the file states.
/// Errors: those of TensorColumn::open.
Result<TensorColumn> open_tensor_column(const arrow::RecordBatch& batch, const std::string& name,
                                        const std::vector<std::vector<int64_t>>& shapes);

/// Tensors: mean, standard deviation and range a channel (the first extent), rows with NaN or infinities (damage).
class TensorStudy : public ColumnStudy {
 public:
  /// `shapes` as in open_tensor_column. Without `by_channel` only finiteness is looked at.
  TensorStudy(std::string column, std::vector<std::vector<int64_t>> shapes, bool by_channel)
      : column_(std::move(column)), shapes_(std::move(shapes)), by_channel_(by_channel) {}
  Status add(const arrow::RecordBatch& batch, const BatchPlace& place, DamageLog& damage) override;
  void report(InspectReport& report) override;

 private:
  struct Channel {
    int64_t count = 0;
    double sum = 0;
    double sum_of_squares = 0;
    float least = 0;
    float most = 0;
    int64_t num_not_finite = 0;

    void add(const float* values, int64_t num_values);
    double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
    double standard_deviation() const;
  };

  std::string column_;
  std::vector<std::vector<int64_t>> shapes_;
  bool by_channel_;
  std::vector<int64_t> shape_;
  std::string element_;
  std::vector<Channel> channels_;
  std::vector<float> row_;
  int64_t num_rows_ = 0;
  int64_t num_null_ = 0;
  int64_t num_bad_rows_ = 0;
};

}  // namespace darkroom
