#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "darkroom/show/inspect.h"
#include "open_stores.h"
#include "self_description.h"
#include "verb.h"

namespace darkroom {
namespace {

// Columns of the terminal that the report goes to; 0 (every cell whole) for a file or a pipe, and where none are known.
int64_t terminal_width() {
  constexpr int64_t kLeast = 40;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return 0;
  }
  return std::max<int64_t>(kLeast, size.ws_col);
}

std::string damage_text(const InspectReport& report) {
  std::string text = fmt::format("\ndamage: {}\n", report.num_damages);
  for (const std::string& line : report.damage) {
    text += "  " + line + "\n";
  }
  const int64_t num_more = report.num_damages - static_cast<int64_t>(report.damage.size());
  return num_more > 0 ? text + fmt::format("  and {} more\n", num_more) : text;
}

Result<int> run_inspect(const InspectOptions& options, VerbContext& context) {
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, context.stop);
  InspectReport report;
  const Status status = inspect(*stores, options, context.stop, report);
  context.summary = report.summary;
  if (!status.is_ok()) {
    // What was found until then is said, too; of two failures the first is the one to report.
    static_cast<void>(print_text(report.num_damages > 0 ? damage_text(report) : ""));
    return status;
  }
  DARKROOM_RETURN_IF_ERROR(print_text(report.to_text(terminal_width()) + (options.verify ? damage_text(report) : "")));
  if (report.num_damages > 0) {
    return Status::corrupt_data("found damage: " + report.damage.front() + "; findings:", report.num_damages);
  }
  return 0;
}

}  // namespace

void add_inspect_verb(CommandLine& line) {
  const auto options = std::make_shared<InspectOptions>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("inspect", "look at any dataset, checkpoint, run folder or model folder");
  verb.positional("URI", value::uri(options->uri, "URI"), "what to look at: a file, a folder or a pattern").required();
  verb.flag("--rows", value::count(options->num_rows), "first rows of a dataset that are shown");
  verb.flag("--sheet", value::uri(options->sheet_path, "PATH.png", "none"),
            "contact sheet of these rows: pictures, or latent channels as heat maps");
  verb.flag("--html", value::uri(options->html_path, "PATH", "none"),
            "the report and the first rows as one page without network, which can be searched");
  verb.flag("--model", value::uri(options->model, "DIR", "none"), "model folder whose vae decodes the latents of the sheet");
  verb.flag("--compare", value::uri(options->compare, "RUN", "none"),
            "another run folder: both beside each other, their curves in one page");
  verb.flag("--max-pixels", value::count(options->max_pixels).least(1).unit("pixels"), "a larger picture is not decoded for the sheet");
  verb.flag("--max-bytes", value::bytes(options->max_bytes).least(1), "nor is an encoded picture of more bytes");
  verb.flag("--verify", value::toggle(options->verify), "read everything: checksums, duplicate keys, NaN, images; exits 1 on damage");
  verb.example("darkroom inspect latents --rows 12 --sheet sheet.png --model models/tiny", "twelve samples as pictures");
  verb.example("darkroom inspect latents --verify", "is every byte still good?");
  verb.run([options](VerbContext& context) { return run_inspect(*options, context); });
}

}  // namespace darkroom
