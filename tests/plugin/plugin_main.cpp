#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "checks.h"
#include "darkroom/tensor/device.h"

// plugin_test: every kernel of libdarkroom_cuda.so against its CPU reference, on a GPU. It needs no test framework, because GPU boxes
// have none. Without a GPU each check is skipped with the reason. Exits 1 when a check fails. usage: plugin_test [PART_OF_A_NAME]

namespace darkroom::plugin_checks {
namespace {

bool passes(const Check& check, const torch::Device& device) {
  Findings findings;
  try {
    torch::manual_seed(20);
    check.run(findings, device);
  } catch (const std::exception& error) {
    findings.holds(std::string("threw: ") + error.what(), false);
  }
  fmt::print("{} {}\n", findings.complaints().empty() ? "pass" : "FAIL", check.name);
  for (const std::string& complaint : findings.complaints()) {
    fmt::print("     {}\n", complaint);
  }
  return findings.complaints().empty();
}

int run_all(const std::string& filter) {
  std::vector<Check> checks = first_checks();
  for (const auto& more : {network_checks(), training_checks(), runtime_checks()}) {
    checks.insert(checks.end(), more.begin(), more.end());
  }
  const auto& gpus = list_gpus();
  int passed = 0, failed = 0, skipped = 0;
  for (const Check& check : checks) {
    if (check.name.find(filter) == std::string::npos) {
      continue;
    }
    if (!gpus.is_ok()) {
      fmt::print("skip {}: {}\n", check.name, gpus.status().message());
      ++skipped;
      continue;
    }
    ++(passes(check, torch::Device(torch::kCUDA, 0)) ? passed : failed);
  }
  fmt::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace darkroom::plugin_checks

int main(int argc, char** argv) {
  at::set_num_threads(1);
  at::globalContext().setAllowTF32CuDNN(false);
  return darkroom::plugin_checks::run_all(argc > 1 ? argv[1] : "");
}
