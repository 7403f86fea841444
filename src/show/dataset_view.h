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

/// What a folder holds: rows of pictures, whatever they lie in, or tables, which a few pictures beside them do not hide. A file or a
/// pattern names its own.
template <typename Inputs, typename FindDataset, typename FindTables>
Result<Inputs> dataset_or_tables(bool is_folder, const FindDataset& find_pictures, const FindTables& find_tables) {
  if (!is_folder) {
    return find_tables();
  }
  Result<Inputs> found = find_pictures();
  if (found.status().code() != StatusCode::kFailedPrecondition) {
    return found;
  }
  Result<Inputs> tables = find_tables();
  return tables.is_ok() ? tables : found;
}

/// The same of an address. Errors: those of find_dataset and find_image_dataset.
Result<DatasetFiles> find_shown_dataset(StoreSet& stores, const std::string& address, bool is_folder);

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
