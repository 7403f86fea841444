#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

/// Brings a model folder, one component's folder, a checkpoint or a single file here from wherever it lies, because weights are mapped;
/// what is local stays where it is. Of a remote model folder come its JSON and text files and the weights without variants (`.fp16`) where
/// there are weights without; of pickle files only the names. Beside a single file come the folders tokenizer/ and scheduler/. `takes`
/// chooses among these, by their paths within the folder; none: all. Errors: kNotFound, kCancelled, those of the stores and the disk.
Result<LocalCopy> fetch_model_files(StoreSet& stores, const std::string& uri,
                                    const std::function<bool(const std::string& name)>& takes = {}, const std::stop_token& stop = {});

}  // namespace darkroom
