#include "io/ordered_json.h"

#include <gtest/gtest.h>

#include <string>

namespace darkroom {
namespace {

// A key that counts how often one is compared. All collide in a hash table, as keys can that were made for it.
struct CountedKey {
  int number = 0;
  bool operator<(const CountedKey& other) const {
    ++num_comparisons;
    return number < other.number;
  }
  bool operator==(const CountedKey& other) const {
    ++num_comparisons;
    return number == other.number;
  }
  static inline int64_t num_comparisons = 0;
};

}  // namespace
}  // namespace darkroom

template <>
struct std::hash<darkroom::CountedKey> {
  size_t operator()(const darkroom::CountedKey&) const { return 0; }
};

namespace darkroom {
namespace {

TEST(OrderedJson, compares_each_of_many_keys_a_few_times) {
  constexpr int kNumKeys = 20000;
  IndexedMap<CountedKey, int, std::equal_to<CountedKey>> map;
  CountedKey::num_comparisons = 0;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kNumKeys; ++i) {
      map[CountedKey{i}] = i + round;
    }
  }
  constexpr int kMaxTreeHeight = 30;  // A red-black tree of n keys is at most 2 log2(n + 1) high.
  EXPECT_LE(CountedKey::num_comparisons, 2 * kNumKeys * (kMaxTreeHeight + 1));
  ASSERT_EQ(map.size(), static_cast<size_t>(kNumKeys));
  int number = 0;
  for (const auto& [key, value] : map) {
    ASSERT_EQ(key.number, number);
    ASSERT_EQ(value, ++number);
  }
}

TEST(OrderedJson, keeps_the_order_and_the_last_value_of_a_key_for_any_number_of_keys) {
  for (const int num_keys : {1, 2, 15, 16, 17, 18, 100}) {
    std::string text = "{";
    for (int i = 0; i < num_keys; ++i) {
      text += "\"k" + std::to_string(num_keys - i) + "\":" + std::to_string(i) + ",";
    }
    const OrderedJson json = OrderedJson::parse(text + "\"k1\":{\"b\":[1,{}],\"a\":null}}");
    std::string want = text;
    want.erase(want.rfind("\"k1\""));
    EXPECT_EQ(json.dump(), want + "\"k1\":{\"b\":[1,{}],\"a\":null}}");
  }
}

}  // namespace
}  // namespace darkroom
