#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace darkroom {

/// A damaged copy of one of the originals: one to six bytes or stretches changed, cut, doubled or taken from another original. Mutation
/// `number` of a seed is the same on every machine: mt19937_64 and plain arithmetic. REQUIRES: there is an original.
inline std::string mutate_bytes(const std::vector<std::string>& originals, uint64_t seed, uint64_t number) {
  std::mt19937_64 chance(seed * 1'000'003 + number);
  std::string bytes = originals[chance() % originals.size()];
  const uint64_t num_changes = 1 + chance() % 6;
  for (uint64_t change = 0; change < num_changes && !bytes.empty(); ++change) {
    // Half of the changes hit the headers.
    const size_t at = chance() % 2 == 0 ? chance() % std::min<size_t>(bytes.size(), 600) : chance() % bytes.size();
    switch (chance() % 8) {
      case 0:
        bytes[at] = static_cast<char>(chance());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (chance() % 8)));
        break;
      case 2:
        bytes[at] = chance() % 2 == 0 ? '\0' : '\xFF';
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(at, bytes.substr(chance() % bytes.size(), chance() % 64));
        break;
      case 5:
        bytes.erase(at, chance() % 64);
        break;
      case 6: {
        const std::string& other = originals[chance() % originals.size()];
        bytes = bytes.substr(0, at) + other.substr(std::min<size_t>(other.size(), chance() % (other.size() + 1)));
        break;
      }
      default:
        for (size_t i = at; i < std::min(bytes.size(), at + 4); ++i) {
          bytes[i] = static_cast<char>(chance());
        }
    }
  }
  return bytes;
}

}  // namespace darkroom
