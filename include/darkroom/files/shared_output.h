#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// A file of this machine, or of a file system that several share, of which several processes write ranges, each its own. Who made it
/// makes it visible, once all have said that sync_and_close() was ok. Thread safety: one object, one thread.
class SharedOutput {
 public:
  /// Errors: kNotFound (no such file: it is not made here), those of the file system.
  static Result<SharedOutput> open(const std::string& path);
  /// Closes without syncing.
  ~SharedOutput();
  SharedOutput(SharedOutput&& other) noexcept;
  SharedOutput& operator=(SharedOutput&&) = delete;

  /// Cuts it, or makes it longer by zeros that take no room on a disk.
  Status resize(int64_t size_bytes);
  /// Writes all of `bytes` from `offset` on; a file that ends before that grows.
  Status write_at(int64_t offset, std::span<const std::byte> bytes);
  /// Returns when what was written here survives a power loss. REQUIRES: called once, last.
  Status sync_and_close();

 private:
  SharedOutput(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;  // -1 once closed.
};

}  // namespace darkroom
