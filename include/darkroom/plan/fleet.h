#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/plan/catalogue.h"

namespace darkroom {

/// The fleet of the published run.
inline constexpr const char* kPublishedFleet = "train=4xp4de.24xlarge,encode=48xg5.2xlarge,download=10xm5.8xlarge";

/// Machines of one kind with one role.
struct FleetGroup {
  Machine machine;
  int64_t count = 0;  ///< 0: as many as keep up with the trainers.
};

/// The machines of a plan.
struct Fleet {
  FleetGroup train;
  std::optional<FleetGroup> encode;
  std::optional<FleetGroup> download;

  std::string to_text() const;
};

/// Reads "train=4xp4de.24xlarge,encode=g5.2xlarge,download=10xm5.8xlarge": a role, how many machines (of encoders and downloaders a missing
/// count is worked out) and their name in the catalogue. A first group without a role trains. Errors: kInvalidArgument naming the group:
/// its form, an unknown role or machine (with the nearest name), a role twice, no trainers, a machine that has no rate for its role.
Result<Fleet> parse_fleet(std::string_view spec, const Catalogue& catalogue);

}  // namespace darkroom
