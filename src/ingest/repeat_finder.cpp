#include "repeat_finder.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "darkroom/core/sha256.h"

namespace darkroom {
namespace {

constexpr size_t kLeastPlaces = 1024;
// Places for each value: a table is doubled when three quarters are taken, and both are there meanwhile; four times 16 bytes cover that.
constexpr int64_t kBytesAValue = 64;

uint64_t from_hex(std::string_view digits) {
  uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

}  // namespace

std::vector<int64_t> RowSet::rows_within(int64_t first, int64_t count) const {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < count; ++row) {
    if (contains(first + row)) {
      rows.push_back(row);
    }
  }
  return rows;
}

int64_t RowSet::size() const {
  int64_t num_rows = 0;
  for (const uint64_t word : words_) {
    num_rows += std::popcount(word);
  }
  return num_rows;
}

RepeatFinder::RepeatFinder(int64_t num_values, int64_t memory_bytes) {
  const int64_t at_once = std::max<int64_t>(memory_bytes / kBytesAValue, static_cast<int64_t>(kLeastPlaces) / 2);
  num_passes_ = std::max<int64_t>(1, num_values / at_once + (num_values % at_once > 0 ? 1 : 0));
}

void RepeatFinder::begin_pass(int64_t pass) {
  pass_ = pass;
  table_.assign(kLeastPlaces, Hash{});
  table_.shrink_to_fit();
  num_taken_ = 0;
}

RepeatFinder::Hash RepeatFinder::hash_of(std::string_view value) {
  const std::string digits = sha256_hex(value);
  Hash hash = {from_hex(std::string_view(digits).substr(0, 16)), from_hex(std::string_view(digits).substr(16, 16))};
  if (hash == Hash{}) {
    hash[1] = 1;  // Zeros are a free place of the table.
  }
  return hash;
}

bool RepeatFinder::is_repeated(const Hash& hash) {
  if (!is_of_pass(hash)) {
    return false;
  }
  if (!insert(table_, hash)) {
    return true;
  }
  if (++num_taken_ > table_.size() / 4 * 3) {
    grow();
  }
  return false;
}

/// False: it is there.
bool RepeatFinder::insert(std::vector<Hash>& table, const Hash& hash) const {
  const size_t mask = table.size() - 1;
  for (size_t place = hash[1] & mask;; place = (place + 1) & mask) {
    if (table[place] == hash) {
      return false;
    }
    if (table[place] == Hash{}) {
      table[place] = hash;
      return true;
    }
  }
}

void RepeatFinder::grow() {
  std::vector<Hash> larger(2 * table_.size());
  for (const Hash& hash : table_) {
    if (hash != Hash{}) {
      insert(larger, hash);
    }
  }
  table_ = std::move(larger);
}

}  // namespace darkroom
