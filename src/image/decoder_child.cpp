#include "darkroom/image/decoder_child.h"

#include <malloc.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include "decoder_channel.h"
#include "lock_down.h"

namespace darkroom {
namespace {

DecoderResponse refusal(const RowError& error) {
  DecoderResponse response{.error_code = static_cast<uint32_t>(error.code)};
  response.detail_bytes = static_cast<uint32_t>(std::min(error.detail.size(), response.detail.size()));
  std::copy_n(error.detail.begin(), response.detail_bytes, response.detail.begin());
  return response;
}

DecoderResponse decode_failure(std::string_view detail) {
  return refusal({.code = RowErrorCode::kDecodeFailed, .detail = std::string(detail)});
}

DecoderResponse decode(PictureDecoder& decoder, const DecoderChannel& channel, const DecoderRequest& request) {
  const auto bytes = channel.input().first(request.input_bytes);
  if (request.task == DecoderTask::kCheck) {
    const auto result = decoder.check(bytes, request.limits);
    const RowResult<ImageHeader>& header = result.value();
    if (!header.is_ok()) {
      return refusal(header.error());
    }
    return {.is_ok = 1, .width = header->width, .height = header->height, .format = static_cast<uint32_t>(header->format)};
  }
  const bool is_resize = request.task == DecoderTask::kResize;
  const auto output = channel.output().first(is_resize ? picture_bytes(request.size) : square_bytes(request.options));
  const std::span<uint8_t> pixels(reinterpret_cast<uint8_t*>(output.data()), output.size());
  const auto result = is_resize ? decoder.resize_to(bytes, request.size, request.limits, pixels)
                                : decoder.transform(bytes, request.options, request.limits, request.draw, pixels);
  const RowResult<DecodedSize>& size = result.value();
  return size.is_ok() ? DecoderResponse{.is_ok = 1, .width = size->width, .height = size->height} : refusal(size.error());
}

DecoderResponse answer_of(PictureDecoder& decoder, const DecoderChannel& channel, const DecoderRequest& request) {
  try {
    return decode(decoder, channel, request);
  } catch (const std::bad_alloc&) {
    return decode_failure("the picture takes more memory than a decoder may have");
  } catch (const std::exception& failure) {
    return decode_failure(failure.what());
  }
}

void respond(ChannelHeader& header, uint32_t number) {
  header.response_number.store(number, std::memory_order_release);
  wake_other_side(header.response_number);
}

// The next picture takes what this one gave back, up to here; else the kernel would clear the same pages for each picture anew.
void keep_memory() {
  constexpr int kKeptBytes = 16 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
}

// A machine out of memory ends this process before the job.
void go_first() {
  if (std::FILE* file = std::fopen("/proc/self/oom_score_adj", "we")) {
    std::fputs("1000", file);
    std::fclose(file);
  }
}

// Whether the kernel ends this process together with that of `parent`, which may be gone already.
bool follow_parent(pid_t parent) { return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent; }

[[noreturn]] void serve(PictureDecoder& decoder, const DecoderChannel& channel) {
  ChannelHeader& header = channel.header();
  uint32_t number = ChannelHeader::kReady;
  for (respond(header, number);; respond(header, number)) {
    uint32_t seen = 0;
    while ((seen = header.request_number.load(std::memory_order_acquire)) != number + 1) {
      wait_for_change(header.request_number, seen);
    }
    ++number;
    header.response = answer_of(decoder, channel, header.request);
  }
}

}  // namespace

int serve_pictures(int argc, char** argv, PictureDecoder& decoder) {
  const std::optional<DecoderChannel> channel = argc == 2 ? DecoderChannel::open(kChannelDescriptor) : std::nullopt;
  if (!channel) {
    std::fputs("darkroom-decoder is started by darkroom of the same version, never by hand\n", stderr);
    return 2;
  }
  if (!follow_parent(static_cast<pid_t>(std::atol(argv[1])))) {
    return 1;
  }
  go_first();
  keep_memory();
  channel->header().report = lock_down(channel->header().limits);
  serve(decoder, *channel);
}

}  // namespace darkroom
