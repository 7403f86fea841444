#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// Which rank a process is, and where the ranks meet.
struct RankPlace {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;  ///< Among the ranks of this machine.
  int64_t local_size = 1;
  std::string host = "127.0.0.1";  ///< Of rank 0, or of the launcher that keeps the store.
  int64_t port = 29500;
  bool hosts_store = true;    ///< Rank 0 keeps the store; false: the launcher (torchrun) does.
  std::string attempt = "0";  ///< Which start of the group this is: late words of an earlier one are not mixed up with it.
};

/// Whether a host's name stands for this machine alone.
bool is_loopback(const std::string& host);

/// An environment variable's value; empty optional: it is not set.
using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// The place that the environment names: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (by hand, torchrun),
/// else Open MPI's or Slurm's own names of them, else SageMaker's (SM_HOSTS, SM_RESOURCE_CONFIG). Rank 0 of 1 when it names none.
/// Errors: kInvalidArgument (a number that is none, a rank outside its world, no MASTER_ADDR for several machines, hosts that are no list
/// with this one).
Result<RankPlace> rank_place_of(const VariableLookup& variable);
/// That of this process's environment, in which a job of SageMaker's (TRAINING_JOB_NAME) without SM_RESOURCE_CONFIG has
/// input/config/resourceconfig.json below /opt/ml, or below SAGEMAKER_BASE_DIR, for it.
Result<RankPlace> rank_place_of_environment();

}  // namespace darkroom
