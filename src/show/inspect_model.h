#pragma once

#include <stop_token>
#include <string>

#include "damage_log.h"
#include "darkroom/core/status.h"
#include "darkroom/show/inspect.h"

namespace darkroom {

/// Describes a model folder, one component's folder, or a single safetensors file. With --verify the components are loaded
/// (do the weights fit the config?), their fingerprints computed and every tensor searched for NaN.
/// Errors: as inspect().
Status inspect_model_folder(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                            DamageLog& damage);
Status inspect_component(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report, DamageLog& damage);
Status inspect_safetensors(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                           DamageLog& damage);

}  // namespace darkroom
