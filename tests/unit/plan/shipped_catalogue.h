#pragma once

#include <gtest/gtest.h>

#include <string>

#include "darkroom/plan/catalogue.h"
#include "support/source_path.h"

namespace darkroom {

/// The text of prices/catalogue.toml.
inline std::string shipped_catalogue_text() {
  const auto text = read_file(local_files(), source_path(kCatalogueResource));
  EXPECT_TRUE(text.is_ok()) << text.status().to_string();
  return text.is_ok() ? *text : "";
}

/// prices/catalogue.toml, read once.
inline const Catalogue& shipped_catalogue() {
  static const Catalogue catalogue = parse_catalogue(shipped_catalogue_text(), "prices/catalogue.toml").value();
  return catalogue;
}

/// `text` with its first `from` replaced; the test fails where there is none.
inline std::string with_replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace darkroom
