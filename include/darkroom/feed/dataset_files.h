#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

/// A dataset as its user names it, resolved once: its files, and the folder that the names of its parts start from. The stores outlive it.
struct DatasetFiles {
  std::string uri = {};                   ///< For messages and records: without what may be secret.
  Location root = {};                     ///< The folder; of a file the one that it lies in; of a pattern the one above the first wildcard.
  std::vector<InputObject> objects = {};  ///< In byte order of their paths; of several parts of an item the one that counts (part_name.h).

  /// A file's path within the root, "./" for the root as a folder of pictures; the whole path where it lies elsewhere.
  std::string name_of(const Location& place) const;
  /// Where a file of that name lies. The dataset may have changed since it was listed.
  Location place_of(const std::string& name) const;
};

/// Lists a dataset of tables or MDS shards: a folder, a file, a pattern, a split of the hub. Errors: those of StoreSet::resolve_inputs.
Result<DatasetFiles> find_dataset(StoreSet& stores, const std::string& uri);
/// Lists an image dataset, whatever holds its rows. Errors: those of StoreSet::resolve_image_inputs.
Result<DatasetFiles> find_image_dataset(StoreSet& stores, const std::string& uri);
/// The same two among the machine's own files.
Result<DatasetFiles> find_local_dataset(const std::string& uri);
Result<DatasetFiles> find_local_image_dataset(const std::string& uri);

/// Where a part lies when its next generation came since a run began with it. REQUIRES: its name is a part's (part_name.h).
Location place_aside(const Location& part);

/// The address without what may be secret: the query of an https:// or http:// address. Pure.
std::string recorded_uri(const std::string& uri);

}  // namespace darkroom
