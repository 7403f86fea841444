#include "frames.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace darkroom {
namespace {

constexpr size_t kTypeOffset = 4;
constexpr size_t kLengthOffset = 8;
constexpr size_t kReadBytes = size_t{1} << 18;
constexpr int kBitsOfByte = 8;

uint64_t little_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    number = number << kBitsOfByte | static_cast<unsigned char>(bytes[i - 1]);
  }
  return number;
}

void append_little_endian(std::string& out, uint64_t number, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes; ++i) {
    out += static_cast<char>(number >> kBitsOfByte * i);
  }
}

Status broken_connection(int error) { return Status::unavailable("the connection broke:", std::generic_category().message(error)); }

}  // namespace

std::string encode_frame(FrameType type, std::string_view body) {
  std::string frame(kFrameMark);
  frame.reserve(kFrameHeaderBytes + body.size());
  append_little_endian(frame, static_cast<uint32_t>(type), kLengthOffset - kTypeOffset);
  append_number(frame, body.size());
  frame += body;
  return frame;
}

void append_number(std::string& out, uint64_t number) { append_little_endian(out, number, kNumberBytes); }

uint64_t number_at(std::string_view bytes, size_t offset) { return little_endian(bytes.substr(offset, kNumberBytes)); }

Status FrameReader::begin_body() {
  const std::string_view header = header_;
  const uint64_t type = little_endian(header.substr(kTypeOffset, kLengthOffset - kTypeOffset));
  const uint64_t length = number_at(header, kLengthOffset);
  const bool is_known = type >= static_cast<uint32_t>(FrameType::kChallenge) && type <= static_cast<uint32_t>(FrameType::kWorking);
  if (!header.starts_with(kFrameMark) || !is_known) {
    return Status::corrupt_data("what came over the connection is no frame of slices");
  }
  if (length > static_cast<uint64_t>(max_body_bytes_)) {
    return Status::corrupt_data("a frame is longer than may be (bytes, most):", length, max_body_bytes_);
  }
  frame_.type = static_cast<FrameType>(type);
  frame_.body.clear();
  body_bytes_ = length;
  return {};
}

Result<FrameReader::Took> FrameReader::read(int socket) {
  for (;;) {
    const bool in_header = header_.size() < kFrameHeaderBytes;
    if (!in_header && frame_.body.size() == body_bytes_) {
      return Took::kFrame;
    }
    std::string& target = in_header ? header_ : frame_.body;
    const size_t have = target.size();
    target.resize(std::min(in_header ? kFrameHeaderBytes : body_bytes_, have + kReadBytes));
    const ssize_t num_bytes = recv(socket, target.data() + have, target.size() - have, 0);
    const int error = errno;
    target.resize(have + static_cast<size_t>(std::max<ssize_t>(0, num_bytes)));
    if (num_bytes < 0) {
      return error == EAGAIN || error == EINTR ? Result<Took>(Took::kNothingYet) : broken_connection(error);
    }
    if (num_bytes == 0) {
      return header_.empty() ? Result<Took>(Took::kEnded) : Status::unavailable("the connection ended within a frame");
    }
    num_bytes_ += num_bytes;
    if (in_header && header_.size() == kFrameHeaderBytes) {
      DARKROOM_RETURN_IF_ERROR(begin_body());
    }
  }
}

Frame FrameReader::take() {
  header_.clear();
  return std::exchange(frame_, {});
}

Result<bool> FrameWriter::write(int socket) {
  bool has_written = false;
  while (!waiting_.empty()) {
    const std::string& frame = waiting_.front();
    const ssize_t num_bytes = send(socket, frame.data() + num_sent_, frame.size() - num_sent_, MSG_NOSIGNAL);
    if (num_bytes < 0) {
      return errno == EAGAIN || errno == EINTR ? Result<bool>(has_written) : broken_connection(errno);
    }
    has_written = true;
    num_sent_ += static_cast<size_t>(num_bytes);
    if (num_sent_ == frame.size()) {
      waiting_.pop_front();
      num_sent_ = 0;
    }
  }
  return has_written;
}

}  // namespace darkroom
