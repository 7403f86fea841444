#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "darkroom/files/file_system.h"
#include "darkroom/show/inspect.h"
#include "verb.h"

namespace darkroom {
namespace {

Status print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return Status::unavailable("writing the report to the standard output failed; bytes:", text.size());
  }
  return Status::ok();
}

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
  DARKROOM_ASSIGN_OR_RETURN(const InspectReport report, inspect(local_files(), options, context.stop));
  context.summary = report.summary;
  DARKROOM_RETURN_IF_ERROR(print(report.to_text(terminal_width()) + (options.verify ? damage_text(report) : "")));
  if (report.num_damages > 0) {
    return Status::corrupt_data("found damage: " + report.damage.front() + "; findings:", report.num_damages);
  }
  return 0;
}

}  // namespace

Verb add_inspect_verb(CLI::App& program) {
  CLI::App* command = program.add_subcommand("inspect", "look at any dataset, checkpoint, run folder or model folder");
  auto options = std::make_shared<InspectOptions>();  // Shared by the flags and the action.
  command->add_option("URI", options->uri, "what to look at: a file, a folder or a pattern")->required();
  command->add_option("--rows", options->num_rows, "first rows of a dataset that are shown")->type_name("N");
  command->add_option("--sheet", options->sheet_path, "contact sheet of these rows: pictures, or latent channels as heat maps")
      ->type_name("PATH.png");
  command->add_option("--html", options->html_path, "report and sheet as one page without network")->type_name("PATH");
  command->add_option("--model", options->model, "model folder whose vae decodes the latents of the sheet")->type_name("DIR");
  command->add_option("--compare", options->compare, "another run folder: both beside each other, their curves in one page")
      ->type_name("RUN");
  command->add_option("--max-pixels", options->max_pixels, "a larger picture is not decoded for the sheet")->type_name("N");
  command->add_option("--max-bytes", options->max_bytes, "nor is an encoded picture of more bytes")->type_name("BYTES");
  command->add_flag("--verify", options->verify, "read everything: checksums, duplicate keys, NaN, images; exits 1 on damage");
  return {command, [options](VerbContext& context) { return run_inspect(*options, context); }};
}

}  // namespace darkroom
