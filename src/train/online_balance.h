#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "darkroom/slices/slice_fleet.h"

namespace darkroom {

/// Which side of a run with encoders elsewhere waits for the other, and how many encoders would match.
struct OnlineBalance {
  FleetReport fleet;                   ///< As rank 0 saw it: encoders count for all ranks.
  double trainer_seconds = 0;          ///< Of the steps of this start, hooks left aside.
  double trainer_wait_seconds = 0;     ///< Of these: the rank that waited longest had no batch.
  double trainer_rows_per_second = 0;  ///< Of all ranks, as if none had waited; 0: unknown.
  double encoder_rows_per_second = 0;  ///< Of one encoder, as if it had never been idle; 0: unknown.
  int64_t encoders_to_match = 0;       ///< So many would keep up; 0: unknown.

  nlohmann::json to_json() const;
  /// A sentence for people.
  std::string to_text() const;
};

/// `rows`: of all ranks in the `trainer_seconds`.
OnlineBalance balance_of(const FleetReport& fleet, double trainer_seconds, double trainer_wait_seconds, int64_t rows);

}  // namespace darkroom
