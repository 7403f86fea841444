#include "demo_folder.h"

#include <nlohmann/json.hpp>

#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

// A demo that was stopped has a corpus/ at least; a finished one also says so in its summary.
Result<bool> holds_demo(FileSystem& files, const DemoFolder& folder) {
  DARKROOM_ASSIGN_OR_RETURN(const bool has_corpus, files.exists(folder.corpus()));
  if (has_corpus) {
    return true;
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool has_summary, files.exists(folder.summary()));
  if (!has_summary) {
    return false;
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, folder.summary()));
  const auto summary = nlohmann::json::parse(text, nullptr, false);
  return summary.is_object() && summary.contains("corpus") && summary.contains("retrieval");
}

}  // namespace

std::string DemoFolder::corpus() const { return join_path(path, "corpus"); }
std::string DemoFolder::images() const { return join_path(path, "images"); }
std::string DemoFolder::latents() const { return join_path(path, "latents"); }
std::string DemoFolder::train_latents() const { return join_path(path, "train-latents"); }
std::string DemoFolder::run() const { return join_path(path, "run"); }
std::string DemoFolder::trial_run() const { return join_path(path, "run-trial"); }
std::string DemoFolder::sheet() const { return join_path(path, "sheet.png"); }
std::string DemoFolder::summary() const { return join_path(path, "summary.json"); }

Result<DemoFolder> prepare_demo_folder(FileSystem& files, const std::string& path) {
  const DemoFolder folder{path};
  DARKROOM_ASSIGN_OR_RETURN(const bool exists, files.exists(path));
  if (!exists) {
    DARKROOM_RETURN_IF_ERROR(files.create_folders(path));
    return folder;
  }
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, files.stat(path));
  if (!info.is_folder) {
    return Status::failed_precondition("the demo's output must be a folder, but a file has that name; name another OUT:", path);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(path));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_demo, holds_demo(files, folder));
  if (!entries.empty() && !is_demo) {
    return Status::failed_precondition(
        "the output folder holds something else than an earlier demo, so nothing in it is touched; name another OUT (folder, found):", path,
        file_name(entries.front().path));
  }
  // The corpus goes last: it is the sign that the folder is ours should this be interrupted.
  for (const std::string& ours : {folder.images(), folder.latents(), folder.train_latents(), folder.run(), folder.trial_run(),
                                  folder.sheet(), folder.summary(), folder.corpus()}) {
    DARKROOM_RETURN_IF_ERROR(files.remove_tree(ours));
  }
  return folder;
}

}  // namespace darkroom
