#include "darkroom/tables/sealed_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/picture_inputs.h"

namespace darkroom {

namespace {

// "darkroom.record 1 " CONTENT_BYTES " " RECORD_OFFSET " " SHA256 "\n", numbers of 20 digits.
constexpr std::string_view kSealName = "darkroom.record 1 ";
constexpr size_t kSealDigits = 20;
constexpr size_t kSealHashDigits = 64;
constexpr size_t kSealBytes = kSealName.size() + kSealDigits + 1 + kSealDigits + 1 + kSealHashDigits + 1;
constexpr int64_t kTarEndBytes = 1024;
// Of rows that failed: twenty million of them take less.
constexpr int64_t kMaxRecordBytes = int64_t{64} << 20;

struct Seal {
  int64_t content_bytes = 0;
  int64_t record_offset = 0;
  std::string_view hash;
};

std::optional<int64_t> parse_seal_number(std::string_view digits) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return failure == std::errc() && end == digits.data() + digits.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

std::optional<Seal> parse_seal(std::string_view line) {
  if (line.size() != kSealBytes || !line.starts_with(kSealName) || !line.ends_with('\n')) {
    return std::nullopt;
  }
  line.remove_prefix(kSealName.size());
  const auto content_bytes = parse_seal_number(line.substr(0, kSealDigits));
  const auto record_offset = parse_seal_number(line.substr(kSealDigits + 1, kSealDigits));
  if (!content_bytes || !record_offset) {
    return std::nullopt;
  }
  return Seal{.content_bytes = *content_bytes,
              .record_offset = *record_offset,
              .hash = line.substr(line.size() - 1 - kSealHashDigits, kSealHashDigits)};
}

void set_content_hash(KeyValues& pairs, const std::string& content_hash) {
  auto shard = std::ranges::find(pairs, std::string_view(kShardKey), &KeyValues::value_type::first);
  if (shard == pairs.end()) {
    shard = pairs.emplace(pairs.end(), kShardKey, "{}");
  }
  auto record = parse_json<nlohmann::ordered_json>(shard->second);
  DARKROOM_CHECK(record.is_object(), "the shard's record is not a JSON object:", shard->second);
  record["content_hash"] = content_hash;
  shard->second = record.dump();
}

Status no_record(const InputFile& file, std::string_view why) {
  return Status::corrupt_data("reading a shard's record (why, path):", why, file.path());
}

Result<std::string> read_record_bytes(const InputFile& file, int64_t offset, int64_t num_bytes) {
  std::string bytes(static_cast<size_t>(num_bytes), '\0');
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, std::as_writable_bytes(std::span(bytes))));
  return num_read == bytes.size() ? Result<std::string>(std::move(bytes)) : no_record(file, "the file became shorter");
}

}  // namespace

Result<std::string> print_unsealed_record(KeyValues pairs, const SealOptions& options) {
  set_content_hash(pairs, options.content_hash);
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : pairs) {
    json[key] = value;
  }
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto multiple = static_cast<size_t>(options.multiple_bytes);
  const size_t unpadded = text.size() + 1 + kSealBytes;
  text.append((multiple - unpadded % multiple) % multiple, ' ');
  text += fmt::format("\n{}{:020d} {:020d} {}\n", kSealName, options.content_bytes, options.content_bytes + options.between_bytes,
                      std::string(kSealHashDigits, '0'));
  if (options.between_bytes + static_cast<int64_t>(text.size()) + kTarEndBytes > kMaxRecordBytes) {
    return Status::failed_precondition(
        "the record of a shard is larger than its readers take: an item has too many rows that failed; ask for fewer --rows-per-file "
        "(bytes, most):",
        text.size(), kMaxRecordBytes);
  }
  return text;
}

void seal_record(std::string_view between, std::string& record) {
  const size_t place = record.size() - 1 - kSealHashDigits;
  Sha256 hash;
  hash.update(std::as_bytes(std::span(between)));
  hash.update(std::as_bytes(std::span(record).first(place)));
  record.replace(place, kSealHashDigits, hash.finish_hex());
}

int64_t bytes_behind_record(std::string_view path) { return has_ending(path, ".tar") ? kTarEndBytes : 0; }

Result<SealedRecord> read_sealed_record(const InputFile& file) {
  constexpr auto kLineBytes = static_cast<int64_t>(kSealBytes);
  const int64_t end = file.size_bytes() - bytes_behind_record(file.path());
  if (end < kLineBytes) {
    return no_record(file, "the file is too short for one");
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string line, read_record_bytes(file, end - kLineBytes, kLineBytes));
  const std::optional<Seal> seal = parse_seal(line);
  if (!seal || seal->content_bytes > seal->record_offset || seal->record_offset > end - kLineBytes ||
      end - seal->content_bytes > kMaxRecordBytes) {
    return no_record(file, "the file does not end with one");
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_record_bytes(file, seal->content_bytes, end - seal->content_bytes));
  const std::string_view hashed = std::string_view(bytes).substr(0, bytes.size() - 1 - kSealHashDigits);
  if (sha256_hex(hashed) != seal->hash) {
    return no_record(file, "it was changed: its hash differs");
  }
  const auto first = static_cast<size_t>(seal->record_offset - seal->content_bytes);
  const nlohmann::ordered_json json =
      parse_json<nlohmann::ordered_json>(std::string_view(bytes).substr(first, bytes.size() - kSealBytes - first));
  if (!json.is_object()) {
    return no_record(file, "it is no JSON object");
  }
  SealedRecord record{.content_bytes = seal->content_bytes};
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return no_record(file, "a value of it is no text");
    }
    record.pairs.emplace_back(key, value.get<std::string>());
  }
  return record;
}

Result<KeyValues> read_shard_pairs(const Location& shard) {
  const auto part = PartName::parse(shard.name());
  if (!part || part->container == PartContainer::kParquet) {
    DARKROOM_ASSIGN_OR_RETURN(TableFooter footer, read_footer(shard));
    return std::move(footer.key_values);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto file, shard.store->open_input(shard.path));
  DARKROOM_ASSIGN_OR_RETURN(SealedRecord record, read_sealed_record(*file));
  return std::move(record.pairs);
}

const std::string* find_value(const KeyValues& pairs, std::string_view key) {
  const auto found = std::ranges::find(pairs, key, &KeyValues::value_type::first);
  return found == pairs.end() ? nullptr : &found->second;
}

}  // namespace darkroom
