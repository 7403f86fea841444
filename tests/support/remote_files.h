#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/forwarding_files.h"

namespace darkroom {

/// What is asked of remote files, and when it is answered. Thread safety: any thread.
class RemoteRequests {
 public:
  /// No request that comes now is answered before so many of them are there.
  void hold_back(int num_requests) {
    const std::lock_guard hold(mutex_);
    num_awaited_ = static_cast<int>(ranges_.size()) + num_requests;
  }
  void let_go() {
    const std::lock_guard hold(mutex_);
    num_awaited_ = 0;
    arrived_.notify_all();
  }
  void wait_for_arrivals(size_t num_requests) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return ranges_.size() >= num_requests; });
  }
  Status answer(ByteRange range, const std::function<Status()>& read) {
    {
      std::unique_lock lock(mutex_);
      ranges_.push_back(range);
      most_at_once_ = std::max(most_at_once_, ++num_under_way_);
      arrived_.notify_all();
      arrived_.wait(lock, [&] { return static_cast<int>(ranges_.size()) >= num_awaited_; });
    }
    const Status status = trouble ? trouble(range) : Status::ok();
    const Status answered = status.is_ok() ? read() : status;
    const std::lock_guard hold(mutex_);
    --num_under_way_;
    return answered;
  }

  /// In the order in which they came.
  std::vector<ByteRange> ranges() const {
    const std::lock_guard hold(mutex_);
    return ranges_;
  }
  size_t size() const { return ranges().size(); }
  int64_t num_bytes() const {
    int64_t sum = 0;
    for (const ByteRange& range : ranges()) {
      sum += range.num_bytes;
    }
    return sum;
  }
  int most_at_once() const {
    const std::lock_guard hold(mutex_);
    return most_at_once_;
  }
  int num_under_way() const {
    const std::lock_guard hold(mutex_);
    return num_under_way_;
  }
  void clear() {
    const std::lock_guard hold(mutex_);
    ranges_.clear();
    most_at_once_ = 0;
  }

  std::function<Status(ByteRange)> trouble = {};  ///< Set before the first request.

 private:
  mutable std::mutex mutex_;  // Guards all below.
  std::condition_variable arrived_;
  std::vector<ByteRange> ranges_;
  int num_awaited_ = 0;
  int num_under_way_ = 0;
  int most_at_once_ = 0;
};

/// A file of which each read is a request.
class RemoteFile final : public InputFile {
 public:
  RemoteFile(std::shared_ptr<const InputFile> file, RemoteRequests& requests) : file_(std::move(file)), requests_(requests) {}

  const std::string& path() const override { return file_->path(); }
  int64_t size_bytes() const override { return file_->size_bytes(); }
  bool is_remote() const override { return true; }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
    size_t num_read = 0;
    DARKROOM_RETURN_IF_ERROR(requests_.answer({.offset = offset, .num_bytes = static_cast<int64_t>(out.size())}, [&] {
      const Result<size_t> read = file_->read_at(offset, out);
      num_read = read.is_ok() ? *read : 0;
      return read.status();
    }));
    return num_read;
  }

 private:
  const std::shared_ptr<const InputFile> file_;
  RemoteRequests& requests_;
};

/// Files that are somewhere else.
class RemoteFiles final : public ForwardingFiles {
 public:
  explicit RemoteFiles(FileSystem& files) : ForwardingFiles(files) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    DARKROOM_ASSIGN_OR_RETURN(auto file, ForwardingFiles::open_input(path));
    return std::unique_ptr<InputFile>(std::make_unique<RemoteFile>(std::move(file), requests));
  }

  RemoteRequests requests;
};

/// Bytes that are everywhere different.
inline std::string numbered_bytes(int64_t num_bytes) {
  std::string bytes(static_cast<size_t>(num_bytes), '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1'664'525u + 1'013'904'223u;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

}  // namespace darkroom
