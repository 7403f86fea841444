#pragma once

#include <arrow/type.h>

#include <cstdint>
#include <string>
#include <vector>

namespace darkroom {

/// A column of tensors by its name, and the shapes that raw bytes under that name may have.
struct TensorColumnName {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;
  bool is_latents = false;  ///< Of a picture; else states of a caption.
};

/// What a table is, told by its columns.
struct TableKind {
  std::string name;  ///< "image dataset", "latents dataset", "URL table" or "table".
  std::string image;
  std::string caption;
  std::string key;  ///< All three empty when there is none.
  std::vector<TensorColumnName> tensors;

  bool has_pictures() const;
};

/// Recognises the names of our datasets and of the published dialects. `path` is only for messages of what it asks.
TableKind table_kind(const arrow::Schema& schema, const std::string& path);

}  // namespace darkroom
