#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/image.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/image/transform.h"

namespace darkroom {

/// A row of an image dataset.
struct DatasetPicture {
  std::string path = {};  ///< Of the file or folder that holds it.
  std::string key = {};   ///< Empty: its dataset has no keys.
  std::string caption = {};
  RowResult<Image> picture;  ///< Decoded, resized and cropped as process would give it to the VAE, or why not.
};

/// Visits the rows of an image dataset in their order: Parquet, webdataset tars, MDS shards, folders of pictures with captions. A picture
/// that cannot be decoded is visited with its error. Errors: those of the store and of finding the columns; the visitor's; the decoder's,
/// when it is lost; kCancelled. REQUIRES: transform.validate() is ok.
Status visit_dataset_pictures(FileSystem& files, const std::string& uri, const TransformOptions& transform, PictureDecoder& decoder,
                              const std::stop_token& stop, const std::function<Status(DatasetPicture)>& visit);

}  // namespace darkroom
