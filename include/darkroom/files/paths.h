#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// folder + "/" + name, without doubling the slash; `name` alone when the folder is empty.
std::string join_path(std::string_view folder, std::string_view name);

/// What stands before the last slash: "." when there is none, "/" for a name in the root.
std::string parent_folder(std::string_view path);

/// What stands after the last slash, trailing slashes left aside.
std::string file_name(std::string_view path);

/// The path up to the slashes at its end; the root stays "/".
std::string_view without_trailing_slashes(std::string_view path);

}  // namespace darkroom
