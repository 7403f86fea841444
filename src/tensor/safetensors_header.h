#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {

/// One tensor's place: bytes [begin, end) of the data area.
struct SafetensorsPlace {
  TensorSpec spec;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsPlace> places;  ///< In the order of their offsets.
  SafetensorsMetadata metadata;
};

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr const char* kSafetensorsMetadataKey = "__metadata__";

/// Parses and checks header text against the size of the data area that follows it. Errors: kCorruptData with the first fault.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, uint64_t data_bytes);

/// The header text, padded with spaces so that the data starts at a multiple of 8, for tensors placed in the given order.
std::string format_safetensors_header(const std::vector<TensorSpec>& order, const SafetensorsMetadata& metadata);

/// Bytes of a tensor. Errors: kCorruptData (a negative size, or more than 2^63 - 1 bytes).
Result<uint64_t> safetensors_num_bytes(const TensorSpec& spec);

}  // namespace darkroom
