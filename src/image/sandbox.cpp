#include "darkroom/image/sandbox.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "darkroom/core/printable.h"
#include "darkroom/image/decoding_memory.h"
#include "sandboxed_child.h"

namespace darkroom {
namespace {

constexpr size_t kLeastMemory = size_t{16} << 20;
constexpr size_t kFirstOutputBytes = size_t{1} << 20;
constexpr int kAttempts = 2;  // A SIGKILL from outside is not held against a picture at once.
constexpr std::chrono::minutes kLongestPicture{10};

bool is_decoders_error(uint32_t code) {
  constexpr std::array kCodes = {RowErrorCode::kTruncated,   RowErrorCode::kNotAnImage, RowErrorCode::kUnsupportedFormat,
                                 RowErrorCode::kTooSmall,    RowErrorCode::kBadAspect,  RowErrorCode::kBomb,
                                 RowErrorCode::kDecodeFailed};
  return std::ranges::any_of(kCodes, [code](RowErrorCode known) { return code == static_cast<uint32_t>(known); });
}

bool is_decoded_format(uint32_t format) {
  constexpr std::array kFormats = {ImageFormat::kJpeg, ImageFormat::kPng, ImageFormat::kWebp};
  return std::ranges::any_of(kFormats, [format](ImageFormat known) { return format == static_cast<uint32_t>(known); });
}

bool is_within(const ImageLimits& limits, int32_t width, int32_t height) {
  if (width < 1 || height < 1 || static_cast<int64_t>(width) * height > limits.max_pixels) {
    return false;
  }
  const auto [shorter, longer] = std::minmax(width, height);
  return shorter >= limits.min_size && (limits.max_aspect <= 0 || longer <= limits.max_aspect * shorter);
}

// What no decoder answers, in words; none where the answer can be believed.
std::optional<std::string> garbage_in(const DecoderResponse& response, const DecoderRequest& request) {
  if (response.is_ok > 1) {
    return fmt::format("a success of {}", response.is_ok);
  }
  if (response.is_ok == 0 && !is_decoders_error(response.error_code)) {
    return fmt::format("an error of code {}", response.error_code);
  }
  if (response.is_ok == 0 && response.detail_bytes > response.detail.size()) {
    return fmt::format("{} bytes of detail", response.detail_bytes);
  }
  if (response.is_ok == 1 && !is_within(request.limits, response.width, response.height)) {
    return fmt::format("a picture of {}x{}", response.width, response.height);
  }
  if (response.is_ok == 1 && request.task == DecoderTask::kCheck && !is_decoded_format(response.format)) {
    return fmt::format("a picture of format {}", response.format);
  }
  return std::nullopt;
}

RowError lost_picture(std::string trouble) { return {.code = RowErrorCode::kDecodeFailed, .detail = std::move(trouble)}; }

class SandboxedDecoder : public PictureDecoder {
 public:
  explicit SandboxedDecoder(const SandboxOptions& options) : options_(options), output_bytes_(kFirstOutputBytes) {}

  /// A child that can be asked by this thread and takes a picture of so many bytes.
  Status prepare(size_t input_bytes) {
    const size_t wanted = std::max(input_bytes, options_.input_bytes);
    if (child_ && is_fit(*child_, wanted)) {
      return Status::ok();
    }
    child_.reset();
    DARKROOM_ASSIGN_OR_RETURN(child_, SandboxedChild::start(options_, wanted, output_bytes_));
    input_bytes_ = wanted;
    return Status::ok();
  }
  const SandboxProtection& protection() const { return child_->protection(); }

  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    DARKROOM_ASSIGN_OR_RETURN(const auto response, ask(bytes, {.task = DecoderTask::kCheck, .limits = limits}));
    if (!response.is_ok()) {
      return RowResult<ImageHeader>(response.error());
    }
    return RowResult<ImageHeader>(ImageHeader{static_cast<ImageFormat>(response->format), response->width, response->height});
  }

  Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                           const CropDraw& draw, std::span<uint8_t> out_hwc) override {
    DARKROOM_CHECK(options.validate().is_ok(), "a transform that cannot be:", options.validate().message());
    DARKROOM_CHECK(out_hwc.size() == square_bytes(options), "the output does not fit the square (want, got):", square_bytes(options),
                   out_hwc.size());
    return fill(bytes, {.task = DecoderTask::kTransform, .limits = limits, .options = options, .draw = draw}, out_hwc);
  }

  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                           std::span<uint8_t> out_hwc) override {
    DARKROOM_CHECK(out_hwc.size() == picture_bytes(size), "the output does not fit the size (want, got):", picture_bytes(size),
                   out_hwc.size());
    return fill(bytes, {.task = DecoderTask::kResize, .limits = limits, .size = size}, out_hwc);
  }

 private:
  // What is asked for fills `out`.
  Result<RowResult<DecodedSize>> fill(std::span<const std::byte> bytes, const DecoderRequest& request, std::span<uint8_t> out) {
    output_bytes_ = std::max(output_bytes_, out.size());
    DARKROOM_ASSIGN_OR_RETURN(const auto response, ask(bytes, request));
    if (!response.is_ok()) {
      return RowResult<DecodedSize>(response.error());
    }
    std::memcpy(out.data(), child_->channel().output().data(), out.size());
    return RowResult<DecodedSize>(DecodedSize{response->width, response->height});
  }

  // A child with the slot of a single large picture is given up for one of the usual size.
  bool is_fit(SandboxedChild& child, size_t wanted) const {
    return child.is_alive() && child.is_of_this_thread() && input_bytes_ >= wanted &&
           (input_bytes_ == options_.input_bytes || wanted > options_.input_bytes) && child.channel().output().size() >= output_bytes_ &&
           child.processor_time() < std::chrono::nanoseconds(options_.time_per_child) / 2;
  }

  // The judged response to one picture.
  Result<RowResult<DecoderResponse>> ask(std::span<const std::byte> bytes, DecoderRequest request) {
    using Row = RowResult<DecoderResponse>;
    if (bytes.size() > options_.largest_input_bytes) {
      return Row(RowError{.code = RowErrorCode::kTooLarge,
                          .detail = fmt::format("a picture of more than {} bytes: {}", options_.largest_input_bytes, bytes.size())});
    }
    Exchange exchange;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      DARKROOM_RETURN_IF_ERROR(prepare(bytes.size()));
      std::ranges::copy(bytes, child_->channel().input().begin());
      request.input_bytes = bytes.size();
      exchange = child_->ask(request, options_);
      // A machine that slept, or a process that was stopped, says nothing about the picture either.
      const bool was_held_up = exchange.outcome == Exchange::Outcome::kOverran && exchange.time_left > options_.time_per_picture / 2;
      if (exchange.outcome != Exchange::Outcome::kKilled && !was_held_up) {
        break;
      }
      if (was_held_up) {
        child_.reset();
      }
    }
    if (exchange.outcome == Exchange::Outcome::kStopped) {
      return Status::cancelled("stopped while a picture was decoded");
    }
    if (exchange.outcome != Exchange::Outcome::kAnswered) {
      child_.reset();
      return Row(lost_picture(exchange.trouble));
    }
    return judge(exchange.response, request);
  }

  RowResult<DecoderResponse> judge(const DecoderResponse& response, const DecoderRequest& request) {
    if (const auto garbage = garbage_in(response, request)) {
      child_.reset();
      return lost_picture("the decoder answered what no decoder answers: " + *garbage);
    }
    if (response.is_ok == 0) {
      // The child may have written anything.
      return RowError{.code = static_cast<RowErrorCode>(response.error_code),
                      .detail = printable({response.detail.data(), response.detail_bytes})};
    }
    return response;
  }

  SandboxOptions options_;
  size_t input_bytes_ = 0;  // Of the child's slot, before it was rounded to pages.
  size_t output_bytes_;
  std::optional<SandboxedChild> child_;  // None after it was lost; the next picture gets another.
};

Result<std::unique_ptr<SandboxedDecoder>> start_sandboxed(const SandboxOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  auto decoder = std::make_unique<SandboxedDecoder>(options);
  DARKROOM_RETURN_IF_ERROR(decoder->prepare(0));
  return decoder;
}

}  // namespace

Status SandboxOptions::validate() const {
  if (program.empty()) {
    return Status::invalid_argument("the sandbox needs the path of darkroom-decoder, got an empty one");
  }
  if (memory_bytes < kLeastMemory) {
    return Status::invalid_argument(fmt::format("a decoder needs memory_bytes of at least {}, got:", kLeastMemory), memory_bytes);
  }
  if (time_per_picture.count() < 1 || time_per_picture > kLongestPicture) {
    return Status::invalid_argument(
        fmt::format("time_per_picture must lie in 1..{} ms, got:", std::chrono::milliseconds(kLongestPicture).count()),
        time_per_picture.count());
  }
  if (time_per_child.count() < 1) {
    return Status::invalid_argument("time_per_child must be at least 1 s, got:", time_per_child.count());
  }
  if (input_bytes < 1 || input_bytes > largest_input_bytes) {
    return Status::invalid_argument(fmt::format("input_bytes must lie in 1..largest_input_bytes ({}), got:", largest_input_bytes),
                                    input_bytes);
  }
  return Status::ok();
}

Result<SandboxProtection> examine_sandbox(const SandboxOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const auto decoder, start_sandboxed(options));
  return decoder->protection();
}

Result<std::unique_ptr<PictureDecoder>> decoder_in_child(const SandboxOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(auto decoder, start_sandboxed(options));
  return std::unique_ptr<PictureDecoder>(std::move(decoder));
}

SandboxOptions sandbox_for(std::string program, const ImageLimits& limits, std::stop_token stop) {
  constexpr auto kPixelBytes = static_cast<int64_t>(kMostDecodingBytesPerPixel);
  constexpr int64_t kBesides = int64_t{64} << 20;
  constexpr int64_t kMostPixels = int64_t{1} << 40;
  SandboxOptions options{.program = std::move(program), .stop = std::move(stop)};
  const int64_t wanted_bytes = kPixelBytes * std::clamp<int64_t>(limits.max_pixels, 0, kMostPixels) + kBesides;
  options.memory_bytes = std::max(options.memory_bytes, static_cast<size_t>(wanted_bytes));
  return options;
}

Status check_decoder(const std::string& program, const ImageLimits& limits, std::stop_token stop) {
  if (program.empty()) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(const SandboxProtection protection, examine_sandbox(sandbox_for(program, limits, std::move(stop))));
  if (!protection.missing.empty()) {
    log_warning("{}", protection.missing);
  }
  return Status::ok();
}

Result<std::unique_ptr<PictureDecoder>> open_decoder(const std::string& program, const ImageLimits& limits, std::stop_token stop) {
  return program.empty() ? decoder_in_process() : decoder_in_child(sandbox_for(program, limits, std::move(stop)));
}

}  // namespace darkroom
