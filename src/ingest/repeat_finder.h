#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace darkroom {

/// A set of numbers of rows: a bit a row. Thread safety: as a standard container.
class RowSet {
 public:
  RowSet() = default;
  explicit RowSet(int64_t num_rows) : words_(static_cast<size_t>((num_rows + 63) / 64)) {}

  /// REQUIRES: 0 <= row < num_rows.
  void add(int64_t row) { words_[static_cast<size_t>(row / 64)] |= uint64_t{1} << (row % 64); }
  /// False also for a row beyond the last one.
  bool contains(int64_t row) const {
    const auto word = static_cast<size_t>(row / 64);
    return word < words_.size() && (words_[word] >> (row % 64) & 1) != 0;
  }
  int64_t size() const;
  /// Those of the `count` rows from `first` on, counted from there, ascending.
  std::vector<int64_t> rows_within(int64_t first, int64_t count) const;

 private:
  std::vector<uint64_t> words_;
};

/// Finds among values that come in a fixed order those that came before. Exact but for two values with the same first 128 bits of SHA-256,
/// which nobody can make. Where the values do not fit into memory at once they come in several passes, each in the same order; a pass looks
/// at its share of the hashes. Memory: `memory_bytes`, or a table of 1,024 hashes. Thread safety: one thread; hash_of() and is_of_pass()
/// any.
class RepeatFinder {
 public:
  /// The first 128 bits of a value's SHA-256; never all zeros.
  using Hash = std::array<uint64_t, 2>;
  static Hash hash_of(std::string_view value);

  /// `num_values`: most that may come in a pass.
  RepeatFinder(int64_t num_values, int64_t memory_bytes);

  int64_t num_passes() const { return num_passes_; }
  /// Forgets the values of the pass before. REQUIRES: 0 <= pass < num_passes().
  void begin_pass(int64_t pass);
  /// Whether the values with this hash are looked at in this pass.
  bool is_of_pass(const Hash& hash) const { return hash[0] % static_cast<uint64_t>(num_passes_) == static_cast<uint64_t>(pass_); }
  /// Whether the value is of this pass and came before in it.
  bool is_repeated(const Hash& hash);
  bool is_repeated(std::string_view value) { return is_repeated(hash_of(value)); }

 private:
  bool insert(std::vector<Hash>& table, const Hash& hash) const;
  void grow();

  int64_t num_passes_ = 1;
  int64_t pass_ = 0;
  std::vector<Hash> table_;  // Open addressing, a power of two of places; a place of zeros is free.
  size_t num_taken_ = 0;
};

}  // namespace darkroom
