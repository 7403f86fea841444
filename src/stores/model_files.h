#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/stores/hub.h"

namespace darkroom {

/// The folders that model_index.json names parts in, in byte order. Errors: kCorruptData: no object; kFailedPrecondition: no part in it.
/// Pure.
Result<std::vector<std::string>> read_model_parts(std::string_view model_index, const std::string& what);

/// Of a repository's files, those of a diffusers model folder with these parts (fetch_model.h), in byte order. `what`: the repository, for
/// messages. Errors: kFailedPrecondition: no model_index.json, a part without files, a part with weights of other kinds alone. Pure.
Result<std::vector<HubFile>> choose_model_files(const std::vector<HubFile>& tree, const std::vector<std::string>& parts,
                                                const std::string& what);

/// Of the files of a repository that holds a single network (config.json and weights at its top, as CLIP's), those that are fetched, in
/// byte order. Errors: kFailedPrecondition: no safetensors weights there, or of other kinds alone. Pure.
Result<std::vector<HubFile>> choose_network_files(const std::vector<HubFile>& tree, const std::string& what);

bool has_file(const std::vector<HubFile>& tree, std::string_view path);

}  // namespace darkroom
