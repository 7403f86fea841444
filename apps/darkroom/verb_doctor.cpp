#include <arrow/config.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/version.h"
#include "darkroom/tensor/device.h"
#include "darkroom/tensor/gpu_advice.h"
#include "doctor/examination.h"
#include "self_description.h"
#include "verb.h"

namespace darkroom {
namespace {

struct DoctorFlags {
  std::vector<std::string> stores;
  std::vector<std::string> allow_private;
};

std::vector<Finding> examine_program() {
  utsname system{};
  uname(&system);
  return {{"program", "darkroom", std::string(kVersion)},
          {"program", "system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"program", "torch", TORCH_VERSION},
          {"program", "kernels of torch", at::get_cpu_capability()},
          {"program", "arrow", arrow::GetBuildInfo().version_string}};
}

std::vector<Finding> examine_gpus() {
  const auto& gpus = list_gpus();
  if (!gpus.is_ok()) {
    const std::string& reason = gpus.status().message();
    return {examine_missing_gpu(reason, has_nvidia_driver() ? gpu_advice(reason) : "")};
  }
  std::vector<Finding> findings;
  for (size_t i = 0; i < gpus->size(); ++i) {
    const GpuInfo& gpu = (*gpus)[i];
    findings.push_back({"gpu", fmt::format("cuda:{}", i),
                        fmt::format("{}, {}, compute capability {}.{}", gpu.name, readable_bytes(static_cast<double>(gpu.memory_bytes)),
                                    gpu.compute_major, gpu.compute_minor)});
  }
  return findings;
}

Result<std::vector<Finding>> examine(const DoctorFlags& flags, const std::stop_token& stop) {
  std::vector<AllowedNetwork> allow_private;
  for (const std::string& network : flags.allow_private) {
    DARKROOM_ASSIGN_OR_RETURN(const AllowedNetwork allowed, AllowedNetwork::parse(network));
    allow_private.push_back(allowed);
  }
  rlimit open_files{};
  getrlimit(RLIMIT_NOFILE, &open_files);
  std::vector<Finding> findings = examine_program();
  const auto add = [&](std::vector<Finding> more) { findings.insert(findings.end(), more.begin(), more.end()); };
  add(examine_processor(slurp("/proc/cpuinfo")));
  add(examine_libraries(slurp("/proc/self/maps")));
  add(examine_gpus());
  add(examine_memory(slurp("/proc/meminfo"), control_group_memory()));
  add(examine_disk({".", "/tmp"}));
  add(examine_open_files(open_files.rlim_cur, open_files.rlim_max));
  DARKROOM_ASSIGN_OR_RETURN(auto stores, examine_stores(flags.stores, allow_private, stop));
  add(std::move(stores));
  return findings;
}

Result<int> run_doctor(const DoctorFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<Finding> findings, examine(flags, context.stop));
  context.summary["doctor"] = findings_json(findings);
  const int num_problems = count_problems(findings);
  DARKROOM_RETURN_IF_ERROR(print_text(
      findings_text(findings) + (num_problems == 0 ? "\nnothing is wrong\n" : fmt::format("\nproblems: {} (marked X)\n", num_problems))));
  return num_problems == 0 ? 0 : 1;
}

}  // namespace

void add_doctor_verb(CommandLine& line) {
  const auto flags = std::make_shared<DoctorFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("doctor", "what this machine has and lacks; exits 1 when something must be put right");
  verb.positional("URI", value::uris(flags->stores, "URI"), "stores to reach: local paths, s3://, hf://, http:// and https:// addresses");
  verb.flag("--allow-private", value::texts(flags->allow_private, "CIDR[:PORT]"),
            "networks that are allowed although they are not public; none by default");
  verb.example("darkroom doctor", "before the first run");
  verb.example("darkroom doctor images https://example.org/", "can the output be written, and the web be reached?");
  verb.example("darkroom doctor s3://bucket/images hf://org/model", "are there credentials, and what do they let us see?");
  verb.run([flags](VerbContext& context) { return run_doctor(*flags, context); });
}

}  // namespace darkroom
