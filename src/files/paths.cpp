#include "darkroom/files/paths.h"

namespace darkroom {

std::string join_path(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && !path.ends_with('/')) {
    path += '/';
  }
  return path.append(name);
}

std::string parent_folder(std::string_view path) {
  path = without_trailing_slashes(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) {
    return ".";
  }
  return slash == 0 ? "/" : std::string(without_trailing_slashes(path.substr(0, slash)));
}

std::string file_name(std::string_view path) {
  path = without_trailing_slashes(path);
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) {
    path.remove_suffix(1);
  }
  return path;
}

}  // namespace darkroom
