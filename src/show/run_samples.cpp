#include "run_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "cell_text.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/show/html_page.h"
#include "darkroom/stores/input_listing.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tables/bytes_column.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/table_reader.h"
#include "table_kind.h"
#include "table_parts.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxSheets = 6;
constexpr int64_t kMaxRowsSearched = 100'000;

/// One samples/step-NNNNNNNN/.
struct Sheet {
  std::string step;
  std::string png;
  Json about;  ///< samples.json; null for an autoencoder's sheet.
};

Result<std::vector<Sheet>> read_sheets(FileSystem& files, const std::string& folder) {
  std::vector<Sheet> sheets;
  DARKROOM_ASSIGN_OR_RETURN(const bool has_samples, files.exists(folder));
  if (!has_samples) {
    return sheets;
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> steps, files.list(folder));
  for (size_t index = steps.size(); index-- > 0 && sheets.size() < kMaxSheets;) {
    DARKROOM_ASSIGN_OR_RETURN(const bool has_sheet, files.exists(join_path(steps[index].path, "sheet.png")));
    if (!has_sheet) {
      continue;
    }
    Sheet sheet{.step = clipped_text(file_name(steps[index].path), 40), .png = {}, .about = {}};
    DARKROOM_ASSIGN_OR_RETURN(sheet.png, read_file(files, join_path(steps[index].path, "sheet.png")));
    const std::string about = join_path(steps[index].path, "samples.json");
    DARKROOM_ASSIGN_OR_RETURN(const bool has_about, files.exists(about));
    if (has_about) {
      DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, about));
      sheet.about = parse_json<Json>(text);
      if (!sheet.about.is_object()) {
        return Status::corrupt_data("the description of samples is no JSON object (path):", about);
      }
    }
    sheets.push_back(std::move(sheet));
  }
  return sheets;
}

std::set<std::string> prompts_of(const std::vector<Sheet>& sheets) {
  std::set<std::string> prompts;
  for (const Sheet& sheet : sheets) {
    const Json pictures = sheet.about.is_object() ? sheet.about.value("pictures", Json::array()) : Json::array();
    for (const Json& picture : pictures) {
      if (picture.is_object() && picture.contains("prompt") && picture["prompt"].is_string()) {
        prompts.insert(picture["prompt"].get<std::string>());
      }
    }
  }
  return prompts;
}

/// What a search of the dataset's captions found.
struct CaptionSearch {
  int64_t num_rows = 0;         ///< Searched.
  std::set<std::string> found;  ///< Prompts that are captions.
};

Status search_part(FileSystem& files, const DatasetPart& part, const std::string& path, const std::set<std::string>& prompts,
                   CaptionSearch& search) {
  DARKROOM_ASSIGN_OR_RETURN(const auto reader, open_table(files, path));
  const TableKind kind = table_kind(*reader->schema(), path);
  const int64_t num_rows = std::min(part.num_rows, kMaxRowsSearched - search.num_rows);
  if (kind.caption.empty()) {
    search.num_rows += num_rows;
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto rows, reader->read_rows(part.first_row, num_rows, {kind.caption}));
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const auto batch, rows->next());
    if (batch == nullptr) {
      return Status::ok();
    }
    DARKROOM_ASSIGN_OR_RETURN(const BytesColumn captions, BytesColumn::open(path, kind.caption, batch->column(0)));
    for (int64_t row = 0; row < batch->num_rows(); ++row) {
      if (const auto prompt = prompts.find(std::string(captions.at(row).value_or(""))); prompt != prompts.end()) {
        search.found.insert(*prompt);
      }
    }
    search.num_rows += batch->num_rows();
  }
}

// Where a part of the run's dataset lies: within the folder, beside the file or below the pattern that the recipe names.
Result<std::string> path_of_part(FileSystem& files, const std::string& uri, const std::string& name) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string given, local_path(uri));
  std::string root(without_trailing_slashes(given));
  const auto info = files.stat(root);
  if (info.is_ok() && !info->is_folder) {
    root = parent_folder(root);
  } else if (!info.is_ok()) {
    root = folder_above_wildcards(root);
  }
  return name.starts_with("/") || root == "." ? name : join_path(root, name);
}

// Nothing was searched where the dataset is not known, not of this machine or not there any more.
Result<CaptionSearch> search_captions(FileSystem& files, const RunFolder& run, const std::set<std::string>& prompts) {
  CaptionSearch search;
  if (!run.index || run.dataset().empty()) {
    return search;
  }
  for (const DatasetPart& part : run.index->parts()) {
    if (search.num_rows >= kMaxRowsSearched || search.found.size() == prompts.size()) {
      break;
    }
    const auto path = path_of_part(files, run.dataset(), part.name);
    const Status status = path.is_ok() ? search_part(files, part, *path, prompts, search) : path.status();
    const bool is_remote = !path.is_ok() && path.status().code() == StatusCode::kInvalidArgument;
    if (status.code() == StatusCode::kNotFound || is_remote) {
      return CaptionSearch();
    }
    DARKROOM_RETURN_IF_ERROR(status);
  }
  return search;
}

std::string origin_sentence(const std::set<std::string>& prompts, const CaptionSearch& search, const RunFolder& run) {
  const std::string count = prompts.size() == 1 ? "The prompt is" : fmt::format("All {} prompts are", prompts.size());
  if (search.found.size() == prompts.size()) {
    return count + " captions of pictures that this run trains on: the sheets show what it remembers, not what it can make up.";
  }
  const int64_t num_rows = run.index ? run.index->num_rows() : 0;
  const std::string rows = search.num_rows >= num_rows ? fmt::format("the {} rows that this run trains on", grouped_digits(num_rows))
                                                       : fmt::format("the first {} rows of the dataset", grouped_digits(search.num_rows));
  if (search.found.empty()) {
    return fmt::format("None of the {} prompts is a caption of {}.", prompts.size(), rows);
  }
  return fmt::format("{} of the {} prompts are captions of {}: their pictures show what it remembers.", search.found.size(), prompts.size(),
                     rows);
}

std::string text_of(const Json& value) {
  return escape_html(
      clipped_text(value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace), 60));
}

std::string caption_of(const Sheet& sheet) {
  if (!sheet.about.is_object()) {
    return escape_html(sheet.step);
  }
  std::string caption = escape_html(sheet.step);
  const auto add = [&](const char* field, const std::string& pattern) {
    if (sheet.about.contains(field)) {
      caption += " &middot; " + fmt::format(fmt::runtime(pattern), text_of(sheet.about[field]));
    }
  };
  add("weights", "{} weights");
  add("sampler", "{}");
  add("steps", "{} steps");
  add("guidance", "guidance {}");
  return caption;
}

}  // namespace

Result<std::string> run_samples_html(FileSystem& files, const RunFolder& run) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<Sheet> sheets, read_sheets(files, join_path(run.path, "samples")));
  if (sheets.empty()) {
    return std::string();
  }
  const std::set<std::string> prompts = prompts_of(sheets);
  std::string html = "<h2>Samples, newest first</h2>";
  if (!prompts.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const CaptionSearch search, search_captions(files, run, prompts));
    html += search.num_rows == 0 ? "" : "<p>" + escape_html(origin_sentence(prompts, search, run)) + "</p>";
  } else {
    html += "<p>Above, pictures that this run trains on; below each, what the autoencoder makes of it.</p>";
  }
  html += "<div class=\"sheets\">";
  for (const Sheet& sheet : sheets) {
    html += fmt::format("<figure><img alt=\"samples of {}\" src=\"{}\"><figcaption class=\"dim\">{}</figcaption></figure>",
                        escape_html(sheet.step), png_data_url(sheet.png), caption_of(sheet));
  }
  return html + "</div>";
}

}  // namespace darkroom
