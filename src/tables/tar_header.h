#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

inline constexpr int64_t kTarBlockBytes = 512;

/// A field of a header block.
struct TarField {
  size_t offset;
  size_t size;
};
inline constexpr TarField kTarName{0, 100};
inline constexpr TarField kTarMode{100, 8};
inline constexpr TarField kTarUid{108, 8};
inline constexpr TarField kTarGid{116, 8};
inline constexpr TarField kTarSize{124, 12};
inline constexpr TarField kTarModificationTime{136, 12};
inline constexpr TarField kTarChecksum{148, 8};
inline constexpr TarField kTarType{156, 1};
inline constexpr TarField kTarMagic{257, 8};
inline constexpr TarField kTarPrefix{345, 155};

struct TarHeader {
  std::string name;  ///< With the prefix where the format has one.
  char type = '0';
  int64_t size_bytes = 0;
};

/// How many bytes of zeros follow data of that size.
constexpr int64_t tar_padding(int64_t size_bytes) { return (kTarBlockBytes - size_bytes % kTarBlockBytes) % kTarBlockBytes; }

/// Sum of the block's bytes with blanks in place of the checksum. REQUIRES: kTarBlockBytes bytes.
int64_t tar_checksum(std::string_view block);

/// A number as octal text or in base 256; an empty field is 0. Errors: kCorruptData (no number, negative, 2^63 or more).
Result<int64_t> parse_tar_number(std::string_view field);

/// Errors: kCorruptData; the caller adds the place. REQUIRES: kTarBlockBytes bytes.
Result<TarHeader> parse_tar_header(std::string_view block);

/// What the records of an extended header say about the next member.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<int64_t> size_bytes;
  bool is_sparse = false;  ///< Has GNU's records of a sparse file.
};

/// Of a keyword that comes twice the last record counts; an empty value takes the keyword back. Errors: kCorruptData.
Result<PaxRecords> parse_pax_records(std::string_view text);

}  // namespace darkroom
