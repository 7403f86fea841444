#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "bench/bench.h"
#include "flags.h"

// `darkroom bench` for machines that build only gpu-core: prints the figures as one line of JSON.

namespace darkroom {
namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

Result<BenchOptions> read_options(const Flags& flags) {
  BenchOptions options;
  options.preset = flags.text("preset", options.preset);
  options.device = flags.text("device", "auto");
  options.dtype = flags.text("dtype", options.dtype);
  DARKROOM_ASSIGN_OR_RETURN(options.resolution, flags.number("resolution", options.resolution));
  DARKROOM_ASSIGN_OR_RETURN(options.batch_size, flags.number("batch-size", options.batch_size));
  DARKROOM_ASSIGN_OR_RETURN(options.repeats, flags.number("repeats", options.repeats));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t threads, flags.number("threads", options.threads));
  options.threads = static_cast<int>(threads);
  const std::string graph = flags.text("graph", "on");
  if (graph != "on" && graph != "off") {
    return Status::invalid_argument("--graph takes on or off, got:", graph);
  }
  options.graph = graph == "on";
  return options;
}

Result<nlohmann::json> run(int argc, char** argv) {
  DARKROOM_ASSIGN_OR_RETURN(
      const Flags flags,
      Flags::parse(argc, argv, {"preset", "device", "dtype", "resolution", "batch-size", "repeats", "threads", "graph"}));
  if (flags.names().size() != 1) {
    return Status::invalid_argument("usage: gpu_bench NAME [--flag VALUE]...; names given:", flags.names().size());
  }
  DARKROOM_ASSIGN_OR_RETURN(const Bench bench, find_bench(benches(), flags.names()[0]));
  DARKROOM_ASSIGN_OR_RETURN(const BenchOptions options, read_options(flags));
  return bench.run(options);
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  try {
    const auto figures = darkroom::run(argc, argv);
    if (figures.is_ok()) {
      fmt::print("{}\n", figures->dump());
      return 0;
    }
    fmt::print(stderr, "gpu_bench: {}\n", figures.status().message());
    return figures.status().code() == darkroom::StatusCode::kInvalidArgument ? darkroom::kBadUsage : darkroom::kFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return darkroom::kFailed;
  }
}
