#include "metrics_lines.h"

#include <cstddef>

namespace darkroom {

Result<std::vector<nlohmann::json>> read_metrics_lines(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, path));
  std::vector<nlohmann::json> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    nlohmann::json line = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number()) {
      return Status::corrupt_data("metrics hold a line that is no object with a step (path, line):", path, lines.size() + 1);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace darkroom
