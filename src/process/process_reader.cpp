#include "process_reader.h"

#include <arrow/util/byte_size.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/process/image_rows.h"

namespace darkroom {
namespace {

/// Of a batch's memory, what each of its rows stands for.
size_t bytes_of_row(const arrow::RecordBatch& batch) {
  const auto num_bytes = arrow::util::ReferencedBufferSize(batch);
  return num_bytes.ok() && batch.num_rows() > 0 ? static_cast<size_t>(*num_bytes / batch.num_rows()) : 0;
}

/// Also when an exception ends an item, what gives its page back afterwards finds no intake.
class ForgetIntake {
 public:
  explicit ForgetIntake(ItemIntake<ProcessBatch>*& intake) : intake_(intake) {}
  ~ForgetIntake() { intake_ = nullptr; }
  ForgetIntake(const ForgetIntake&) = delete;
  ForgetIntake& operator=(const ForgetIntake&) = delete;

 private:
  ItemIntake<ProcessBatch>*& intake_;
};

}  // namespace

ProcessReader::ProcessReader(JobRun& run, const ProcessReading& reading, std::atomic<bool>& has_told)
    : run_(run), reading_(reading), has_told_(has_told) {}

Result<std::vector<std::string>> ProcessReader::choose_columns(const TableReader& table) {
  path_ = table.path();
  DARKROOM_ASSIGN_OR_RETURN(columns_, find_image_columns(*table.schema(), table.path(), reading_.caption_column));
  return names_of(columns_, reading_.kept);
}

ReadOptions ProcessReader::read_options() {
  ReadOptions options = image_read_options();
  options.read_ahead_bytes = reading_.read_ahead_bytes;
  options.hold_pages = [this](int64_t num_bytes) { return hold_pages(num_bytes); };
  return options;
}

/// Between items a page is held that nobody counts: whoever waits for the next item must not keep others waiting.
Status ProcessReader::hold_pages(int64_t num_bytes) {
  page_bytes_ = num_bytes;
  if (intake_ == nullptr) {
    return {};
  }
  if (num_bytes > reading_.memory_bytes && !has_told_.exchange(true)) {
    log_warning(
        "process: the pages of {} are larger than what --memory leaves to a reader ({:.0f} MB of {:.0f} MB, as stored and decompressed); "
        "while one is read only a batch of rows is under way, and it is held beyond --memory; give more of it, or write the file with "
        "fewer rows a page",
        path_, static_cast<double>(num_bytes) * 1e-6, static_cast<double>(reading_.memory_bytes) * 1e-6);
  }
  return intake_->keep(static_cast<size_t>(num_bytes));
}

Status ProcessReader::read(ItemIntake<ProcessBatch>& intake) {
  Status status;
  {
    intake_ = &intake;
    const ForgetIntake at_end(intake_);
    status = intake.keep(static_cast<size_t>(page_bytes_));
    status = status.is_ok() ? read_item(intake) : status;
  }
  if (page_bytes_ > reading_.memory_bytes && reading_.num_readers > 1) {  // Another one may be at its own page before we go on.
    rows_.reset();
  }
  return status;
}

Status ProcessReader::read_item(ItemIntake<ProcessBatch>& intake) {
  const WorkItem& work = static_cast<JobItem&>(*intake.item()).work;
  if (!rows_) {
    rows_.emplace(
        nullptr, [this](const TableReader& table) { return choose_columns(table); }, read_options());
  }
  DARKROOM_RETURN_IF_ERROR(rows_->seek(run_.plan(), work));
  const int64_t end = work.first_row + work.num_rows;
  ProcessBatch batch;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const KeptRows read, rows_->next(end));
    if (read.batch == nullptr) {
      break;
    }
    DARKROOM_RETURN_IF_ERROR(add_rows(read, work.list_row + read.first_row - work.first_row, batch, intake));
  }
  if (const int64_t num_rows = rows_->finish(end); num_rows != work.num_rows) {
    return Status::corrupt_data("an input has fewer rows than when the job was started (file, want, got):", rows_->table().path(),
                                work.num_rows, num_rows);
  }
  return batch.rows.empty() ? Status::ok() : hand_on(std::move(batch), intake);
}

/// `first_list_row`: of the batch's row 0, whether that is the item's or not.
Status ProcessReader::add_rows(const KeptRows& read, int64_t first_list_row, ProcessBatch& batch, ItemIntake<ProcessBatch>& intake) {
  DARKROOM_ASSIGN_OR_RETURN(const ImageRows rows, ImageRows::open(rows_->table().path(), columns_, *read.batch, first_list_row));
  const auto kept = reading_.kept.empty() ? nullptr : select_columns(*read.batch, reading_.kept);
  const size_t share = kept == nullptr ? 0 : bytes_of_row(*kept);
  for (const int64_t i : read.rows) {
    DARKROOM_RETURN_IF_ERROR(intake.admit(rows.num_bytes(i) + reading_.row_bytes.prepared + reading_.row_bytes.encoded + share));
    ReadImageRow row = rows.at(i);
    batch.tally.num_invalid_captions += row.caption_was_invalid ? 1 : 0;
    batch.rows.push_back(std::move(row.row));
    if (kept != nullptr) {
      batch.kept.push_back({.columns = kept, .row = i});
      batch.kept_bytes += share;
    }
    if (static_cast<int>(batch.rows.size()) == reading_.batch_size) {
      const int64_t next_position = batch.first_position + reading_.batch_size;
      DARKROOM_RETURN_IF_ERROR(hand_on(std::exchange(batch, ProcessBatch{.first_position = next_position}), intake));
    }
  }
  return Status::ok();
}

Status ProcessReader::hand_on(ProcessBatch batch, ItemIntake<ProcessBatch>& intake) {
  batch.tally.rows_in = static_cast<int64_t>(batch.rows.size());
  int64_t num_bytes = 0;
  for (const ImageRow& row : batch.rows) {
    num_bytes += static_cast<int64_t>(row.image.size());
  }
  intake.count(batch.tally.rows_in, num_bytes);
  run_.count_bytes(num_bytes);
  return intake.emit(std::move(batch));
}

}  // namespace darkroom
