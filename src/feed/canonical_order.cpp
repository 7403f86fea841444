#include "darkroom/feed/canonical_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "darkroom/core/random.h"

namespace darkroom {
namespace {

constexpr uint32_t kMaxEpochs = 1U << 24;          // CounterRandom's limit.
constexpr int64_t kMaxSamples = int64_t{1} << 62;  // Those of a batch and a number of lanes may be added.
constexpr size_t kEpochsHeld = 3;

Status too_many_epochs() {
  return Status::failed_precondition("the run needs more epochs of its dataset than can be numbered; use more data; limit:", kMaxEpochs);
}

}  // namespace

Status OrderSpec::validate() const {
  if (num_lanes < 1) {
    return Status::invalid_argument("the number of lanes must be at least 1, got:", num_lanes);
  }
  if (batch_size < 1) {
    return Status::invalid_argument("the global batch must be at least 1, got:", batch_size);
  }
  if (window_blocks < 1 || window_blocks > (1 << 22)) {
    return Status::invalid_argument("the shuffle window must be 1 to 4194304 blocks, got:", window_blocks);
  }
  return {};
}

Result<std::unique_ptr<CanonicalOrder>> CanonicalOrder::create(std::vector<int32_t> block_rows, const OrderSpec& spec) {
  DARKROOM_RETURN_IF_ERROR(spec.validate());
  if (block_rows.empty()) {
    return Status::failed_precondition("the dataset has no rows to train on; blocks:", 0);
  }
  std::vector<int64_t> first_rows(block_rows.size() + 1, 0);
  for (size_t i = 0; i < block_rows.size(); ++i) {
    DARKROOM_CHECK(block_rows[i] > 0, "a block has no rows (block):", i);
    first_rows[i + 1] = first_rows[i] + block_rows[i];
  }
  return std::unique_ptr<CanonicalOrder>(new CanonicalOrder(std::move(first_rows), spec));
}

CanonicalOrder::CanonicalOrder(std::vector<int64_t> first_rows, const OrderSpec& spec) : first_rows_(std::move(first_rows)), spec_(spec) {
  rewind();
}

void CanonicalOrder::rewind() {
  lanes_.clear();
  lanes_.resize(static_cast<size_t>(std::min(spec_.num_lanes, num_blocks())));
}

const std::vector<uint32_t>& CanonicalOrder::epoch_order(uint32_t epoch) {
  for (const auto& held : epochs_) {
    if (held.epoch == epoch) {
      return held.order;
    }
  }
  if (epochs_.size() == kEpochsHeld) {
    epochs_.pop_front();
  }
  ++num_draws_;
  epochs_.push_back({epoch, std::vector<uint32_t>(static_cast<size_t>(num_blocks()))});
  shuffled_order(CounterRandom(spec_.seed, Purpose::kShuffle, epoch, "blocks"), epochs_.back().order);
  return epochs_.back().order;
}

Status CanonicalOrder::enter_epoch(int64_t lane_number, uint32_t epoch) {
  if (epoch >= kMaxEpochs) {
    return too_many_epochs();
  }
  Lane& lane = lanes_[static_cast<size_t>(lane_number)];
  const auto& order = epoch_order(epoch);
  lane.epoch = epoch;
  lane.epoch_start += lane.epoch_rows;
  lane.epoch_rows = 0;
  lane.blocks.clear();
  lane.window = -1;
  for (size_t i = static_cast<size_t>(lane_number); i < order.size(); i += lanes_.size()) {
    lane.blocks.push_back(order[i]);
    lane.epoch_rows += first_rows_[order[i] + 1] - first_rows_[order[i]];
  }
  return {};
}

// All lanes together, an epoch at a time: each epoch's permutation is drawn once, though few are held.
Status CanonicalOrder::skip_epochs(int64_t num_samples) {
  for (bool is_there = false; !is_there;) {
    is_there = true;
    for (int64_t lane_number = 0; lane_number < num_lanes(); ++lane_number) {
      const Lane& lane = lanes_[static_cast<size_t>(lane_number)];
      if (!lane.blocks.empty() && lane_position(lane_number, num_samples) < lane.epoch_start + lane.epoch_rows) {
        continue;
      }
      is_there = false;
      DARKROOM_RETURN_IF_ERROR(enter_epoch(lane_number, lane.blocks.empty() ? 0 : lane.epoch + 1));
    }
  }
  return {};
}

Status CanonicalOrder::skip_lane(int64_t lane_number, int64_t position) {
  Lane& lane = lanes_[static_cast<size_t>(lane_number)];
  while (position >= lane.epoch_start + lane.epoch_rows) {
    DARKROOM_RETURN_IF_ERROR(enter_epoch(lane_number, lane.epoch + 1));
  }
  lane.position = position;
  return {};
}

// Makes the window that holds lane.position the current one. REQUIRES: the position lies in the lane's epoch.
void CanonicalOrder::enter_window(int64_t lane_number) {
  Lane& lane = lanes_[static_cast<size_t>(lane_number)];
  const int64_t window_end = lane.window_start + static_cast<int64_t>(lane.window_rows.size());
  if (lane.window >= 0 && lane.position < window_end) {
    return;
  }
  int64_t start = lane.epoch_start;
  for (int64_t window = 0;; ++window) {
    const auto first = static_cast<size_t>(window * spec_.window_blocks);
    const size_t last = std::min(first + static_cast<size_t>(spec_.window_blocks), lane.blocks.size());
    int64_t num_rows = 0;
    for (size_t i = first; i < last; ++i) {
      num_rows += first_rows_[lane.blocks[i] + 1] - first_rows_[lane.blocks[i]];
    }
    if (lane.position >= start + num_rows) {
      start += num_rows;
      continue;
    }
    std::vector<int64_t> rows;
    rows.reserve(static_cast<size_t>(num_rows));
    for (size_t i = first; i < last; ++i) {
      for (int64_t row = first_rows_[lane.blocks[i]]; row < first_rows_[lane.blocks[i] + 1]; ++row) {
        rows.push_back(row);
      }
    }
    std::vector<uint32_t> order(rows.size());
    shuffled_order(CounterRandom(spec_.seed, Purpose::kShuffle, lane.epoch, fmt::format("lane {} window {}", lane_number, window)), order);
    lane.window_rows.resize(rows.size());
    std::transform(order.begin(), order.end(), lane.window_rows.begin(), [&](uint32_t i) { return rows[i]; });
    lane.window = window;
    lane.window_start = start;
    return;
  }
}

// How many of the first `num_samples` of the round-robin fall to `lane`.
int64_t CanonicalOrder::lane_position(int64_t lane, int64_t num_samples) const {
  return (num_samples + num_lanes() - 1 - lane) / num_lanes();
}

Result<std::vector<SampleRef>> CanonicalOrder::batch(int64_t number) {
  DARKROOM_CHECK(number >= 0, "a batch number is negative:", number);
  // Behind all epochs of all lanes: said at once, because the way there draws each of them.
  if (number > kMaxSamples / spec_.batch_size || number * spec_.batch_size / kMaxEpochs >= num_rows()) {
    return too_many_epochs();
  }
  const int64_t first_sample = number * spec_.batch_size;
  std::vector<SampleRef> samples;
  samples.reserve(static_cast<size_t>(spec_.batch_size));
  for (int64_t lane_number = 0; lane_number < num_lanes(); ++lane_number) {
    const Lane& lane = lanes_[static_cast<size_t>(lane_number)];
    // A lane without a sample of the last batch may stand at an epoch's begin, and its position lie before that.
    if (lane_position(lane_number, first_sample) < std::max(lane.position, lane.epoch_start)) {
      rewind();
    }
  }
  DARKROOM_RETURN_IF_ERROR(skip_epochs(first_sample));
  for (int64_t lane_number = 0; lane_number < num_lanes(); ++lane_number) {
    const int64_t first = lane_position(lane_number, first_sample);
    const int64_t last = lane_position(lane_number, first_sample + spec_.batch_size);
    for (int64_t position = first; position < last; ++position) {
      DARKROOM_RETURN_IF_ERROR(skip_lane(lane_number, position));
      enter_window(lane_number);
      const Lane& lane = lanes_[static_cast<size_t>(lane_number)];
      samples.push_back({lane.epoch, lane.window_rows[static_cast<size_t>(position - lane.window_start)]});
    }
  }
  return samples;
}

Result<std::vector<SampleRef>> CanonicalOrder::slice(int64_t number, int64_t first, int64_t count) {
  DARKROOM_CHECK(first >= 0 && count >= 0 && first + count <= spec_.batch_size, "a slice lies in its batch (first, count, batch):", first,
                 count, spec_.batch_size);
  DARKROOM_ASSIGN_OR_RETURN(const auto samples, batch(number));
  return std::vector<SampleRef>(samples.begin() + first, samples.begin() + first + count);
}

}  // namespace darkroom
