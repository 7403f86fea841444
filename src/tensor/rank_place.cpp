#include "darkroom/tensor/rank_place.h"

#include <charconv>
#include <cstdlib>

namespace darkroom {
namespace {

// One launcher's names; an empty one: it has none.
struct VariableNames {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* num_machines;
};

constexpr VariableNames kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ""},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ""},
    // Of a job step: a batch script itself has SLURM_NTASKS, too, but is one process.
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_STEP_NUM_NODES"},
};

// Leaves `number` alone where the variable is not set.
Status read_number(const VariableLookup& variable, const std::string& name, int64_t least, int64_t most, int64_t& number) {
  const auto text = name.empty() ? std::nullopt : variable(name);
  if (!text.has_value()) {
    return {};
  }
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc() || rest != end || number < least || number > most) {
    return Status::invalid_argument("an environment variable must be a number (variable, least, most, value):", name, least, most,
                                    "'" + *text + "'");
  }
  return {};
}

Result<RankPlace> read_place(const VariableLookup& variable, const VariableNames& names) {
  constexpr int64_t kMostRanks = 1 << 16;
  RankPlace place;
  DARKROOM_RETURN_IF_ERROR(read_number(variable, names.size, 1, kMostRanks, place.size));
  if (place.size > 1 && !variable(names.rank).has_value()) {
    return Status::invalid_argument("several ranks are to train, but which one this is is not said; set the variable:", names.rank);
  }
  DARKROOM_RETURN_IF_ERROR(read_number(variable, names.rank, 0, place.size - 1, place.rank));
  DARKROOM_RETURN_IF_ERROR(read_number(variable, names.local_rank, 0, place.size - 1, place.local_rank));
  DARKROOM_RETURN_IF_ERROR(read_number(variable, names.local_size, 1, place.size, place.local_size));
  int64_t num_machines = 0;
  DARKROOM_RETURN_IF_ERROR(read_number(variable, names.num_machines, 1, kMostRanks, num_machines));
  if (num_machines == 1) {
    place.local_size = place.size;
  }
  DARKROOM_RETURN_IF_ERROR(read_number(variable, "MASTER_PORT", 1, 65535, place.port));
  const auto host = variable("MASTER_ADDR");
  if (!host.has_value() && place.size != place.local_size) {
    return Status::invalid_argument("ranks of several machines meet at rank 0's address; set the variable:", "MASTER_ADDR");
  }
  place.host = host.value_or("127.0.0.1");
  place.hosts_store = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("False") != "True";
  place.attempt = variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return place;
}

}  // namespace

Result<RankPlace> rank_place_of(const VariableLookup& variable) {
  for (const VariableNames& names : kLaunchers) {
    if (variable(names.size).has_value()) {
      return read_place(variable, names);
    }
  }
  return RankPlace();
}

Result<RankPlace> rank_place_of_environment() {
  return rank_place_of([](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace darkroom
