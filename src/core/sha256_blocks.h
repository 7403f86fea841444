#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace darkroom {

// The two ways to absorb whole blocks of 64 bytes. They give the same state, so that a digest does not depend on the processor.

/// In plain C++.
void absorb_portable(std::array<uint32_t, 8>& state, const uint8_t* blocks, size_t num_blocks);

/// Whether this processor has the instructions of the other one.
bool has_sha_instructions();

/// By the processor's SHA instructions. REQUIRES: has_sha_instructions().
void absorb_by_instructions(std::array<uint32_t, 8>& state, const uint8_t* blocks, size_t num_blocks);

}  // namespace darkroom
