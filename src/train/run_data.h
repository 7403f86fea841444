#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "darkroom/batches/batcher.h"
#include "darkroom/core/result.h"
#include "darkroom/encode/remote_source.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/stores/stores.h"
#include "darkroom/train/recipe.h"

namespace darkroom {

/// The shapes that the trained network takes.
struct SampleShapes {
  std::vector<int64_t> latents;  ///< {C, h, w}
  std::vector<int64_t> states;   ///< {T, W}
  bool keeps_float16 = false;    ///< Of latents shards: batches stay as they are stored.
};

/// What a run reads: latents, pictures, or pictures that are encoded on the way.
struct RunData {
  DatasetIndex index{{}};
  std::unique_ptr<SampleSource> source;
  int64_t num_ahead = 0;           ///< For the Batcher: 0 where the source must run on the training thread.
  int64_t num_expected = 0;        ///< For the Batcher, too: of encoders elsewhere.
  RemoteSource* remote = nullptr;  ///< The source, where it is one of those.
  RowGroups row_groups;            ///< Of the dataset.
  int64_t image_row_bytes = 0;     ///< Of a Parquet file of pictures, a row as kept, on average; 0: not known, or latents.
  torch::Tensor empty_states_tw;   ///< Undefined without caption dropout.
  std::string vae_fingerprint;     ///< Of the VAE that made the latents; empty: unknown.
  std::string text_encoder_fingerprint;
  std::string tokenizer_fingerprint;  ///< Of pictures that are encoded on the way; else empty.
  std::string tokenizer_dialect;
  Status unfit;  ///< Why no run is begun on them. One that has begun goes on: it is told of.
  Status doubt;  ///< What is told of, whether it begins or goes on.
};

/// Opens the dataset for the recipe's objective. `frozen` may be null unless pictures are encoded on the way.
/// `decoder_program`: TrainOptions'. `began_with`: the index that the run has begun with, null for a new one: parts that were replaced
/// since (download --retry-failed) are read as they were (take_indexed_generations). Errors: those of the sources; kFailedPrecondition when
/// the latents were made by other frozen parts than `frozen`, or when no decoder can be locked in.
Result<RunData> open_pictures(StoreSet& stores, const Recipe& recipe, const std::string& decoder_program,
                              const DatasetIndex* began_with = nullptr);
Result<RunData> open_latents(StoreSet& stores, const Recipe& recipe, const SampleShapes& shapes, const FrozenModels* frozen);
Result<RunData> open_online(StoreSet& stores, const Recipe& recipe, const SampleShapes& shapes, std::shared_ptr<const FrozenModels> frozen,
                            const std::string& decoder_program, const DatasetIndex* began_with = nullptr);

/// The same with the encoders of other processes: `fleet` names them. Errors: also RemoteSource::open's.
Result<RunData> open_remote(StoreSet& stores, const Recipe& recipe, const SampleShapes& shapes, std::shared_ptr<const FrozenModels> frozen,
                            const SliceFleetOptions& fleet, const DatasetIndex* began_with = nullptr);

/// How pictures become network input, by the recipe. REQUIRES: a valid recipe.
TransformOptions transform_of(const Recipe& recipe);

/// The share of a rank in the memory for samples of its machine, at least a MiB: ranks of one machine share it.
int64_t memory_of_rank(int64_t bytes, int64_t local_ranks);

}  // namespace darkroom
