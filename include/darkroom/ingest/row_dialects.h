#pragma once

#include <arrow/type.h>

#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// Which columns of a URL table hold the URL and the caption, and which others are passed through.
struct UrlColumns {
  std::string url;
  std::string caption;
  std::vector<std::string> metadata;  ///< All other columns, in the table's order.
  std::vector<std::string>
      output_names;  ///< Their names in the image dataset: one that collides with ours (any letter case) gets `input_` before it.
};

/// Finds them by the names of docs/formats/image_dataset.md, or takes the names given (empty: automatic).
/// Errors: kNotFound naming the table, what was looked for and the columns that exist.
Result<UrlColumns> find_url_columns(const arrow::Schema& schema, const std::string& path, const std::string& url_column,
                                    const std::string& caption_column);

/// Which columns of an image dataset hold what process needs.
struct ImageColumns {
  std::string image;  ///< Binary, or a struct with a binary field `bytes` as Hugging Face writes it.
  std::string caption;
  std::string key;  ///< Empty: rows are named by their number in the pinned list.
};

/// Finds them by the accepted names, or takes the caption's that is given. Errors: kNotFound as above; kFailedPrecondition (an image column
/// of another type, or of an MDS encoding that is not read).
Result<ImageColumns> find_image_columns(const arrow::Schema& schema, const std::string& path, const std::string& caption_column = {});

/// Whether there is nothing but ASCII white space: an empty caption.
bool is_blank(std::string_view text);

}  // namespace darkroom
