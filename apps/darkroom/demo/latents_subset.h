#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Writes the rows of a latents dataset whose key is in `keys` as a latents dataset of its own: one shard, rows in their
/// order, the same columns, footer facts and empty caption. Returns its rows.
/// Errors: kNotFound (no shards, no such rows), those of the store.
Result<int64_t> write_latents_subset(FileSystem& files, const std::string& latents, const std::string& subset,
                                     const std::set<std::string>& keys);

/// The stored latents of the rows with these keys, in this order: float32 (N, C, h, w), scaled.
/// Errors: kNotFound (a key is missing, or no latents of this resolution), those of the store.
Result<torch::Tensor> read_latents_of(FileSystem& files, const std::string& latents, int64_t resolution,
                                      const std::vector<std::string>& keys);

}  // namespace darkroom
