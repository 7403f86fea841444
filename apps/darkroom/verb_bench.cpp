#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "data_bench/data_benches.h"
#include "self_description.h"
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

std::vector<std::string> bench_names() {
  std::vector<std::string> names;
  for (const Bench& bench : all_benches()) {
    names.emplace_back(bench.name);
  }
  return names;
}

Result<int> run_verb(const BenchFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const Bench bench, find_bench(all_benches(), flags.name));
  BenchOptions options = flags.options;
  options.stop = context.stop;
  DARKROOM_ASSIGN_OR_RETURN(context.summary, bench.run(options));
  if (context.stop.stop_requested()) {
    return Status::cancelled("stopped; the figures of the runs so far are in the summary");
  }
  DARKROOM_RETURN_IF_ERROR(print_text(flags.json ? context.summary.dump() + "\n" : bench_text(context.summary)));
  return 0;
}

}  // namespace

void add_bench_verb(CommandLine& line) {
  const auto flags = std::make_shared<BenchFlags>();  // Shared by the definitions and the action.
  BenchOptions& options = flags->options;
  VerbDefinition& verb = line.add_verb("bench", "how fast this machine runs a part; `make bench` compares with peers");
  verb.positional("NAME", value::choice(flags->name, bench_names()), list_of_benches()).required();
  verb.flag("--json", value::toggle(flags->json), "print the figures as JSON");
  verb.group("What is measured");
  verb.flag("--preset", value::text(options.preset, "NAME"), "networks, as in models init");
  verb.flag("--resolution", value::count(options.resolution).least(1).also("auto", 0).unit("pixels"),
            "side of the pictures; auto: the preset's");
  verb.flag("--batch-size", value::count(options.batch_size).least(1), "samples at a time");
  verb.flag("--dtype", value::choice(options.dtype, {"float32", "bfloat16"}), "what the network computes in");
  verb.flag("--seed", value::count(options.seed).shown("S"), "of weights and inputs");
  verb.group("How it is measured");
  verb.flag("--repeats", value::count(options.repeats).least(1), "measured runs");
  verb.flag("--threads", value::count(options.threads).least(1), "threads of one operation");
  verb.flag("--device", value::device(options.device, false), "where it runs");
  verb.flag("--no-graph", value::toggle_off(options.graph), "on a GPU: do not record a run once and replay it");
  verb.flag("--no-packing", value::toggle_off(options.packing), "on the CPU: do not lay the U-Net's weights out once, as sample does");
  verb.example("darkroom bench train-step --batch-size 16 --threads 2", "a training step of the tiny networks");
  verb.run([flags](VerbContext& context) { return run_verb(*flags, context); });
}

}  // namespace darkroom
