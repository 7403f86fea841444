#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/machine.h"
#include "darkroom/web/address_policy.h"

namespace darkroom {

/// One thing that was looked at.
struct Finding {
  enum class Verdict { kGood, kRemark, kProblem };

  std::string section;  ///< "processor", "libraries", "gpu", "memory", "disk", "open files", "stores".
  std::string name;     ///< "avx2", "/tmp".
  std::string text;     ///< "31.2 GB free of 64.0 GB"
  Verdict verdict = Verdict::kGood;
  std::string advice = {};  ///< What to do about a remark or a problem.
};

/// Name, cores and instruction sets of the processor, as /proc/cpuinfo (its text is given) tells.
std::vector<Finding> examine_processor(const std::string& cpuinfo);
/// Shared libraries of this process with the versions in their file names, from the text of /proc/self/maps.
std::vector<Finding> examine_libraries(const std::string& maps);
/// That no GPU is used, for a reason: a remark where there is something to do about it, because the machine has one.
Finding examine_missing_gpu(const std::string& reason, const std::string& advice);
/// Memory of the machine, from the text of /proc/meminfo, and what its control groups leave this process.
std::vector<Finding> examine_memory(const std::string& meminfo, const ControlGroupMemory& group);
/// Room where `folders` lie.
std::vector<Finding> examine_disk(const std::vector<std::string>& folders);
/// The limit of open files against what `download` opens by default.
std::vector<Finding> examine_open_files(uint64_t soft_limit, uint64_t hard_limit);
/// Whether each store can be reached: a local path by looking, http and https through the door that download uses, s3 and hf through the
/// stores of all verbs, with the environment's credentials. No finding shows what may be secret in an address.
/// Errors: kCancelled; what is wrong with a store is in its finding.
Result<std::vector<Finding>> examine_stores(const std::vector<std::string>& uris, const std::vector<AllowedNetwork>& allow_private,
                                            const std::stop_token& stop);

/// Bytes in the largest decimal unit: "31.2 GB".
std::string readable_bytes(double num_bytes);
/// The text of a small file; empty when it cannot be read.
std::string slurp(const std::string& path);

int count_problems(const std::vector<Finding>& findings);
/// For people, by section.
std::string findings_text(const std::vector<Finding>& findings);
/// {section: {name: text}}, and `problems`: a list of sentences.
nlohmann::json findings_json(const std::vector<Finding>& findings);

}  // namespace darkroom
