#include "darkroom/tables/quick_footer.h"

#include <cstring>

#include "footer_hash.h"

namespace darkroom {
namespace {

/// Values of Thrift's compact protocol that are passed over, not built. Every step takes at least a byte or fails, so that no number in
/// the bytes makes it work longer than there are bytes.
class ThriftSkipper {
 public:
  explicit ThriftSkipper(std::string_view bytes) : rest_(bytes) {}

  enum Type : uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kI16 = 4,
    kI32 = 5,
    kI64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
  };
  struct Field {
    int64_t id = 0;
    uint8_t type = kStop;
  };

  std::string_view rest() const { return rest_; }

  std::optional<uint8_t> byte() {
    if (rest_.empty()) {
      return std::nullopt;
    }
    const auto value = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }

  std::optional<uint64_t> varint() {
    constexpr int kMaxBytes = 10;
    uint64_t value = 0;
    for (int i = 0; i < kMaxBytes; ++i) {
      const std::optional<uint8_t> next = byte();
      if (!next) {
        return std::nullopt;
      }
      value |= static_cast<uint64_t>(*next & 0x7F) << (7 * i);
      if ((*next & 0x80) == 0) {
        return value;
      }
    }
    return std::nullopt;
  }

  std::optional<int64_t> zigzag() {
    const std::optional<uint64_t> value = varint();
    return value ? std::optional(static_cast<int64_t>(*value >> 1) ^ -static_cast<int64_t>(*value & 1)) : std::nullopt;
  }

  /// The header of a struct's next field; type kStop at the end. `last_id`: of the field before.
  std::optional<Field> field(int64_t last_id) {
    const std::optional<uint8_t> header = byte();
    if (!header) {
      return std::nullopt;
    }
    Field field{.id = last_id + (*header >> 4), .type = static_cast<uint8_t>(*header & 0x0F)};
    if (field.type != kStop && (*header >> 4) == 0) {
      const std::optional<int64_t> id = zigzag();
      if (!id || *id < INT16_MIN || *id > INT16_MAX) {
        return std::nullopt;
      }
      field.id = *id;
    }
    return field;
  }

  struct List {
    uint64_t count = 0;
    uint8_t type = kStop;
  };
  /// The header of a list; its elements follow.
  std::optional<List> list() {
    const std::optional<uint8_t> header = byte();
    const bool is_long = header && (*header >> 4) == 15;
    const std::optional<uint64_t> count = is_long ? varint() : header ? std::optional<uint64_t>(*header >> 4) : std::nullopt;
    return count ? std::optional(List{.count = *count, .type = static_cast<uint8_t>(*header & 0x0F)}) : std::nullopt;
  }

  std::optional<std::string_view> binary() {
    const std::optional<uint64_t> num_bytes = varint();
    const std::string_view bytes = rest_;
    return num_bytes && skip_bytes(*num_bytes) ? std::optional(bytes.substr(0, static_cast<size_t>(*num_bytes))) : std::nullopt;
  }

  /// Passes over a field's value. Of a list's elements a truth value takes a byte, of a field's none.
  bool skip(uint8_t type, int depth = 0) {
    constexpr int kMaxDepth = 32;
    if (depth > kMaxDepth) {
      return false;
    }
    switch (type) {
      case kTrue:
      case kFalse:
        return true;
      case kByte:
        return byte().has_value();
      case kI16:
      case kI32:
      case kI64:
        return varint().has_value();
      case kDouble:
        return skip_bytes(8);
      case kBinary:
        return binary().has_value();
      case kList:
      case kSet:
        return skip_list(depth);
      case kMap:
        return skip_map(depth);
      case kStruct:
        return skip_struct(depth);
      default:
        return false;
    }
  }

 private:
  bool skip_bytes(uint64_t count) {
    if (count > rest_.size()) {
      return false;
    }
    rest_.remove_prefix(static_cast<size_t>(count));
    return true;
  }

  bool skip_element(uint8_t type, int depth) { return type == kTrue || type == kFalse ? skip_bytes(1) : skip(type, depth + 1); }

  bool skip_list(int depth) {
    const std::optional<List> elements = list();
    for (uint64_t i = 0; elements && i < elements->count; ++i) {
      if (!skip_element(elements->type, depth)) {
        return false;
      }
    }
    return elements.has_value();
  }

  bool skip_map(int depth) {
    const std::optional<uint64_t> count = varint();
    const std::optional<uint8_t> types = count && *count > 0 ? byte() : std::optional<uint8_t>(uint8_t{0});
    for (uint64_t i = 0; count && types && i < *count; ++i) {
      if (!skip_element(*types >> 4, depth) || !skip_element(*types & 0x0F, depth)) {
        return false;
      }
    }
    return count && types;
  }

  bool skip_struct(int depth) {
    int64_t id = 0;
    while (true) {
      const std::optional<Field> next = field(id);
      if (!next || next->type == kStop) {
        return next.has_value();
      }
      if (!skip(next->type, depth + 1)) {
        return false;
      }
      id = next->id;
    }
  }

  std::string_view rest_;
};

/// The Thrift bytes of the footer at the end of the tail.
std::optional<std::string_view> find_thrift(const ObjectTail& tail) {
  constexpr size_t kEndBytes = 8;    // Length of the Thrift bytes (little-endian), then "PAR1".
  constexpr int64_t kHeadBytes = 4;  // "PAR1".
  const std::string_view bytes = tail.bytes;
  if (bytes.size() < kEndBytes || !bytes.ends_with("PAR1")) {
    return std::nullopt;
  }
  uint32_t num_bytes = 0;
  std::memcpy(&num_bytes, bytes.data() + bytes.size() - kEndBytes, sizeof(num_bytes));
  if (num_bytes > bytes.size() - kEndBytes || num_bytes > tail.size_bytes - static_cast<int64_t>(kEndBytes) - kHeadBytes) {
    return std::nullopt;
  }
  return bytes.substr(bytes.size() - kEndBytes - num_bytes, num_bytes);
}

/// The value that a KeyValue gives to ARROW:schema, "" of another one. Nothing: it is no KeyValue.
std::optional<std::string_view> read_arrow_schema(ThriftSkipper& skipper) {
  constexpr int64_t kKeyField = 1, kValueField = 2;
  std::string_view key, value;
  int64_t id = 0;
  while (true) {
    const auto field = skipper.field(id);
    if (!field || field->type == ThriftSkipper::kStop) {
      return !field ? std::nullopt : std::optional(key == "ARROW:schema" ? value : std::string_view());
    }
    id = field->id;
    if (field->type == ThriftSkipper::kBinary && (id == kKeyField || id == kValueField)) {
      const std::optional<std::string_view> text = skipper.binary();
      if (!text) {
        return std::nullopt;
      }
      (id == kKeyField ? key : value) = *text;
    } else if (!skipper.skip(field->type)) {
      return std::nullopt;
    }
  }
}

/// The same of a whole list of them: the first one counts.
std::optional<std::string_view> find_arrow_schema(ThriftSkipper& skipper) {
  const std::optional<ThriftSkipper::List> pairs = skipper.list();
  if (!pairs || pairs->type != ThriftSkipper::kStruct) {
    return std::nullopt;
  }
  std::string_view found;
  for (uint64_t i = 0; i < pairs->count; ++i) {
    const std::optional<std::string_view> value = read_arrow_schema(skipper);
    if (!value) {
      return std::nullopt;
    }
    found = found.empty() ? *value : found;
  }
  return found;
}

}  // namespace

std::optional<QuickFooter> read_quick_footer(const ObjectTail& tail) {
  constexpr int64_t kSchemaField = 2, kRowsField = 3, kMetadataField = 5;
  const std::optional<std::string_view> thrift = find_thrift(tail);
  if (!thrift) {
    return std::nullopt;
  }
  ThriftSkipper skipper(*thrift);
  QuickFooter footer;
  std::optional<int64_t> num_rows;
  int64_t id = 0;
  while (true) {
    const auto field = skipper.field(id);
    if (!field || (field->type != ThriftSkipper::kStop && field->id <= id)) {
      return std::nullopt;
    }
    if (field->type == ThriftSkipper::kStop || field->id > kMetadataField) {
      break;
    }
    id = field->id;
    const std::string_view before = skipper.rest();
    if (id == kRowsField && field->type == ThriftSkipper::kI64) {
      num_rows = skipper.zigzag();
    } else if (id == kMetadataField && field->type == ThriftSkipper::kList) {
      const std::optional<std::string_view> arrow_schema = find_arrow_schema(skipper);
      if (!arrow_schema) {
        return std::nullopt;
      }
      footer.arrow_schema = *arrow_schema;
    } else if (!skipper.skip(field->type)) {
      return std::nullopt;
    } else if (id == kSchemaField && field->type == ThriftSkipper::kList) {
      footer.schema = before.substr(0, before.size() - skipper.rest().size());
    }
  }
  if (!num_rows || *num_rows < 0 || footer.schema.empty() || look_at_seal(std::string(*thrift)) == FooterSeal::kBroken) {
    return std::nullopt;
  }
  footer.num_rows = *num_rows;
  return footer;
}

}  // namespace darkroom
