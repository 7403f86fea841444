#include "arrived_metadata.h"

#include <cstring>

namespace darkroom {
namespace {

constexpr int kMostLevels = 64;  // As Arrow's.
// Numbers of Message.fbs and Schema.fbs.
enum MessageField : uint8_t { kHeaderType = 1, kHeader = 2, kMessageWords = 4 };
enum SchemaField : uint8_t { kFields = 1, kSchemaWords = 2 };
enum FieldField : uint8_t { kName = 0, kTypeType = 2, kType = 3, kDictionary = 4, kChildren = 5, kFieldWords = 6 };
constexpr uint8_t kTimestamp = 10, kUnion = 14;
constexpr int kOfType = 1;  // A time's zone, a union's numbers.

/// Goes through a flatbuffer and spends its own length on what it comes by: a tree has room for all of it. A place of 0 is what is not
/// there.
class MetadataWalk {
 public:
  explicit MetadataWalk(std::string_view bytes) : bytes_(bytes), left_(bytes.size()) {}

  bool is_plain(ArrowHeader kind) {
    const uint64_t message = follow(0);
    if (number<uint8_t>(place(message, kHeaderType)) != static_cast<uint8_t>(kind)) {
      return false;
    }
    spend_words(place(message, kMessageWords));
    if (kind == ArrowHeader::kSchema) {
      const uint64_t schema = follow(place(message, kHeader));
      spend_fields(place(schema, kFields), 0);
      spend_words(place(schema, kSchemaWords));
    }
    return is_plain_;
  }

 private:
  template <typename T>
  T number(uint64_t at) {
    T value{};
    if (at > bytes_.size() || bytes_.size() - at < sizeof value) {
      is_plain_ = false;
      return value;
    }
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }

  uint64_t follow(uint64_t at) { return at + number<uint32_t>(at); }

  /// Where a table's field is.
  uint64_t place(uint64_t table, int field) {
    const int64_t slots = static_cast<int64_t>(table) - number<int32_t>(table);
    const auto slot = static_cast<uint16_t>(4 + 2 * field);
    if (slots < 0 || number<uint16_t>(static_cast<uint64_t>(slots)) < slot + 2) {
      return 0;
    }
    const auto offset = number<uint16_t>(static_cast<uint64_t>(slots) + slot);
    return offset == 0 ? 0 : table + offset;
  }

  void spend(uint64_t num_bytes) {
    is_plain_ = is_plain_ && num_bytes <= left_;
    left_ -= is_plain_ ? num_bytes : 0;
  }

  /// A text, or numbers.
  void spend_vector(uint64_t at, uint64_t element_bytes) {
    if (at != 0) {
      spend(sizeof(uint32_t) + element_bytes * number<uint32_t>(follow(at)));
    }
  }

  template <typename Visit>
  void spend_tables(uint64_t at, Visit visit) {
    const uint64_t tables = at == 0 ? 0 : follow(at);
    const uint32_t count = at == 0 ? 0 : number<uint32_t>(tables);
    for (uint32_t i = 0; i < count && is_plain_; ++i) {
      spend(2 * sizeof(uint32_t));  // Where it is, and where its fields are.
      visit(follow(tables + sizeof(uint32_t) * (uint64_t{i} + 1)));
    }
  }

  void spend_words(uint64_t at) {
    spend_tables(at, [this](uint64_t pair) {
      spend_vector(place(pair, 0), 1);
      spend_vector(place(pair, 1), 1);
    });
  }

  void spend_fields(uint64_t at, int level) {
    spend_tables(at, [this, level](uint64_t field) {
      spend_vector(place(field, kName), 1);
      spend_words(place(field, kFieldWords));
      is_plain_ = is_plain_ && place(field, kDictionary) == 0 && level < kMostLevels;
      const uint64_t kind = place(field, kTypeType);
      const uint8_t type = kind == 0 ? 0 : number<uint8_t>(kind);
      if (type == kTimestamp || type == kUnion) {
        spend_vector(place(follow(place(field, kType)), kOfType), type == kUnion ? sizeof(int32_t) : 1);
      }
      if (is_plain_) {
        spend_fields(place(field, kChildren), level + 1);
      }
    });
  }

  const std::string_view bytes_;
  uint64_t left_;
  bool is_plain_ = true;
};

}  // namespace

bool is_plain_metadata(std::string_view metadata, ArrowHeader kind) { return MetadataWalk(metadata).is_plain(kind); }

}  // namespace darkroom
