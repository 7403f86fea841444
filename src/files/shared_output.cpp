#include "darkroom/files/shared_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "errno_status.h"

namespace darkroom {

Result<SharedOutput> SharedOutput::open(const std::string& path) {
  while (true) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor >= 0) {
      return SharedOutput(path, descriptor);
    }
    if (errno != EINTR) {
      return status_of_errno(errno, "open", path);
    }
  }
}

SharedOutput::~SharedOutput() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

SharedOutput::SharedOutput(SharedOutput&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

Status SharedOutput::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t step = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (step < 0 && errno == EINTR) {
      continue;
    }
    if (step < 0) {
      return status_of_errno(errno, "write", path_);
    }
    bytes = bytes.subspan(static_cast<size_t>(step));
    offset += step;
  }
  return Status::ok();
}

Status SharedOutput::resize(int64_t size_bytes) {
  while (::ftruncate(descriptor_, size_bytes) != 0) {
    if (errno != EINTR) {
      return status_of_errno(errno, "resize", path_);
    }
  }
  return {};
}

Status SharedOutput::sync_and_close() {
  if (::fsync(descriptor_) != 0) {
    return status_of_errno(errno, "sync to disk", path_);
  }
  return ::close(std::exchange(descriptor_, -1)) == 0 ? Status::ok() : status_of_errno(errno, "close", path_);
}

}  // namespace darkroom
