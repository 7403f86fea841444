#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "darkroom/ingest/job_run.h"
#include "darkroom/process/process_batch.h"
#include "darkroom/slices/slice_fleet.h"
#include "darkroom/text/clip_tokenizer.h"
#include "process_reader.h"
#include "transformed_slice.h"

namespace darkroom {

/// How rows come from transformers.
struct TransformedReading {
  SliceFleetOptions fleet = {};
  int resolution = 0;
  int64_t slice_rows = 1;    ///< A multiple of the batch size.
  int64_t slices_ahead = 1;  ///< Asked for and not handed on, of one reader.
  int64_t ahead_bytes = 0;   ///< What these may come to, where they are larger than their pixels.
};

/// What transformers did for a run: the reports of its readers, as these end. Thread safety: any thread.
class TransformerTally {
 public:
  void add(const FleetReport& report);
  /// For people: rows, who waited, what was lost.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  FleetReport total_;  // Guarded by mutex_.
};

/// Asks transformers for the rows of items and cuts what comes into batches, in their order; gives them their token ids. Thread safety: one
/// worker's.
class TransformedReader : public ItemReader<ProcessBatch> {
 public:
  /// All that is given by reference outlives the reader.
  TransformedReader(JobRun& run, const ProcessReading& reading, const TransformedReading& how, const ClipTokenizer& tokenizer,
                    TransformerTally& tally)
      : run_(run), reading_(reading), how_(how), tokenizer_(tokenizer), tally_(tally) {}
  ~TransformedReader() override;

  /// The first one waits for a transformer. Errors: SliceFleet's; kCancelled.
  Status read(ItemIntake<ProcessBatch>& intake) override;

 private:
  struct Asked {
    uint64_t slice = 0;
    int64_t first = 0;  ///< Within the item.
    int64_t count = 0;
  };

  Status open_fleet();
  void ask_ahead(const WorkItem& work);
  Status hand_on(const TransformedSlice& slice, const Asked& asked, ItemIntake<ProcessBatch>& intake);

  JobRun& run_;
  const ProcessReading& reading_;
  const TransformedReading& how_;
  const ClipTokenizer& tokenizer_;
  TransformerTally& tally_;
  std::unique_ptr<SliceFleet> fleet_;
  int64_t next_ = 0;  // Row of the item that is asked for next.
  std::deque<Asked> asked_;
  int64_t largest_slice_ = 0;  // Of those that came, in bytes.
};

}  // namespace darkroom
