#include "online_balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace darkroom {

OnlineBalance balance_of(const FleetReport& fleet, double trainer_seconds, double trainer_wait_seconds, int64_t rows) {
  OnlineBalance balance{.fleet = fleet,
                        .trainer_seconds = trainer_seconds,
                        .trainer_wait_seconds = std::min(trainer_wait_seconds, trainer_seconds),
                        .encoder_rows_per_second = fleet.rows_per_second()};
  const double working_seconds = balance.trainer_seconds - balance.trainer_wait_seconds;
  balance.trainer_rows_per_second = working_seconds > 0 ? static_cast<double>(rows) / working_seconds : 0;
  if (balance.trainer_rows_per_second > 0 && balance.encoder_rows_per_second > 0) {
    balance.encoders_to_match = static_cast<int64_t>(std::ceil(balance.trainer_rows_per_second / balance.encoder_rows_per_second));
  }
  return balance;
}

nlohmann::json OnlineBalance::to_json() const {
  nlohmann::json json = fleet.to_json();
  json.update({{"trainer_seconds", trainer_seconds},
               {"trainer_wait_seconds", trainer_wait_seconds},
               {"trainer_rows_per_second", trainer_rows_per_second},
               {"encoders_to_match", encoders_to_match}});
  return json;
}

std::string OnlineBalance::to_text() const {
  const std::string waits =
      fmt::format("the trainer waited {:.1f} s of {:.1f} s for slices; {} encoders were idle {:.1f} s of their {:.1f} s",
                  trainer_wait_seconds, trainer_seconds, fleet.encoders, fleet.encoder_idle_seconds, fleet.encoder_seconds);
  if (encoders_to_match == 0) {
    return waits + "; too little was encoded to say how many would match";
  }
  return fmt::format("{}; without waiting the trainer takes {:.1f} rows/s, an encoder makes {:.1f}: {} would match", waits,
                     trainer_rows_per_second, encoder_rows_per_second, encoders_to_match);
}

}  // namespace darkroom
