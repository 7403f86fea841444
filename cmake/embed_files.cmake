# Writes a C++ source with the bytes of files, so that a program has them without opening anything.
# cmake -D OUTPUT=PATH.cpp -D HEADER=INCLUDED.h -D FUNCTION=NAME -D FILES=A;B -P embed_files.cmake
# HEADER declares `struct EmbeddedFile {std::string_view name, sha256, bytes}` and `std::span<const EmbeddedFile> FUNCTION()`.
set(entries "")
foreach(path IN LISTS FILES)
  get_filename_component(name "${path}" NAME)
  file(SHA256 "${path}" digest)
  file(READ "${path}" bytes HEX)
  string(LENGTH "${bytes}" num_digits)
  math(EXPR num_bytes "${num_digits} / 2")
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  string(APPEND entries "    {\"${name}\", \"${digest}\", {\"${bytes}\", ${num_bytes}}},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Written by cmake/embed_files.cmake.
#include \"${HEADER}\"

namespace darkroom {

std::span<const EmbeddedFile> ${FUNCTION}() {
  static constexpr EmbeddedFile kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace darkroom
")
