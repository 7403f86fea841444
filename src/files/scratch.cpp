#include "darkroom/files/scratch.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "darkroom/files/paths.h"
#include "errno_status.h"

namespace darkroom {

namespace {

constexpr const char* kScratchTemplate = "_tmp.scratch.XXXXXX";

/// A file without a name; where the file system cannot make one, a file that loses its name at once. -1: errno says why.
int open_nameless(const std::string& folder) {
  const int number = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // A kernel that knows no O_TMPFILE takes the call for the opening of a folder.
  if (number >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOSYS)) {
    return number;
  }
  std::string path = join_path(folder, kScratchTemplate);
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0 && ::unlink(path.c_str()) != 0) {
    const int error = errno;
    ::close(named);
    errno = error;
    return -1;
  }
  return named;
}

}  // namespace

Result<int64_t> free_bytes_at(const std::string& folder) {
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) != 0) {
    return status_of_errno(errno, "ask for the free space of", folder);
  }
  return static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
}

struct ScratchFiles::Segment {
  explicit Segment(int descriptor) : number(descriptor) {}
  ~Segment() { ::close(number); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const int number;
  int64_t end = 0;  // Guarded by the mutex of ScratchFiles, as all below.
  int64_t num_places = 0;
};

ScratchFiles::ScratchFiles(std::string folder, int64_t max_bytes, int64_t segment_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes), segment_bytes_(segment_bytes) {
  DARKROOM_CHECK(max_bytes > 0 && segment_bytes > 0, "scratch files hold something (bytes, bytes a segment):", max_bytes, segment_bytes);
}

ScratchFiles::~ScratchFiles() = default;

Result<std::unique_ptr<ScratchFiles>> ScratchFiles::open(const std::string& folder, int64_t max_bytes, int64_t segment_bytes) {
  std::unique_ptr<ScratchFiles> scratch(new ScratchFiles(folder, max_bytes, segment_bytes));
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<Segment> first, scratch->open_segment());
  scratch->segments_.emplace(scratch->next_segment_++, std::move(first));
  return scratch;
}

Result<std::shared_ptr<ScratchFiles::Segment>> ScratchFiles::open_segment() const {
  const int number = open_nameless(folder_);
  return number >= 0 ? Result<std::shared_ptr<Segment>>(std::make_shared<Segment>(number))
                     : status_of_errno(errno, "make a scratch file in", folder_);
}

/// REQUIRES: mutex_ is held.
Result<ScratchFiles::Place> ScratchFiles::reserve(int64_t num_bytes, std::shared_ptr<Segment>& segment) {
  if (used_bytes_ + num_bytes > max_bytes_) {
    return Status::resource_exhausted("the scratch files are full (folder, bytes, most bytes):", folder_, used_bytes_, max_bytes_);
  }
  if (segments_.empty() || (segments_.rbegin()->second->end > 0 && segments_.rbegin()->second->end + num_bytes > segment_bytes_)) {
    DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<Segment> made, open_segment());
    segments_.emplace(next_segment_++, std::move(made));
  }
  const auto& [index, last] = *segments_.rbegin();
  segment = last;
  const Place place{.segment = index, .num_bytes = static_cast<int32_t>(num_bytes), .offset = last->end};
  last->end += num_bytes;
  last->num_places += 1;
  used_bytes_ += num_bytes;
  return place;
}

Result<ScratchFiles::Place> ScratchFiles::append(std::span<const std::byte> bytes) {
  DARKROOM_CHECK(bytes.size() <= INT32_MAX, "too much for one place of a scratch file (bytes):", bytes.size());
  std::shared_ptr<Segment> segment;
  Place place;
  {
    const std::lock_guard hold(mutex_);
    DARKROOM_ASSIGN_OR_RETURN(place, reserve(static_cast<int64_t>(bytes.size()), segment));
  }
  for (size_t num_written = 0; num_written < bytes.size();) {
    const ssize_t step =
        ::pwrite(segment->number, bytes.data() + num_written, bytes.size() - num_written, place.offset + static_cast<int64_t>(num_written));
    if (step < 0 && errno == EINTR) {
      continue;
    }
    if (step <= 0) {
      const Status failure = status_of_errno(step < 0 ? errno : EIO, "write a scratch file in", folder_);
      free(place);
      return failure;
    }
    num_written += static_cast<size_t>(step);
  }
  return place;
}

std::shared_ptr<ScratchFiles::Segment> ScratchFiles::segment_of(const Place& place) const {
  const std::lock_guard hold(mutex_);
  const auto found = segments_.find(place.segment);
  DARKROOM_CHECK(found != segments_.end() && place.offset + place.num_bytes <= found->second->end,
                 "a place that no scratch file has (segment, offset):", place.segment, place.offset);
  return found->second;
}

Status ScratchFiles::read(const Place& place, std::span<std::byte> out) const {
  DARKROOM_CHECK(static_cast<int64_t>(out.size()) == place.num_bytes, "a buffer does not fit its place (buffer, place):", out.size(),
                 place.num_bytes);
  const std::shared_ptr<Segment> segment = segment_of(place);
  for (size_t num_read = 0; num_read < out.size();) {
    const ssize_t step =
        ::pread(segment->number, out.data() + num_read, out.size() - num_read, place.offset + static_cast<int64_t>(num_read));
    if (step < 0 && errno == EINTR) {
      continue;
    }
    if (step <= 0) {
      return Status::unavailable(status_of_errno(step < 0 ? errno : EIO, "read a scratch file in", folder_).message());
    }
    num_read += static_cast<size_t>(step);
  }
  return Status::ok();
}

void ScratchFiles::free(const Place& place) {
  const std::shared_ptr<Segment> segment = segment_of(place);
  const std::lock_guard hold(mutex_);
  DARKROOM_CHECK(segment->num_places > 0, "a place was given back twice (segment, offset):", place.segment, place.offset);
  segment->num_places -= 1;
  if (segment->num_places == 0) {
    used_bytes_ -= segment->end;
    segments_.erase(place.segment);
  }
}

int64_t ScratchFiles::used_bytes() const {
  const std::lock_guard hold(mutex_);
  return used_bytes_;
}

}  // namespace darkroom
