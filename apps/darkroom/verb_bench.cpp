#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "data_bench/data_benches.h"
#include "verb.h"

namespace darkroom {
namespace {

struct BenchFlags {
  std::string name;
  bool json = false;
  BenchOptions options;
};

std::vector<Bench> all_benches() {
  std::vector<Bench> all(benches().begin(), benches().end());
  all.insert(all.end(), data_benches().begin(), data_benches().end());
  return all;
}

std::string list_of_benches() {
  std::string list;
  for (const Bench& bench : all_benches()) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : "; ", bench.name, bench.what);
  }
  return list;
}

Result<int> run_verb(const BenchFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const Bench bench, find_bench(all_benches(), flags.name));
  DARKROOM_ASSIGN_OR_RETURN(context.summary, bench.run(flags.options));
  fmt::print("{}", flags.json ? context.summary.dump() + "\n" : bench_text(context.summary));
  return 0;
}

}  // namespace

Verb add_bench_verb(CLI::App& program) {
  auto flags = std::make_shared<BenchFlags>();  // Shared by CLI11's bindings and the action.
  BenchOptions& options = flags->options;
  CLI::App* command = program.add_subcommand("bench", "how fast this machine runs a part; `make bench` compares with peers");
  command->add_option("NAME", flags->name, list_of_benches())->required();
  command->add_flag("--json", flags->json, "print the figures as JSON");
  command->add_option("--preset", options.preset, "networks, as in models init")->type_name("NAME");
  command->add_option("--resolution", options.resolution, "side of the pictures in pixels; 0: the preset's")->type_name("PIXELS");
  command->add_option("--batch-size", options.batch_size, "samples at a time")->type_name("N");
  command->add_option("--repeats", options.repeats, "measured runs")->type_name("N");
  command->add_option("--threads", options.threads, "threads of one operation")->type_name("N");
  command->add_option("--seed", options.seed, "of weights and inputs")->type_name("S");
  command->add_option("--device", options.device, "auto, cpu, cuda or cuda:N")->type_name("DEVICE");
  command->add_option("--dtype", options.dtype, "what the network computes in: float32 or bfloat16")->type_name("TYPE");
  command->add_flag("--graph,!--no-graph", options.graph, "on a GPU: record a run once and replay it");
  return {command, [flags](VerbContext& context) { return run_verb(*flags, context); }};
}

}  // namespace darkroom
