#include "darkroom/train/event_writer.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <chrono>
#include <optional>

#include "darkroom/core/crc32.h"
#include "darkroom/files/paths.h"
#include "spool_records.h"

namespace darkroom {
namespace {

constexpr std::string_view kFilePrefix = "events.out.tfevents.";

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr uint32_t kEventWallTime = 1;
constexpr uint32_t kEventStep = 2;
constexpr uint32_t kEventFileVersion = 3;
constexpr uint32_t kEventSummary = 5;
constexpr uint32_t kEventSessionLog = 7;
constexpr uint32_t kSessionLogStatus = 1;
constexpr uint64_t kSessionLogStart = 1;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;
constexpr uint32_t kValueSimple = 2;
constexpr uint32_t kValueImage = 4;
constexpr uint32_t kImageHeight = 1;
constexpr uint32_t kImageWidth = 2;
constexpr uint32_t kImageColourSpace = 3;
constexpr uint32_t kImageBytes = 4;
constexpr uint64_t kRgb = 3;

// Wire types of protocol buffers.
enum class Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename Integer>
void append_little_endian(std::string& out, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    out += static_cast<char>(value >> (8 * i) & 0xff);
  }
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out += static_cast<char>(value | 0x80);
  }
  out += static_cast<char>(value);
}

void append_tag(std::string& out, uint32_t field, Wire wire) { append_varint(out, field << 3 | static_cast<uint32_t>(wire)); }

void append_integer(std::string& out, uint32_t field, uint64_t value) {
  append_tag(out, field, Wire::kVarint);
  append_varint(out, value);
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_tag(out, field, Wire::kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8U; }

double now_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string summary_of(std::string_view value) {
  std::string summary;
  append_bytes(summary, kSummaryValue, value);
  std::string fields;
  append_bytes(fields, kEventSummary, summary);
  return fields;
}

// The step that a file of ours begins with; none of another program's.
std::optional<int64_t> first_step_of(std::string_view name) {
  if (!name.starts_with(kFilePrefix)) {
    return std::nullopt;
  }
  int64_t step = 0;
  const std::string_view digits = name.substr(kFilePrefix.size());
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return read.ec == std::errc() && name == event_file_name(step) ? std::optional(step) : std::nullopt;
}

}  // namespace

std::string tfrecord_frame(std::string_view data) {
  std::string frame;
  append_little_endian(frame, static_cast<uint64_t>(data.size()));
  append_little_endian(frame, masked_crc(frame));
  frame += data;
  append_little_endian(frame, masked_crc(data));
  return frame;
}

std::string event_file_name(int64_t first_step) { return fmt::format("{}{:010}.darkroom", kFilePrefix, first_step); }

Result<std::unique_ptr<EventWriter>> EventWriter::open(FileSystem& files, const std::string& folder, int64_t first_step,
                                                       LostRecords* lost) {
  DARKROOM_ASSIGN_OR_RETURN(const auto entries, files.list(folder));
  for (const auto& entry : entries) {
    if (first_step_of(file_name(entry.path)).value_or(-1) >= first_step) {
      DARKROOM_RETURN_IF_ERROR(files.remove_file(entry.path));
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(auto file, files.create(join_path(folder, event_file_name(first_step))));
  DARKROOM_ASSIGN_OR_RETURN(file, allow_lost_records(files, std::move(file), lost));
  std::unique_ptr<EventWriter> writer(new EventWriter(std::move(file)));
  std::string version;
  append_bytes(version, kEventFileVersion, "brain.Event:2");
  DARKROOM_RETURN_IF_ERROR(writer->write_event(0, version));
  std::string session;
  append_integer(session, kSessionLogStatus, kSessionLogStart);
  std::string start;
  append_bytes(start, kEventSessionLog, session);
  DARKROOM_RETURN_IF_ERROR(writer->write_event(first_step + 1, start));
  return writer;
}

Status EventWriter::write_event(int64_t step, std::string_view fields) {
  std::string event;
  append_tag(event, kEventWallTime, Wire::kFixed64);
  append_little_endian(event, std::bit_cast<uint64_t>(now_seconds()));
  append_integer(event, kEventStep, static_cast<uint64_t>(step));
  event += fields;
  return file_->write_text(tfrecord_frame(event));
}

Status EventWriter::add_scalar(int64_t step, std::string_view tag, float value) {
  std::string entry;
  append_bytes(entry, kValueTag, tag);
  append_tag(entry, kValueSimple, Wire::kFixed32);
  append_little_endian(entry, std::bit_cast<uint32_t>(value));
  return write_event(step, summary_of(entry));
}

Status EventWriter::add_image(int64_t step, std::string_view tag, int width, int height, std::string_view png) {
  std::string image;
  append_integer(image, kImageHeight, static_cast<uint64_t>(height));
  append_integer(image, kImageWidth, static_cast<uint64_t>(width));
  append_integer(image, kImageColourSpace, kRgb);
  append_bytes(image, kImageBytes, png);
  std::string entry;
  append_bytes(entry, kValueTag, tag);
  append_bytes(entry, kValueImage, image);
  return write_event(step, summary_of(entry));
}

}  // namespace darkroom
