#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>

#include "darkroom/image/picture_decoder.h"
#include "darkroom/ingest/body_pool.h"
#include "darkroom/ingest/decoding_budget.h"
#include "darkroom/ingest/download_job.h"
#include "darkroom/ingest/told_errors.h"
#include "darkroom/stream/pipeline.h"
#include "darkroom/web/fetch.h"
#include "download_row.h"
#include "download_rules.h"
#include "host_tally.h"

namespace darkroom {

/// The middle of a download: rows are fetched and what came is looked at. Their bodies lie in the pool's memory.
///   submit (1) -> fetch (1) -> inspect (N)
/// Thread safety: built and destroyed by one thread, after the pipeline that it was added to has ended.
class DownloadFetch {
 public:
  /// `pool`, `rules` and `run` outlive this. `work_bytes`: of pictures that are decoded at a time. Errors: Fetcher::create's.
  static Result<std::unique_ptr<DownloadFetch>> create(JobRun& run, const DownloadOptions& options, const DownloadRules& rules,
                                                       BodyPool& pool, size_t work_bytes);
  DownloadFetch(const DownloadFetch&) = delete;
  DownloadFetch& operator=(const DownloadFetch&) = delete;

  void add_stages(Pipeline& pipeline, BoundedQueue<DownloadPiece>& read, BoundedQueue<DownloadPiece>& done);
  /// Waits until the fetcher has use for more rows (Fetcher::wait_for_demand). Errors: its failure; kCancelled.
  Status wait_for_demand(int64_t max_beyond_places);
  FetchStats stats() const { return fetcher_->stats(); }
  const HostTally& hosts() const { return hosts_; }
  /// As StageSummary::first_errors.
  std::map<std::string, std::string> first_errors() const { return told_.told(); }

 private:
  DownloadFetch(JobRun& run, const DownloadOptions& options, const DownloadRules& rules, size_t work_bytes);

  Status submit(BoundedQueue<DownloadPiece>& read, Emitter<DownloadPiece>& out);
  Status collect(Emitter<DownloadPiece>& out);
  DownloadPiece take(uint64_t order);
  Status failure_or(Status otherwise) const;
  Result<std::unique_ptr<PictureDecoder>> make_decoder(const std::stop_token& stop) const;

  JobRun& run_;
  const DownloadOptions& options_;
  const DownloadRules& rules_;
  HostTally hosts_;
  DecodingBudget decoding_;
  ToldErrors told_{"download"};
  BoundedQueue<DownloadPiece> fetched_;
  std::mutex mutex_;
  std::map<uint64_t, DownloadPiece> under_way_;  // By their order. Guarded by mutex_. Inside the pool's memory until the fetcher has ended.
  std::unique_ptr<Fetcher> fetcher_;
  std::optional<std::stop_callback<std::function<void()>>> cancelling_;
};

}  // namespace darkroom
