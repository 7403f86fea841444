#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "darkroom/core/result.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/image/probe.h"
#include "darkroom/image/transform.h"
#include "lock_down.h"

namespace darkroom {

enum class DecoderTask : uint32_t { kCheck = 1, kTransform = 2, kResize = 3 };

struct DecoderRequest {
  DecoderTask task = DecoderTask::kCheck;
  uint64_t input_bytes = 0;
  ImageLimits limits{};
  TransformOptions options{};  ///< With kTransform, as is the draw.
  CropDraw draw{};
  DecodedSize size{};  ///< With kResize.
};

/// What a child answers. To its parent nothing of it is true before it was judged (sandbox.cpp).
struct DecoderResponse {
  static constexpr size_t kLongestDetail = 232;

  uint32_t is_ok = 0;       ///< 1: width, height and, with kCheck, format; 0: error_code and detail.
  uint32_t error_code = 0;  ///< A RowErrorCode.
  int32_t width = 0;
  int32_t height = 0;
  uint32_t format = 0;  ///< An ImageFormat.
  uint32_t detail_bytes = 0;
  std::array<char, kLongestDetail> detail{};
};

/// The first page of the memory that parent and child share. The numbers are futex words: the parent writes a request and then its
/// number, one more than the last; the child, when it has answered, writes that number beside the response. The child's first answer,
/// kReady, is its report.
struct ChannelHeader {
  static constexpr uint32_t kMagic = 0x6b726b64;
  static constexpr uint32_t kVersion = 2;
  static constexpr uint32_t kReady = 1;

  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint64_t header_bytes = 0;  ///< sizeof(ChannelHeader): another build may differ.
  uint64_t input_capacity = 0;
  uint64_t output_capacity = 0;
  LockDownLimits limits;
  LockDownReport report;
  alignas(64) std::atomic<uint32_t> request_number{0};
  DecoderRequest request;
  alignas(64) std::atomic<uint32_t> response_number{0};
  DecoderResponse response;
};

/// Where a child finds its channel.
inline constexpr int kChannelDescriptor = 3;

/// Header, input slot, output slot: one mapping of one memfd, whose size nobody can change. Thread safety: one thread a side.
class DecoderChannel {
 public:
  /// The parent's side: fresh memory, all of which the kernel has set aside. Errors: kResourceExhausted.
  static Result<DecoderChannel> create(size_t input_capacity, size_t output_capacity);
  /// The child's side, of a descriptor; none where that holds no channel of this version.
  static std::optional<DecoderChannel> open(int descriptor);

  DecoderChannel(DecoderChannel&& other) noexcept;
  DecoderChannel& operator=(DecoderChannel&& other) noexcept;
  ~DecoderChannel();

  ChannelHeader& header() const { return *reinterpret_cast<ChannelHeader*>(memory_.data()); }
  std::span<std::byte> input() const { return memory_.subspan(kHeaderBytes, input_capacity_); }
  std::span<std::byte> output() const { return memory_.subspan(kHeaderBytes + input_capacity_); }
  int descriptor() const { return descriptor_; }  ///< -1 on the child's side.

 private:
  static constexpr size_t kHeaderBytes = 4096;
  static_assert(sizeof(ChannelHeader) <= kHeaderBytes && std::is_trivially_copyable_v<DecoderRequest> &&
                std::is_trivially_copyable_v<DecoderResponse> && std::atomic<uint32_t>::is_always_lock_free);

  DecoderChannel(int descriptor, std::span<std::byte> memory, size_t input_capacity)
      : descriptor_(descriptor), memory_(memory), input_capacity_(input_capacity) {}

  int descriptor_ = -1;
  std::span<std::byte> memory_;
  size_t input_capacity_ = 0;  // Our own: the header's may change at any time.
};

/// Waits until another process wakes the word, at most so long, unless it is not `seen` any more. May return early.
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds at_most);
/// The same without a bound.
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen);
void wake_other_side(std::atomic<uint32_t>& word);

/// A copy that is read once: what the other side writes later changes nothing of it.
DecoderResponse copy_once(const DecoderResponse& shared);

}  // namespace darkroom
