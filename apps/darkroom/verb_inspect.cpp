#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "darkroom/files/file_system.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/image/probe.h"
#include "darkroom/image/sandbox.h"
#include "darkroom/image/watermark.h"
#include "darkroom/show/inspect.h"
#include "opening/open_stores.h"
#include "resources.h"
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

struct InspectFlags {
  InspectOptions options;
  bool has_watermark = false;  // Asks for it.
  bool is_sandboxed = true;
};

// The program that decodes pictures; empty: this one does.
Result<std::string> chosen_decoder(const InspectFlags& flags) {
  return flags.is_sandboxed ? find_decoder() : Result<std::string>(std::string());
}

// One picture, which may come from anywhere.
Result<WatermarkReading> read_watermark_of(const InspectFlags& flags, const std::stop_token& stop) {
  const InspectOptions& options = flags.options;
  DARKROOM_ASSIGN_OR_RETURN(const std::string path, local_path(options.uri));
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(local_files(), path));
  const ImageLimits limits{.min_size = 1, .max_pixels = options.max_pixels};
  const auto data = std::as_bytes(std::span(bytes));
  const RowResult<ImageHeader> header = probe_image(data, limits);
  if (!header.is_ok()) {
    return Status::corrupt_data("cannot read the picture (path, reason):", path, header.error().name());
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string program, chosen_decoder(flags));
  DARKROOM_ASSIGN_OR_RETURN(const auto decoder, open_decoder(program, limits, stop));
  Image image = Image::filled(header->width, header->height, 3);
  DARKROOM_ASSIGN_OR_RETURN(const auto decoded,
                            decoder->resize_to(data, {.width = image.width, .height = image.height}, limits, image.pixels));
  if (!decoded.is_ok()) {
    return Status::corrupt_data("cannot decode the picture (path, reason):", path, decoded.error().name());
  }
  return read_watermark(image);
}

Result<int> show_watermark(const InspectFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const WatermarkReading reading, read_watermark_of(flags, context.stop));
  context.summary["watermark"] = {{"marked", reading.is_marked}, {"bits_right", reading.num_right}};
  DARKROOM_RETURN_IF_ERROR(print_text(fmt::format("watermark: {} ({} of 32 bits)\n", reading.is_marked ? "yes" : "no", reading.num_right)));
  return 0;
}

Result<int> run_inspect(const InspectFlags& flags, VerbContext& context) {
  const InspectOptions& options = flags.options;
  if (flags.has_watermark) {
    return show_watermark(flags, context);
  }
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, context.stop);
  InspectReport report;
  InspectOptions with_decoder = options;
  if (flags.is_sandboxed) {
    with_decoder.open_decoder = [max_pixels = options.max_pixels](const std::stop_token& stop) -> Result<std::unique_ptr<PictureDecoder>> {
      DARKROOM_ASSIGN_OR_RETURN(const std::string program, find_decoder());
      return open_decoder(program, {.min_size = 1, .max_pixels = max_pixels}, stop);
    };
  }
  const Status status = inspect(*stores, with_decoder, context.stop, report);
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
  const auto flags = std::make_shared<InspectFlags>();  // Shared by the definitions and the action.
  InspectOptions* const options = &flags->options;
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
  verb.flag("--no-sandbox", value::toggle_off(flags->is_sandboxed),
            "decode pictures in this process: where the kernel refuses the sandbox, or all pictures are trusted");
  verb.flag("--watermark", value::toggle(flags->has_watermark), "of one local picture: whether it has the mark of serve --watermark");
  verb.example("darkroom inspect latents --rows 12 --sheet sheet.png --model models/tiny", "twelve samples as pictures");
  verb.example("darkroom inspect latents --verify", "is every byte still good?");
  verb.run([flags](VerbContext& context) { return run_inspect(*flags, context); });
}

}  // namespace darkroom
