#include <algorithm>
#include <set>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/ingest/job_record.h"
#include "darkroom/io/table_reader.h"
#include "darkroom/io/uri.h"
#include "job_json.h"

namespace darkroom {
namespace {

constexpr int64_t kEdgeBytes = 64 << 10;

Result<std::string> hash_edges(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(auto file, files.open_input(path));
  const int64_t size_bytes = file->size_bytes();
  Sha256 hash;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(size_bytes, kEdgeBytes)));
  for (const int64_t offset : {int64_t{0}, std::max(int64_t{0}, size_bytes - kEdgeBytes)}) {
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(offset, buffer));
    if (num_read != buffer.size()) {
      return Status::corrupt_data("a file became shorter while it was read:", path);
    }
    hash.update(buffer);
  }
  return hash.finish_hex();
}

/// The folder that input names are relative to: the folder asked for, or the one above a file or above the first wildcard.
Result<std::string> naming_root(FileSystem& files, const std::string& path) {
  const size_t wildcard = path.find_first_of("*?[");
  Result<FileInfo> info = files.stat(path);
  if (info.is_ok()) {
    return info->is_folder ? path : parent_folder(path);
  }
  if (wildcard == std::string::npos) {
    return info.status();
  }
  return parent_folder(path.substr(0, wildcard) + "x");
}

std::string relative_name(const std::string& path, const std::string& root) {
  const std::string prefix = join_path(root, "");
  return path.starts_with(prefix) ? path.substr(prefix.size()) : file_name(path);
}

Result<std::vector<JobInput>> list_files(FileSystem& files, const std::vector<std::string>& uris) {
  std::vector<JobInput> inputs;
  std::set<std::string> seen;
  for (const std::string& uri : uris) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string path, local_path(uri));
    DARKROOM_ASSIGN_OR_RETURN(const std::string root, naming_root(files, path));
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> infos, list_inputs(files, uri));
    for (const FileInfo& info : infos) {
      if (seen.insert(info.path).second) {
        DARKROOM_ASSIGN_OR_RETURN(std::string hash, hash_edges(files, info.path));
        inputs.push_back(
            {.path = info.path, .name = relative_name(info.path, root), .size_bytes = info.size_bytes, .edges_sha256 = std::move(hash)});
      }
    }
  }
  std::sort(inputs.begin(), inputs.end(), [](const JobInput& a, const JobInput& b) { return a.path < b.path; });
  return inputs;
}

bool is_same_file(const JobInput& a, const JobInput& b) {
  return a.name == b.name && a.size_bytes == b.size_bytes && a.edges_sha256 == b.edges_sha256;
}

/// Narrows `inputs` to what an earlier run pinned, when all of that is still there; its row counts are taken over.
void apply_pins(std::vector<JobInput>& inputs, const std::vector<JobInput>& pinned) {
  std::vector<JobInput> kept;
  for (const JobInput& pin : pinned) {
    const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const JobInput& input) { return is_same_file(input, pin); });
    if (found == inputs.end()) {
      return;
    }
    kept.push_back(*found);
    kept.back().num_rows = pin.num_rows;
  }
  if (kept.size() < inputs.size()) {
    log_warning("{} input files came after the job was started and are left out of it", inputs.size() - kept.size());
  }
  inputs = std::move(kept);
}

}  // namespace

Result<std::vector<JobInput>> pin_inputs(FileSystem& files, const std::vector<std::string>& uris, const std::string& output) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<JobInput> inputs, list_files(files, uris));
  for (JobInput& input : inputs) {
    input.num_rows = -1;
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool has_job, files.exists(join_path(output, kJobFile)));
  if (has_job) {
    DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json job, read_job_json(files, output));
    apply_pins(inputs, pinned_inputs(job));
  }
  int64_t first_row = 0;
  for (JobInput& input : inputs) {
    if (input.num_rows < 0) {
      DARKROOM_ASSIGN_OR_RETURN(auto table, open_table(files, input.path));
      DARKROOM_ASSIGN_OR_RETURN(input.num_rows, table->num_rows());
    }
    input.first_row = first_row;
    first_row += input.num_rows;
  }
  return inputs;
}

}  // namespace darkroom
