#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/feed/dataset_files.h"
#include "darkroom/files/file_system.h"
#include "read_only_files.h"

namespace darkroom {

/// The files of a dataset on any store, and those beside them or moved aside there, as a file system, by their addresses: for reading.
/// Thread safety: any thread.
class DatasetView final : public ReadOnlyFiles {
 public:
  explicit DatasetView(DatasetFiles dataset);

  /// The files by their addresses, in the dataset's order.
  const std::vector<FileInfo>& inputs() const { return inputs_; }

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override;
  Result<FileInfo> stat(const std::string& path) override;
  Result<std::vector<FileInfo>> list(const std::string& folder) override;

 private:
  /// The place of what lies below one of the inputs that are folders; nothing elsewhere.
  std::optional<Location> place_below(const std::string& path) const;

  DatasetFiles dataset_;
  std::vector<FileInfo> inputs_;
  std::map<std::string, InputObject> objects_;         // By address.
  std::map<std::string, Location> folders_;            // Those that files lie in, by address: there is no way back from one to a path.
  std::map<std::string, Location> inputs_of_folders_;  // By address, which ends with a slash, as the path does.
};

}  // namespace darkroom
