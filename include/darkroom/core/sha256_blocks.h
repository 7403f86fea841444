#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace darkroom {

using Sha256State = std::array<uint32_t, 8>;

/// The compression function of SHA-256 (FIPS 180-4, section 6.2.2) over whole blocks of 64 bytes, in plain C++. Sha256 takes it where the
/// processor has no SHA instructions; both give the same state.
void absorb_portable(Sha256State& state, const uint8_t* blocks, size_t num_blocks);

/// Whether this processor has the SHA instructions that absorb_with_instructions() needs.
bool has_sha_instructions();

/// The same with the processor's SHA instructions. REQUIRES: has_sha_instructions().
void absorb_with_instructions(Sha256State& state, const uint8_t* blocks, size_t num_blocks);

}  // namespace darkroom
