#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

// The bytes between an encoder and a trainer (docs/encode.md): frames of "DRKS", type (4 bytes), length of the body (8 bytes) and body;
// all numbers little-endian.

inline constexpr int kSliceProtocol = 1;                ///< Told by the challenge, before anything that may change.
inline constexpr std::string_view kFrameMark = "DRKS";  ///< What a frame begins with.
inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr int64_t kMaxWordsBytes = 65'536;  ///< Of a body that is JSON.
inline constexpr size_t kNumberBytes = 8;
inline constexpr size_t kAnswerNumbers = 4;  ///< Before an answer's content: slice, microseconds up, microseconds of work, rows.

enum class FrameType : uint32_t {
  kChallenge = 1,  ///< Encoder: JSON, {"protocol", "nonce"}.
  kHello = 2,      ///< Trainer: JSON, {"nonce", "proof", "facts"}.
  kWelcome = 3,    ///< Encoder: JSON, {"proof", "place", "processor", "workers", "in_flight", "max_rows", "rows_together"}.
  kRefusal = 4,    ///< Encoder: JSON, {"code", "message"}; it then closes.
  kRequest = 5,    ///< Trainer: number of the slice, then the rows' numbers, 8 bytes each.
  kSlice = 6,      ///< Encoder: the numbers of an answer, then the rows.
  kFailure = 7,    ///< Encoder: the numbers of an answer, then JSON, {"code", "message"}.
  kWorking = 8,    ///< Encoder: nothing; it still works on what it owes.
};

struct Frame {
  FrameType type = FrameType::kChallenge;
  std::string body;
};

std::string encode_frame(FrameType type, std::string_view body);
void append_number(std::string& out, uint64_t number);
/// REQUIRES: bytes.size() >= offset + 8.
uint64_t number_at(std::string_view bytes, size_t offset);

/// Reads frames from a socket that does not block. Memory grows with the bytes that came, never with those that were announced.
class FrameReader {
 public:
  enum class Took { kNothingYet, kFrame, kEnded };

  explicit FrameReader(int64_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}
  void set_max_body_bytes(int64_t max_body_bytes) { max_body_bytes_ = max_body_bytes; }

  /// Takes what is there, up to the end of one frame. Errors: kUnavailable (the connection broke, or ended within a frame), kCorruptData
  /// (no frame, or one that is too long).
  Result<Took> read(int socket);
  /// The frame. REQUIRES: read() has just said kFrame.
  Frame take();
  /// Bytes that came in all.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  Status begin_body();

  int64_t max_body_bytes_;
  int64_t num_bytes_ = 0;
  std::string header_;
  size_t body_bytes_ = 0;  // Announced.
  Frame frame_;
};

/// Sends frames on a socket that does not block, as far as it takes them.
class FrameWriter {
 public:
  void add(std::string frame) { waiting_.push_back(std::move(frame)); }
  bool is_empty() const { return waiting_.empty(); }
  /// Frames that are not sent whole.
  size_t num_frames() const { return waiting_.size(); }
  /// Whether something went out. Errors: kUnavailable.
  Result<bool> write(int socket);

 private:
  std::deque<std::string> waiting_;  // A frame goes once it is sent: the next ones come before a slow peer has all.
  size_t num_sent_ = 0;              // Of the first one.
};

}  // namespace darkroom
