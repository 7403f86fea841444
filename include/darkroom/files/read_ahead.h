#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/files/file_system.h"

namespace darkroom {

inline constexpr int64_t kReadAheadPieceBytes = int64_t{1} << 20;  ///< Of one request.
inline constexpr int64_t kReadAheadBytes = int64_t{8} << 20;       ///< Of one reader, unless it is told otherwise.

/// A file whose reader says what it will read: that is asked for in pieces, several at once, before it is wanted. For a file of which each
/// read is a request (InputFile::is_remote). What was not expected is read at once, as it is.
/// Memory: `most_bytes`, or one piece, asked for and not read yet; as much again where the store holds an answer before it hands it over.
/// Threads: one for each piece of that, begun when there are as many pieces. Errors: a piece that failed fails the read that wants it, and
/// is asked for anew by the next one; of pieces that nobody reads nobody hears. The destructor begins no request and waits for those that
/// are under way. Thread safety: one thread reads and expects.
class ReadAhead final : public InputFile {
 public:
  /// REQUIRES: most_bytes > 0.
  explicit ReadAhead(std::shared_ptr<const InputFile> file, int64_t most_bytes = kReadAheadBytes);
  ~ReadAhead() override;

  const std::string& path() const override { return file_->path(); }
  int64_t size_bytes() const override { return file_->size_bytes(); }
  bool is_remote() const override { return true; }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override;

  /// These are read next, each from front to back, in so many steps: in each the same share of all of them, one range after the other (the
  /// columns of a row group, batch by batch). Small neighbours are one request. Behind what was expected before. Bytes that are expected
  /// already, or that the file does not have, are left out. Returns a number for forget(). REQUIRES: num_steps > 0.
  int64_t expect(std::span<const ByteRange> ranges, int64_t num_steps = 1);
  /// What is left of expect(number) will not be read.
  void forget(int64_t number);
  /// Of what is expected, how much nobody has asked for yet.
  int64_t num_bytes_planned() const;

 private:
  enum class PieceState { kPlanned, kAsked, kThere };
  struct Piece {
    ByteRange bytes;
    int64_t number = 0;      // Of expect().
    int64_t stream = 0;      // Pieces of one are read in the order of their offsets.
    int64_t left_bytes = 0;  // To be read.
    PieceState state = PieceState::kPlanned;
    Status status = {};
    std::exception_ptr thrown = nullptr;
    std::vector<std::byte> data = {};
  };
  using PiecePointer = std::shared_ptr<Piece>;  // Shared with the thread that asks for it.
  using Pieces = std::map<int64_t, PiecePointer>;

  /// The pieces of a stream that are free, each with its step.
  void add_stream(ByteRange bytes, int64_t wanted_bytes, int64_t num_steps, std::vector<std::pair<int64_t, PiecePointer>>& found);
  Pieces::iterator find(int64_t offset) const;
  Pieces::iterator drop(Pieces::iterator piece) const;
  void drop_passed(const Piece& now) const;
  PiecePointer next_planned() const;
  void ask(std::unique_lock<std::mutex>& lock, const PiecePointer& piece) const;
  void begin_threads() const;
  void work() const;

  const std::shared_ptr<const InputFile> file_;  // Shared with the table and its other ranges.
  const int64_t most_bytes_;
  const int64_t piece_bytes_;
  mutable std::mutex mutex_;  // Guards all below.
  mutable std::condition_variable changed_;
  mutable Pieces pieces_;  // By offset; they do not overlap.
  mutable std::deque<PiecePointer> planned_;
  mutable int64_t planned_bytes_ = 0;
  mutable int64_t held_bytes_ = 0;  // Of pieces that were asked for, and that some thread or pieces_ has still.
  mutable bool is_ending_ = false;
  int64_t num_expected_ = 0;
  int64_t num_streams_ = 0;
  mutable std::vector<std::jthread> threads_;
};

/// The file itself, or with that range expected where it is remote and `most_bytes` is not 0.
std::shared_ptr<const InputFile> with_read_ahead(std::shared_ptr<const InputFile> file, ByteRange range,
                                                 int64_t most_bytes = kReadAheadBytes);

}  // namespace darkroom
