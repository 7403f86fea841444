#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/stores/stores.h"
#include "opening/model_source.h"

namespace darkroom {

/// Copies of what a model source names elsewhere; they go with this object.
struct SourceCopies {
  std::optional<LocalCopy> model;
  std::optional<LocalCopy> frozen;
};

/// Brings the model, checkpoint and frozen parts that a source names here, and lets it name the copies; what is local stays as it is. Of a
/// remote checkpoint come its record and the weights that are used. Errors: those of fetch_model_files, kCorruptData (a damaged record).
Result<SourceCopies> fetch_source(StoreSet& stores, ModelSource& source, const std::stop_token& stop);

enum class ModelForm { kFolder, kSingleFile };

/// Makes a new model at any place: `write` gets a local path that is free. A remote one is written into a scratch folder, then published,
/// a folder with model_index.json last. Errors: kAlreadyExists, write's, those of the stores.
Status write_model_at(StoreSet& stores, const std::string& uri, ModelForm form, const std::stop_token& stop,
                      const std::function<Status(const std::string& path)>& write);

/// Where pictures and tensors are written: a folder of this machine that stands for the one that an address lies in.
class OutputPlace {
 public:
  /// `uri` names a file. Errors: those of the stores and the disk.
  static Result<OutputPlace> open(StoreSet& stores, const std::string& uri);
  /// The local path that stands for the address.
  const std::string& path() const { return path_; }
  /// Stores what was written beside path(); nothing to do where that is the place itself. Replaces what is there.
  Status store() const;

 private:
  OutputPlace(std::string path, Location place) : path_(std::move(path)), place_(std::move(place)) {}

  std::string path_;
  Location place_;
  std::optional<ScratchFolder> scratch_;
};

}  // namespace darkroom
