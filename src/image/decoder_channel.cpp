#include "decoder_channel.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>
#include <utility>

namespace darkroom {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr int kFirstFreeDescriptor = 10;  // Above those that a child has at its start.

size_t whole_pages(size_t num_bytes) { return (num_bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

Status no_memory(std::string_view step, size_t num_bytes) {
  return Status::resource_exhausted("cannot get memory to share with a decoder (step, bytes, reason):", step, num_bytes,
                                    std::strerror(errno));
}

std::span<std::byte> map_shared(int descriptor, size_t num_bytes) {
  void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? std::span<std::byte>() : std::span(static_cast<std::byte*>(memory), num_bytes);
}

long futex(const std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

Result<DecoderChannel> DecoderChannel::create(size_t input_capacity, size_t output_capacity) {
  input_capacity = whole_pages(input_capacity);
  output_capacity = whole_pages(output_capacity);
  const size_t size = kHeaderBytes + input_capacity + output_capacity;
  const int low = memfd_create("darkroom-decoder", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (low < 0) {
    return no_memory("memfd_create", size);
  }
  const int descriptor = fcntl(low, F_DUPFD_CLOEXEC, kFirstFreeDescriptor);
  close(low);
  if (descriptor < 0) {
    return no_memory("fcntl", size);
  }
  DecoderChannel channel(descriptor, {}, input_capacity);
  // Set aside now: a page that cannot be had later would be a SIGBUS here. Sealed: so would one that the child cut off.
  if (const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(size)); error != 0) {
    errno = error;
    return no_memory("fallocate", size);
  }
  if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return no_memory("seal", size);
  }
  channel.memory_ = map_shared(descriptor, size);
  if (channel.memory_.empty()) {
    return no_memory("mmap", size);
  }
  auto* header = new (channel.memory_.data()) ChannelHeader;
  header->header_bytes = sizeof(ChannelHeader);
  header->input_capacity = input_capacity;
  header->output_capacity = output_capacity;
  return channel;
}

std::optional<DecoderChannel> DecoderChannel::open(int descriptor) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0 || facts.st_size < static_cast<off_t>(kHeaderBytes)) {
    return std::nullopt;
  }
  DecoderChannel channel(-1, map_shared(descriptor, static_cast<size_t>(facts.st_size)), 0);
  if (channel.memory_.empty()) {
    return std::nullopt;
  }
  const ChannelHeader& header = channel.header();
  const bool is_ours = header.magic == ChannelHeader::kMagic && header.version == ChannelHeader::kVersion &&
                       header.header_bytes == sizeof(ChannelHeader) &&
                       header.input_capacity + header.output_capacity + kHeaderBytes == channel.memory_.size();
  if (!is_ours) {
    return std::nullopt;
  }
  channel.input_capacity_ = header.input_capacity;
  return channel;
}

DecoderChannel::DecoderChannel(DecoderChannel&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      memory_(std::exchange(other.memory_, {})),
      input_capacity_(other.input_capacity_) {}

DecoderChannel& DecoderChannel::operator=(DecoderChannel&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(memory_, other.memory_);
  std::swap(input_capacity_, other.input_capacity_);
  return *this;
}

DecoderChannel::~DecoderChannel() {
  if (!memory_.empty()) {
    munmap(memory_.data(), memory_.size());
  }
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (at_most - seconds).count()};
  futex(word, FUTEX_WAIT, seen, &timeout);
}

void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen) { futex(word, FUTEX_WAIT, seen, nullptr); }

void wake_other_side(std::atomic<uint32_t>& word) { futex(word, FUTEX_WAKE, 1, nullptr); }

DecoderResponse copy_once(const DecoderResponse& shared) {
  DecoderResponse copy;
  auto* to = reinterpret_cast<unsigned char*>(&copy);
  const auto* from = reinterpret_cast<const volatile unsigned char*>(&shared);
  for (size_t i = 0; i < sizeof(copy); ++i) {
    to[i] = from[i];
  }
  return copy;
}

}  // namespace darkroom
