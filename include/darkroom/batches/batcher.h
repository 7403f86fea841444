#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/feed/canonical_order.h"
#include "darkroom/stream/bounded_queue.h"

namespace darkroom {

// B batch, C latent channels, T tokens, W text width, R resolution.

/// One batch of training data on the CPU, float32 unless the source was asked to keep float16.
struct Batch {
  int64_t number = 0;              ///< Of the global batch.
  std::vector<SampleRef> samples;  ///< B, in canonical order.
  std::vector<std::string> keys;   ///< Of the samples.
  torch::Tensor latents_nchw;      ///< [B, C, h, w] scaled latents; undefined for pictures.
  torch::Tensor states_btc;        ///< [B, T, W] text states; undefined for pictures.
  torch::Tensor images_nchw;       ///< [B, 3, R, R] in [-1, 1]; undefined for latents.
};

/// Where samples come from: latents shards, or pictures that are encoded here. What a row holds may not depend on the
/// rows around it. Thread safety: one object, one thread at a time.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  /// The samples' keys and tensors, in order. Errors: kCorruptData naming the file and the row; those of the store.
  virtual Result<Batch> read(std::span<const SampleRef> samples) = 0;
  /// Tells of samples that a later read() will ask for, in the order of these calls, so that they may be got ready.
  virtual void expect(std::span<const SampleRef> /*samples*/) {}
  /// Ends a read() that waits for somebody else, and all later ones. Thread safety: any thread.
  virtual void stop_waiting() {}
  /// "FILE, row N": where a row lies, for messages.
  virtual std::string describe(int64_t row) const = 0;
};

struct BatcherOptions {
  int64_t first_batch = 0;   ///< The position to start from.
  int64_t first_sample = 0;  ///< The part of each global batch that is read: a rank's own.
  int64_t num_samples = 0;   ///< 0: all from first_sample on.
  int64_t num_ahead = 4;     ///< Batches kept ready by a thread of its own; 0: each is made when it is asked for.
  int64_t num_expected = 0;  ///< Batches after the one that is made, which the source is told of.
  int64_t end_batch = 0;     ///< It is told of none from here on; 0: there is no end.
};

/// Hands out batches in canonical order, made ahead of time by one background thread. Which batches come out depends on
/// the order and the source only. Thread safety: next() from one thread.
class Batcher {
 public:
  Batcher(std::unique_ptr<CanonicalOrder> order, std::unique_ptr<SampleSource> source, const BatcherOptions& options);
  /// Stops the thread after the batch that it is making, for which the source waits no longer.
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// The next batch. Errors: the order's and the source's, kCancelled once `stop` was requested where a thread makes batches ahead; after
  /// an error every call returns it again.
  Result<Batch> next(const std::stop_token& stop = {});
  /// The source's describe(). REQUIRES: as the source's; safe while the thread runs, because places never change.
  std::string describe(int64_t row) const { return source_->describe(row); }

 private:
  Result<Batch> make(int64_t number);
  Status expect_more(int64_t number);
  void run(std::stop_token stop);

  std::unique_ptr<CanonicalOrder> order_;
  std::unique_ptr<SampleSource> source_;
  BatcherOptions options_;
  int64_t next_batch_;                         // Of the thread, or of next() without one.
  std::deque<std::vector<SampleRef>> coming_;  // Of the batch to make and those after it; of the same.
  Status failure_;                             // Of next().
  BoundedQueue<Result<Batch>> queue_;
  std::jthread thread_;  // Last: it uses all above.
};

}  // namespace darkroom
