#include "safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

using nlohmann::json;

struct DtypeName {
  torch::Dtype dtype;
  const char* name;
};

constexpr std::array kDtypeNames = {
    DtypeName{torch::kBool, "BOOL"},
    DtypeName{torch::kUInt8, "U8"},
    DtypeName{torch::kInt8, "I8"},
    DtypeName{torch::kFloat8_e5m2, "F8_E5M2"},
    DtypeName{torch::kFloat8_e4m3fn, "F8_E4M3"},
    DtypeName{torch::kInt16, "I16"},
    DtypeName{torch::kUInt16, "U16"},
    DtypeName{torch::kFloat16, "F16"},
    DtypeName{torch::kBFloat16, "BF16"},
    DtypeName{torch::kInt32, "I32"},
    DtypeName{torch::kUInt32, "U32"},
    DtypeName{torch::kFloat32, "F32"},
    DtypeName{torch::kFloat64, "F64"},
    DtypeName{torch::kInt64, "I64"},
    DtypeName{torch::kUInt64, "U64"},
};

Status fault(std::string_view what, const std::string& name) { return Status::corrupt_data(what, name); }

constexpr int kMaxDepth = 3;  // Header object, tensor object, its arrays.

// Watches the parse for what nlohmann would let pass: a key twice in one object. Throws the first as a Status, so that a hostile
// header costs no more than the bytes before it. REQUIRES: the text nests no deeper than kMaxDepth.
class KeyGuard {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) {
      keys_[static_cast<size_t>(depth)].clear();
    } else if (event == json::parse_event_t::key && !keys_[static_cast<size_t>(depth) - 1].insert(parsed.get<std::string>()).second) {
      throw fault("a key twice:", parsed.get<std::string>());
    }
    return true;
  }

 private:
  std::array<std::set<std::string>, kMaxDepth> keys_;  // Of the object that was opened last at each depth.
};

Result<json> parse_object(std::string_view text) {
  if (json_nests_deeper(text, kMaxDepth)) {
    return Status::corrupt_data("nested deeper than the format allows");
  }
  try {
    const json::parser_callback_t guard = [state = KeyGuard()](int depth, json::parse_event_t event, json& value) mutable {
      return state(depth, event, value);
    };
    auto parsed = json::parse(text.begin(), text.end(), guard, /*allow_exceptions=*/false);
    if (!parsed.is_object()) {
      return Status::corrupt_data("the header is not one JSON object");
    }
    return parsed;
  } catch (const Status& status) {
    return status;
  }
}

Result<SafetensorsMetadata> read_metadata(const json& value) {
  SafetensorsMetadata metadata;
  if (!value.is_object()) {
    return Status::corrupt_data("__metadata__ is not an object");
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return fault("__metadata__ may hold texts only; wrong key:", key);
    }
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

Result<torch::Dtype> parse_dtype(const json& value, const std::string& name) {
  for (const auto& known : kDtypeNames) {
    if (value == known.name) {
      return known.dtype;
    }
  }
  return Status::corrupt_data("unknown dtype (tensor, dtype):", name, value.dump());
}

// Numbers that do not fit 64 bits unsigned arrive as floating-point or negative and are refused here.
Result<std::vector<uint64_t>> parse_sizes(const json& entry, const char* key, const std::string& name) {
  const auto field = entry.find(key);
  if (field == entry.end() || !field->is_array()) {
    return Status::corrupt_data("a tensor lacks a list (tensor, field):", name, key);
  }
  std::vector<uint64_t> sizes;
  for (const auto& item : *field) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Status::corrupt_data("want whole numbers below 2^63 (tensor, field, value):", name, key, item.dump());
    }
    sizes.push_back(item.get<uint64_t>());
  }
  return sizes;
}

Result<SafetensorsPlace> parse_place(const std::string& name, const json& entry) {
  if (!entry.is_object() || entry.size() != 3) {
    return fault("want exactly dtype, shape and data_offsets for tensor:", name);
  }
  SafetensorsPlace place{.spec = {.name = name, .dtype = torch::kFloat32, .shape = {}}};
  DARKROOM_ASSIGN_OR_RETURN(place.spec.dtype, parse_dtype(entry.value("dtype", json()), name));
  DARKROOM_ASSIGN_OR_RETURN(const auto shape, parse_sizes(entry, "shape", name));
  place.spec.shape.assign(shape.begin(), shape.end());
  DARKROOM_ASSIGN_OR_RETURN(const auto offsets, parse_sizes(entry, "data_offsets", name));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return fault("data_offsets are not [begin, end] for tensor:", name);
  }
  place.begin = offsets[0];
  place.end = offsets[1];
  DARKROOM_ASSIGN_OR_RETURN(const uint64_t num_bytes, safetensors_num_bytes(place.spec));
  if (place.end - place.begin != num_bytes) {
    return Status::corrupt_data("offsets and shape disagree (tensor, bytes by offsets, bytes by shape):", name, place.end - place.begin,
                                num_bytes);
  }
  return place;
}

Status check_coverage(const std::vector<SafetensorsPlace>& places, uint64_t data_bytes) {
  uint64_t covered = 0;
  for (const auto& place : places) {
    if (place.begin != covered) {
      return Status::corrupt_data("tensors leave a gap or overlap (tensor, begins at, want):", place.spec.name, place.begin, covered);
    }
    covered = place.end;
  }
  if (covered != data_bytes) {
    return Status::corrupt_data("the file's size and its header disagree (data bytes in the file, by the header):", data_bytes, covered);
  }
  return Status::ok();
}

}  // namespace

std::string safetensors_dtype_name(torch::Dtype dtype) {
  const auto known = std::ranges::find(kDtypeNames, dtype, &DtypeName::dtype);
  DARKROOM_CHECK(known != kDtypeNames.end(), "safetensors has no name for the dtype", torch::toString(dtype));
  return known->name;
}

Result<uint64_t> safetensors_num_bytes(const TensorSpec& spec) {
  uint64_t num_bytes = torch::elementSize(spec.dtype);
  for (const int64_t size : spec.shape) {
    const auto factor = static_cast<uint64_t>(std::max<int64_t>(size, 1));  // Strides of an empty tensor are numbers, too.
    if (size < 0 || __builtin_mul_overflow(num_bytes, factor, &num_bytes) ||
        num_bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fault("the shape's bytes overflow for tensor:", spec.name);
    }
  }
  return std::ranges::find(spec.shape, 0) == spec.shape.end() ? num_bytes : 0;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, uint64_t data_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(const json object, parse_object(text));
  SafetensorsHeader header;
  for (const auto& [name, entry] : object.items()) {
    if (name == kSafetensorsMetadataKey) {
      DARKROOM_ASSIGN_OR_RETURN(header.metadata, read_metadata(entry));
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(auto place, parse_place(name, entry));
    header.places.push_back(std::move(place));
  }
  std::ranges::stable_sort(header.places,
                           [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  DARKROOM_RETURN_IF_ERROR(check_coverage(header.places, data_bytes));
  return header;
}

std::string format_safetensors_header(const std::vector<TensorSpec>& order, const SafetensorsMetadata& metadata) {
  auto object = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    object[kSafetensorsMetadataKey] = metadata;
  }
  uint64_t begin = 0;
  for (const auto& spec : order) {
    const uint64_t end = begin + safetensors_num_bytes(spec).value();
    object[spec.name] = {{"dtype", safetensors_dtype_name(spec.dtype)}, {"shape", spec.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = object.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace darkroom
