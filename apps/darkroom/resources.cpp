#include "resources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

// build/darkroom, build/release/darkroom, build/release/tests/demo_test.
constexpr int kLevels = 3;
constexpr const char* kSourceMark = "include/darkroom/core/version.h";
constexpr const char* kDecoder = "darkroom-decoder";
constexpr const char* kInstalledPython = "lib/darkroom/python/bin/python";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> program_path() {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) {
    return Status::unavailable("cannot tell where this program lies; /proc/self/exe:", error.message());
  }
  return program;
}

bool exists(const std::string& path) {
  std::error_code ignored;  // What cannot be looked at is not there.
  return std::filesystem::exists(path, ignored);
}

// The folder above bin/ of an installed tree.
std::string prefix_of(const std::string& program) { return parent_folder(parent_folder(program)); }

std::optional<std::string> source_tree_of(const std::string& program) {
  std::string folder = parent_folder(program);
  for (int level = 0; level < kLevels; ++level) {
    folder = parent_folder(folder);
    if (exists(join_path(folder, kSourceMark))) {
      return folder;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> resource_folders(const std::string& program, const std::string& share) {
  if (!share.empty()) {
    return {share};
  }
  std::vector<std::string> folders = {join_path(prefix_of(program), "share/darkroom")};
  if (const auto source = source_tree_of(program)) {
    folders.push_back(*source);
  }
  return folders;
}

Result<std::string> find_resource(std::string_view relative_path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string program, program_path());
  const std::string share = environment("DARKROOM_SHARE");
  const std::vector<std::string> folders = resource_folders(program, share);
  for (const std::string& folder : folders) {
    std::string path = join_path(folder, relative_path);
    if (exists(path)) {
      return path;
    }
  }
  if (!share.empty()) {
    return Status::not_found(
        "the folder that DARKROOM_SHARE names lacks a file of the program; unset it or correct it (file, folder):", relative_path, share);
  }
  return Status::not_found(
      "a file that is shipped with the program is missing; install it again, or name the folder that has it in DARKROOM_SHARE (file, "
      "looked in):",
      relative_path, fmt::format("{}", fmt::join(folders, ", ")));
}

Result<std::string> find_decoder() {
  DARKROOM_ASSIGN_OR_RETURN(const std::string program, program_path());
  return decoder_beside(program);
}

Result<std::string> decoder_beside(const std::string& program) {
  const std::string folder = parent_folder(program);
  for (const std::string& candidate : {join_path(folder, kDecoder), join_path(parent_folder(folder), kDecoder)}) {
    if (exists(candidate)) {
      return candidate;
    }
  }
  return Status::not_found(
      "the program that decodes pictures in a sandbox is missing; install darkroom again, or decode in this process with --no-sandbox "
      "(looked for):",
      join_path(folder, kDecoder));
}

Result<std::string> find_python() {
  if (std::string named = environment("DARKROOM_PYTHON"); !named.empty()) {
    if (exists(named)) {
      return named;
    }
    return Status::not_found("DARKROOM_PYTHON names no file; unset it, or name a Python with fontTools, Pillow and pyarrow (path):", named);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string program, program_path());
  return python_beside(program);
}

Result<std::string> python_beside(const std::string& program) {
  std::vector<std::string> candidates = {join_path(prefix_of(program), kInstalledPython)};
  if (const auto source = source_tree_of(program)) {
    candidates.push_back(join_path(*source, ".venv/bin/python"));
  }
  for (std::string& candidate : candidates) {
    if (exists(candidate)) {
      return std::move(candidate);
    }
    std::error_code ignored;  // What is no link has no target.
    if (const auto wanted = std::filesystem::read_symlink(candidate, ignored); !wanted.empty()) {
      return Status::not_found(
          fmt::format(
              "the Python packages of this installed tree are for {0}, which this machine lacks: install {0}, or name a Python with "
              "fontTools, Pillow and pyarrow in DARKROOM_PYTHON (looked for):",
              wanted.filename().string()),
          wanted.string());
    }
  }
  return Status::not_found(
      "making the corpus needs Python with fontTools, Pillow and pyarrow: run `make setup` in the source tree, `apt-get install python3` "
      "for an installed program, or name one in DARKROOM_PYTHON (looked for):",
      fmt::format("{}", fmt::join(candidates, ", ")));
}

}  // namespace darkroom
