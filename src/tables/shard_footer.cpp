#include "shard_footer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"
#include "footer_hash.h"

namespace darkroom {

std::shared_ptr<arrow::KeyValueMetadata> make_footer_pairs(KeyValues footer, const std::string& content_hash) {
  const auto has_shard_key = [](const auto& pair) { return pair.first == kShardKey; };
  if (std::none_of(footer.begin(), footer.end(), has_shard_key)) {
    footer.emplace_back(kShardKey, "{}");
  }
  auto pairs = std::make_shared<arrow::KeyValueMetadata>();
  for (auto& [key, value] : footer) {
    if (key == kShardKey) {
      auto record = parse_json<nlohmann::ordered_json>(value);
      DARKROOM_CHECK(record.is_object(), "the shard's record is not a JSON object:", value);
      record["content_hash"] = content_hash;
      value = record.dump();
    }
    pairs->Append(key, value);
  }
  pairs->Append(kFooterHashKey, unsealed_footer_hash());
  return pairs;
}

void seal_footer(std::string& footer) {
  constexpr size_t kTailBytes = 8;
  const std::string thrift = footer.substr(0, footer.size() - kTailBytes);
  const std::optional<size_t> position = find_footer_hash(thrift);
  DARKROOM_CHECK(position.has_value(), "the footer has no place for its hash");
  const std::string hash = hash_footer(thrift, *position);
  footer.replace(*position, hash.size(), hash);
}

}  // namespace darkroom
