#pragma once

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "comparison_record.h"
#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/image.h"
#include "darkroom/measure/picture_distance.h"
#include "darkroom/measure/retrieval.h"

namespace darkroom {

/// Pictures are shrunk to this side before retrieval halves them: as the demo's measure, at its size.
inline constexpr int kRetrievalSide = 64;

/// A picture as retrieval compares it.
ReducedPicture retrieval_form(const Image& picture);

/// The pictures that painted ones are compared with.
struct CompareReferences {
  std::vector<ReducedPicture> all = {};  ///< Every good one, for retrieval.
  /// Of each prompt that is the caption of one (the first of several): its number in `all` and the picture.
  struct Own {
    size_t number = 0;
    Image picture = {};
  };
  std::map<size_t, Own> of_prompt = {};
  int64_t num_bad = 0;  ///< Could not be decoded, and are left out.
};

/// Reads them as process would, at the size of the painted pictures, and tells `visit` of every good one. Errors: kFailedPrecondition
/// (painted pictures that are no squares; no caption is a prompt), those of visit_dataset_pictures.
Result<CompareReferences> read_compare_references(FileSystem& files, const std::string& uri, const CompareRecord& record,
                                                  PictureDecoder& decoder, const std::stop_token& stop,
                                                  const std::function<Status(const Image&)>& visit = {});

}  // namespace darkroom
