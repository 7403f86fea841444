#pragma once

#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "darkroom/core/sha256.h"
#include "darkroom/image/image.h"
#include "support/source_path.h"

namespace darkroom {

/// Bytes of tests/golden/image/`name`. Throws when the file is missing: ctest sets DARKROOM_SOURCE_DIR.
inline std::string golden_bytes(const std::string& name) {
  const std::string path = source_path("tests/golden/image/" + name);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("golden file missing, set DARKROOM_SOURCE_DIR to the repository: " + path);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The entries of files.json, each a file in files/ and what Pillow makes of it.
inline nlohmann::json golden_files() { return nlohmann::json::parse(golden_bytes("files.json")).at("files"); }

inline std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

inline std::string pixel_digest(const Image& image) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(image.pixels)));
  return digest.finish_hex();
}

}  // namespace darkroom
