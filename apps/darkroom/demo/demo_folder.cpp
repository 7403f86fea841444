#include "demo_folder.h"

#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

// Written before anything else and never removed: without it a folder with corpus/ or run/ may be anybody's.
Status mark_as_demo(FileSystem& files, const DemoFolder& folder) {
  return write_file_atomic(files, folder.marker(), "darkroom demo wrote this folder and may replace what it wrote.\n");
}

}  // namespace

std::string DemoFolder::marker() const { return join_path(path, ".darkroom-demo"); }
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
    DARKROOM_RETURN_IF_ERROR(mark_as_demo(files, folder));
    return folder;
  }
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, files.stat(path));
  if (!info.is_folder) {
    return Status::failed_precondition("the demo's output must be a folder, but a file has that name; name another OUT:", path);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(path));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_demo, files.exists(folder.marker()));
  if (!entries.empty() && !is_demo) {
    return Status::failed_precondition(
        "the output folder holds something and lacks the mark of an earlier demo, so nothing in it is touched; name another OUT or remove "
        "it (mark, found):",
        folder.marker(), file_name(entries.front().path));
  }
  DARKROOM_RETURN_IF_ERROR(mark_as_demo(files, folder));
  for (const std::string& ours : {folder.images(), folder.latents(), folder.train_latents(), folder.run(), folder.trial_run(),
                                  folder.sheet(), folder.summary(), folder.corpus()}) {
    DARKROOM_RETURN_IF_ERROR(files.remove_tree(ours));
  }
  return folder;
}

}  // namespace darkroom
