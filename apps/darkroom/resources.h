#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// The path of a file or folder that is shipped with the program, named as in the source tree: "models/tiny",
/// "recipes/tiny.toml". It is taken from the first of these folders that has it: $DARKROOM_SHARE, and no other when that is
/// set; share/darkroom beside the program's own folder (an installed tree); the source tree that the program was built in.
/// Errors: kNotFound naming the file and where it was looked for; kUnavailable without /proc.
Result<std::string> find_resource(std::string_view relative_path);

/// The program that decodes pictures locked in (docs/sandbox.md): darkroom-decoder beside this program, or in the folder above it (tests).
/// Errors: kNotFound naming where it was looked for; kUnavailable without /proc.
Result<std::string> find_decoder();

/// The same for the program at `program`. Errors: kNotFound.
Result<std::string> decoder_beside(const std::string& program);

/// The Python interpreter with the packages of the corpus tool: $DARKROOM_PYTHON, else the one of the installed tree
/// (lib/darkroom/python beside the program's own folder), else the source tree's .venv.
/// Errors: kNotFound naming what was looked for and how to get it; kUnavailable without /proc.
Result<std::string> find_python();

/// Without DARKROOM_PYTHON: the interpreter for the program at `program`. Errors: kNotFound; where the tree was made for a version of
/// Python that this machine lacks, naming the version.
Result<std::string> python_beside(const std::string& program);

/// The folders that find_resource() looks in, for the program at `program` and the value of DARKROOM_SHARE ("": not set).
std::vector<std::string> resource_folders(const std::string& program, const std::string& share);

}  // namespace darkroom
