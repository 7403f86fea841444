#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <nlohmann/ordered_map.hpp>

namespace darkroom {

/// The members of a JSON object in the order in which they came. nlohmann's own such map walks through all members for each
/// one that it reads, which is quadratic in their number; this one keeps an index once there are many.
template <typename Key, typename Value, typename IgnoredLess = std::less<Key>,
          typename Allocator = std::allocator<std::pair<const Key, Value>>>
class IndexedMap : public nlohmann::ordered_map<Key, Value, IgnoredLess, Allocator> {
 public:
  using Members = nlohmann::ordered_map<Key, Value, IgnoredLess, Allocator>;
  using Members::Members;

  /// What the parser calls for every member that it reads.
  Value& operator[](const Key& key) {
    constexpr size_t kFew = 16;
    if (this->size() < kFew) {
      return Members::operator[](key);
    }
    for (; num_indexed_ < this->size(); ++num_indexed_) {
      places_.try_emplace(Members::Container::operator[](num_indexed_).first, num_indexed_);
    }
    const auto [place, is_new] = places_.try_emplace(key, this->size());
    if (is_new) {
      Members::Container::emplace_back(key, Value{});
      ++num_indexed_;
    }
    return Members::Container::operator[](place->second).second;
  }

 private:
  std::map<Key, size_t> places_;  // In order: a hash without a secret seed is linear for keys that were made to collide.
  size_t num_indexed_ = 0;        // That many members are in places_.
};

/// JSON that keeps the order of members and is read in time n log n. Of a key that comes twice the last value counts, at the
/// place of the first. REQUIRES: members are only added, and only by parsing.
using OrderedJson = nlohmann::basic_json<IndexedMap>;

}  // namespace darkroom
