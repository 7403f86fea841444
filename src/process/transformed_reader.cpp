#include "transformed_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace darkroom {
namespace {

class ArrivedSlice : public SliceContent {
 public:
  explicit ArrivedSlice(TransformedSlice arrived) : slice(std::move(arrived)) {}

  const TransformedSlice slice;
};

}  // namespace

void TransformerTally::add(const FleetReport& report) {
  const std::lock_guard hold(mutex_);
  total_.encoders = std::max(total_.encoders, report.encoders);  // Each reader has a connection to every one.
  total_.rows += report.rows;
  total_.bytes += report.bytes;
  total_.lost += report.lost;
  total_.repeated += report.repeated;
  total_.encoder_seconds = std::max(total_.encoder_seconds, report.encoder_seconds);
  total_.encoder_idle_seconds = std::max(total_.encoder_idle_seconds, report.encoder_idle_seconds);
}

std::string TransformerTally::text() const {
  const std::lock_guard hold(mutex_);
  const double idle = total_.encoder_seconds > 0 ? 100 * total_.encoder_idle_seconds / total_.encoder_seconds : 0;
  return fmt::format(
      "process: {} transformers at most sent {} rows ({:.1f} MB), and had nothing to do {:.0f} % of the time; {} connections were lost, {} "
      "slices asked for again",
      total_.encoders, total_.rows, static_cast<double>(total_.bytes) / 1e6, idle, total_.lost, total_.repeated);
}

/// Not before there is an item: a job that has nothing to do needs no transformer.
Status TransformedReader::open_fleet() {
  if (fleet_ != nullptr) {
    return {};
  }
  const SliceReader read = [resolution = how_.resolution, num_kept = reading_.kept.size()](
                               std::span<const int64_t> rows, std::string bytes) -> Result<std::shared_ptr<const SliceContent>> {
    DARKROOM_ASSIGN_OR_RETURN(TransformedSlice slice,
                              TransformedSlice::read(bytes, static_cast<int64_t>(rows.size()), resolution, num_kept));
    return std::shared_ptr<const SliceContent>(std::make_shared<ArrivedSlice>(std::move(slice)));
  };
  DARKROOM_ASSIGN_OR_RETURN(fleet_, SliceFleet::open(how_.fleet, read));
  return {};
}

TransformedReader::~TransformedReader() {
  if (fleet_ != nullptr) {
    tally_.add(fleet_->report());
  }
}

void TransformedReader::ask_ahead(const WorkItem& work) {
  constexpr int64_t kLeast = 2;
  const int64_t most = largest_slice_ == 0 ? how_.slices_ahead : std::clamp(how_.ahead_bytes / largest_slice_, kLeast, how_.slices_ahead);
  while (next_ < work.num_rows && static_cast<int64_t>(asked_.size()) < most) {
    const int64_t count = std::min(how_.slice_rows, work.num_rows - next_);
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), work.list_row + next_);
    asked_.push_back({.slice = fleet_->ask(std::move(rows)), .first = next_, .count = count});
    next_ += count;
  }
}

Status TransformedReader::read(ItemIntake<ProcessBatch>& intake) {
  const WorkItem& work = static_cast<JobItem&>(*intake.item()).work;
  DARKROOM_RETURN_IF_ERROR(open_fleet());
  const std::stop_callback end(intake.stop(), [this] { fleet_->stop_waiting(); });  // Whatever ended the job, nobody wants the slices.
  next_ = 0;
  ask_ahead(work);
  while (!asked_.empty()) {
    const Asked asked = asked_.front();
    asked_.pop_front();
    DARKROOM_ASSIGN_OR_RETURN(const auto content, fleet_->take(asked.slice));
    const TransformedSlice& slice = static_cast<const ArrivedSlice&>(*content).slice;
    largest_slice_ = std::max(largest_slice_, slice.num_bytes());
    ask_ahead(work);
    DARKROOM_RETURN_IF_ERROR(hand_on(slice, asked, intake));
  }
  return Status::ok();
}

Status TransformedReader::hand_on(const TransformedSlice& slice, const Asked& asked, ItemIntake<ProcessBatch>& intake) {
  for (int64_t first = 0; first < asked.count; first += reading_.batch_size) {
    const int64_t count = std::min<int64_t>(reading_.batch_size, asked.count - first);
    ProcessBatch batch = slice.batch(first, count, asked.first + first);
    size_t num_bytes = batch.kept_bytes;
    for (PreparedRow& row : batch.prepared) {
      tokenise_row(tokenizer_, row);
      batch.tally.num_unported_captions += row.unported == Unported::kNothing ? 0 : 1;
      num_bytes += row.caption.size() + reading_.row_bytes.prepared + reading_.row_bytes.encoded;
    }
    batch.tally.num_invalid_captions = first == 0 ? slice.num_invalid_captions() : 0;
    DARKROOM_RETURN_IF_ERROR(intake.admit(num_bytes));
    intake.count(count, first == 0 ? slice.picture_bytes() : 0);
    DARKROOM_RETURN_IF_ERROR(intake.emit(std::move(batch)));
  }
  run_.count_bytes(slice.picture_bytes());
  return Status::ok();
}

}  // namespace darkroom
