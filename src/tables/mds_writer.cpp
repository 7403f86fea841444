#include "darkroom/tables/mds_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/tables/sealed_record.h"
#include "shard_content.h"

namespace darkroom {

namespace {

static_assert(std::endian::native == std::endian::little, "MDS is little-endian, and so are the values that are handed over");

constexpr int kMdsVersion = 2;

struct FixedEncoding {
  std::string_view name;
  int64_t num_bytes;
};
constexpr std::array kFixedEncodings = {
    FixedEncoding{"int", 8},    FixedEncoding{"int8", 1},    FixedEncoding{"int16", 2},   FixedEncoding{"int32", 4},
    FixedEncoding{"int64", 8},  FixedEncoding{"uint8", 1},   FixedEncoding{"uint16", 2},  FixedEncoding{"uint32", 4},
    FixedEncoding{"uint64", 8}, FixedEncoding{"float16", 2}, FixedEncoding{"float32", 4}, FixedEncoding{"float64", 8},
};

std::vector<size_t> order_by_name(const std::vector<MdsColumn>& columns) {
  std::vector<size_t> order(columns.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) -> const std::string& { return columns[i].name; });
  return order;
}

/// What a shard says of its columns, in the file's head and in index.json.
nlohmann::json describe_columns(const std::vector<MdsColumn>& columns) {
  nlohmann::json names = nlohmann::json::array(), encodings = nlohmann::json::array(), sizes = nlohmann::json::array();
  for (const size_t i : order_by_name(columns)) {
    const int64_t num_bytes = mds_value_bytes(columns[i].encoding);
    names.push_back(columns[i].name);
    encodings.push_back(columns[i].encoding);
    sizes.push_back(num_bytes == 0 ? nlohmann::json() : nlohmann::json(num_bytes));
  }
  return {{"version", kMdsVersion}, {"format", "mds"},       {"compression", nullptr},        {"hashes", nlohmann::json::array()},
          {"size_limit", nullptr},  {"column_names", names}, {"column_encodings", encodings}, {"column_sizes", std::move(sizes)}};
}

std::string print_columns(const std::vector<MdsColumn>& columns) {
  return describe_columns(columns).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void append_number(std::string& bytes, int64_t number) {
  const auto narrow = static_cast<uint32_t>(number);
  bytes.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
}

}  // namespace

int64_t mds_value_bytes(std::string_view encoding) {
  const auto found = std::ranges::find(kFixedEncodings, encoding, &FixedEncoding::name);
  return found == kFixedEncodings.end() ? 0 : found->num_bytes;
}

MdsWriter::MdsWriter(std::unique_ptr<PendingObject> object, std::vector<MdsColumn> columns, ScratchFiles& scratch)
    : object_(std::move(object)),
      columns_(std::move(columns)),
      order_(order_by_name(columns_)),
      config_(print_columns(columns_)),
      scratch_(scratch) {
  DARKROOM_CHECK(!columns_.empty(), "an MDS shard needs a column (shard):", object_->describe());
}

MdsWriter::~MdsWriter() {
  for (; num_read_ < samples_.size(); ++num_read_) {
    scratch_.free(samples_[num_read_]);
  }
}

int64_t MdsWriter::head_bytes(int64_t num_samples) const {
  return static_cast<int64_t>(sizeof(uint32_t)) * (num_samples + 2) + static_cast<int64_t>(config_.size());
}

Status MdsWriter::add(std::span<const std::span<const std::byte>> values) {
  DARKROOM_CHECK(values.size() == columns_.size(), "another number of values came than the shard has columns (got):", values.size());
  std::string sizes;
  int64_t num_bytes = 0;
  for (const size_t i : order_) {
    const auto size = static_cast<int64_t>(values[i].size());
    const int64_t fixed = mds_value_bytes(columns_[i].encoding);
    DARKROOM_CHECK(fixed == 0 || fixed == size, "a value has another size than its encoding (column, bytes):", columns_[i].name, size);
    num_bytes += size;
    if (fixed == 0) {
      append_number(sizes, size);
    }
  }
  num_bytes += static_cast<int64_t>(sizes.size());
  if (head_bytes(num_samples() + 1) + sample_bytes_ + num_bytes > kMostMdsBytes) {
    return Status::failed_precondition(
        "a shard of the dialect mosaicml holds 4 GiB at most, because its offsets have 32 bits; ask for fewer --rows-per-file (shard, "
        "samples so far):",
        object_->describe(), num_samples());
  }
  sample_.resize(static_cast<size_t>(num_bytes));
  std::byte* out = std::ranges::copy(std::as_bytes(std::span(sizes)), sample_.data()).out;
  for (const size_t i : order_) {
    out = std::ranges::copy(values[i], out).out;
  }
  DARKROOM_ASSIGN_OR_RETURN(const ScratchFiles::Place place, scratch_.append(sample_));
  samples_.push_back(place);
  sample_bytes_ += num_bytes;
  return Status::ok();
}

std::string MdsWriter::head() const {
  std::string head;
  append_number(head, num_samples());
  int64_t offset = head_bytes(num_samples());
  append_number(head, offset);
  for (const ScratchFiles::Place& sample : samples_) {
    offset += sample.num_bytes;
    append_number(head, offset);
  }
  return head + config_;
}

Result<FinishedShard> MdsWriter::finish(KeyValues pairs) {
  ShardContent content(*object_);
  const std::string begin = head();
  DARKROOM_RETURN_IF_ERROR(content.write(std::as_bytes(std::span(begin))));
  for (; num_read_ < samples_.size(); ++num_read_) {
    const ScratchFiles::Place& sample = samples_[num_read_];
    sample_.resize(static_cast<size_t>(sample.num_bytes));
    DARKROOM_RETURN_IF_ERROR(scratch_.read(sample, sample_));
    DARKROOM_RETURN_IF_ERROR(content.write(sample_));
    scratch_.free(sample);
  }
  FinishedShard shard{.content_hash = kXxh3Name + content.hash_hex(), .num_rows = num_samples()};
  const SealOptions options{.content_bytes = content.num_bytes(), .content_hash = shard.content_hash};
  DARKROOM_ASSIGN_OR_RETURN(std::string record, print_unsealed_record(std::move(pairs), options));
  seal_record("", record);
  DARKROOM_RETURN_IF_ERROR(object_->write_text(record));
  shard.num_bytes = object_->num_bytes();
  shard.object = std::move(object_);
  return shard;
}

std::string print_mds_index(const std::vector<MdsColumn>& columns, std::span<const MdsShardEntry> shards) {
  nlohmann::json list = nlohmann::json::array();
  for (const MdsShardEntry& shard : shards) {
    if (shard.num_samples == 0) {
      continue;
    }
    nlohmann::json entry = describe_columns(columns);
    entry["samples"] = shard.num_samples;
    entry["raw_data"] = {{"basename", shard.name}, {"bytes", shard.num_bytes}, {"hashes", nlohmann::json::object()}};
    entry["zip_data"] = nullptr;
    list.push_back(std::move(entry));
  }
  return nlohmann::json{{"version", kMdsVersion}, {"shards", std::move(list)}}.dump(-1, ' ', true,
                                                                                    nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace darkroom
