#pragma once

#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// What the demo needs beside the program itself.
struct DemoTools {
  std::string python = {};       ///< Of find_python() in resources.h.
  std::string corpus_tool = {};  ///< tools/corpus/make_corpus.py
  std::string recipe = {};       ///< recipes/tiny.toml
  std::string model = {};        ///< The model folder given, else models/tiny.
};

/// Finds them as resources.h does: in an installed tree or in the source tree.
/// Errors: kNotFound naming what is missing and how to get it.
Result<DemoTools> find_demo_tools(const std::string& model);

}  // namespace darkroom
