#include "darkroom/tensor/rank_place.h"

#include <arpa/inet.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <vector>

#include "darkroom/core/nested_text.h"
#include "darkroom/tensor/launcher_job.h"

namespace darkroom {
namespace {

// One launcher's names; an empty one: it has none.
struct VariableNames {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* num_machines;
  const char* job;
  const char* job_step;
};

constexpr const char* kResourceConfig = "SM_RESOURCE_CONFIG";
constexpr const char* kTrainingJob = "TRAINING_JOB_NAME";

constexpr VariableNames kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "", "TORCHELASTIC_RUN_ID", ""},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", "PMIX_NAMESPACE", ""},
    // Of a job step: a batch script itself has SLURM_NTASKS, too, but is one process.
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_STEP_NUM_NODES", "SLURM_JOB_ID", "SLURM_STEP_ID"},
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

std::string value_or_empty(const VariableLookup& variable, const char* name) { return *name == '\0' ? "" : variable(name).value_or(""); }

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
  if (num_machines > 0) {
    place.local_size = (place.size + num_machines - 1) / num_machines;  // Spread evenly, as Slurm does unless told otherwise.
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

bool names_hosts(const nlohmann::json& hosts) {
  return hosts.is_array() && !hosts.empty() && std::all_of(hosts.begin(), hosts.end(), [](const auto& host) { return host.is_string(); });
}

// SageMaker Training starts one container a host and says which ones there are: its toolkit in variables, every job in a file.
Result<RankPlace> read_sagemaker_place(const VariableLookup& variable) {
  nlohmann::json hosts;
  std::string own = value_or_empty(variable, "SM_CURRENT_HOST");
  if (const auto listed = variable("SM_HOSTS")) {
    hosts = parse_json(*listed);
  } else {
    const auto config = parse_json(value_or_empty(variable, kResourceConfig));
    if (config.is_object()) {
      hosts = config.value("hosts", nlohmann::json());
      own = config.value("current_host", nlohmann::json()).is_string() ? config["current_host"].get<std::string>() : own;
    }
  }
  if (!names_hosts(hosts)) {
    const bool is_listed = variable("SM_HOSTS").has_value();
    return Status::invalid_argument(fmt::format("SageMaker names the hosts of a job as a list of texts in {}, got:",
                                                is_listed ? "SM_HOSTS" : "its resourceconfig.json"),
                                    fmt::format("'{}'", value_or_empty(variable, is_listed ? "SM_HOSTS" : kResourceConfig)));
  }
  auto names = hosts.get<std::vector<std::string>>();
  std::sort(names.begin(), names.end());  // As SageMaker lists them: every host counts alike.
  const auto found = std::find(names.begin(), names.end(), own);
  if (found == names.end()) {
    return Status::invalid_argument("this host is none of the job's (SM_CURRENT_HOST, hosts):", fmt::format("'{}'", own), hosts.dump());
  }
  RankPlace place;
  place.rank = found - names.begin();
  place.size = static_cast<int64_t>(names.size());
  place.host = variable("MASTER_ADDR").value_or(names.front());
  DARKROOM_RETURN_IF_ERROR(read_number(variable, "MASTER_PORT", 1, 65535, place.port));
  return place;
}

bool is_sagemaker(const VariableLookup& variable) { return variable("SM_HOSTS").has_value() || variable(kResourceConfig).has_value(); }

std::string resource_config_path() {
  const char* folder = std::getenv("SAGEMAKER_BASE_DIR");  // As SageMaker's toolkit has it.
  return std::string(folder == nullptr || *folder == '\0' ? "/opt/ml" : folder) + "/input/config/resourceconfig.json";
}

std::optional<std::string> variable_of_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value != nullptr) {
    return value;
  }
  if (name != kResourceConfig || std::getenv(kTrainingJob) == nullptr) {
    return std::nullopt;
  }
  const std::string path = resource_config_path();  // A container without SageMaker's toolkit has this alone.
  std::error_code failure;
  if (std::filesystem::status(path, failure).type() == std::filesystem::file_type::not_found) {
    return std::nullopt;
  }
  std::ostringstream text;  // Empty where it cannot be read: no hosts, which is refused. Else each host would train alone.
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

Result<RankPlace> rank_place_of(const VariableLookup& variable) {
  for (const VariableNames& names : kLaunchers) {
    if (variable(names.size).has_value()) {
      return read_place(variable, names);
    }
  }
  return is_sagemaker(variable) ? read_sagemaker_place(variable) : Result<RankPlace>(RankPlace());
}

Result<RankPlace> rank_place_of_environment() { return rank_place_of(variable_of_process); }

std::string launcher_job_of(const VariableLookup& variable) {
  for (const VariableNames& names : kLaunchers) {
    if (variable(names.size).has_value()) {
      std::string job = value_or_empty(variable, names.job);
      const std::string step = value_or_empty(variable, names.job_step);
      return step.empty() ? job : job.append(".").append(step);
    }
  }
  return is_sagemaker(variable) ? value_or_empty(variable, kTrainingJob) : "";
}

std::string launcher_job_of_environment() { return launcher_job_of(variable_of_process); }

bool is_loopback(const std::string& host) {
  constexpr int kLoopbackNetwork = 127;
  in_addr address{};
  return host == "localhost" || host == "::1" ||
         (inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24U == kLoopbackNetwork);
}

}  // namespace darkroom
