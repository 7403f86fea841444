#include "darkroom/files/read_ahead.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

constexpr int64_t kSmallGapBytes = int64_t{256} << 10;  // Read in vain rather than asked for apart.

int64_t end_of(const ByteRange& range) { return range.offset + range.num_bytes; }

/// Neighbours that are one request, or a range alone.
struct Neighbours {
  ByteRange bytes;
  int64_t wanted_bytes = 0;  // Without the gaps.
  size_t first = 0;          // Of the ranges.
};

/// In the order of the first range of each.
std::vector<Neighbours> join_neighbours(std::span<const ByteRange> ranges, int64_t file_bytes, int64_t piece_bytes) {
  std::vector<Neighbours> sorted;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ByteRange& range = ranges[i];
    if (range.offset >= 0 && range.offset < file_bytes && range.num_bytes > 0) {  // A footer may claim anything.
      const int64_t num_bytes = std::min(range.num_bytes, file_bytes - range.offset);
      sorted.push_back({.bytes = {.offset = range.offset, .num_bytes = num_bytes}, .wanted_bytes = num_bytes, .first = i});
    }
  }
  std::ranges::stable_sort(sorted, {}, [](const Neighbours& range) { return range.bytes.offset; });
  std::vector<Neighbours> joined;
  for (const Neighbours& range : sorted) {
    const int64_t gap = joined.empty() ? -1 : range.bytes.offset - end_of(joined.back().bytes);
    if (gap < 0 || gap >= kSmallGapBytes || end_of(range.bytes) - joined.back().bytes.offset > piece_bytes) {
      joined.push_back(range);
      continue;
    }
    Neighbours& last = joined.back();
    last.bytes.num_bytes = end_of(range.bytes) - last.bytes.offset;
    last.wanted_bytes += range.wanted_bytes;
    last.first = std::min(last.first, range.first);
  }
  std::ranges::sort(joined, {}, &Neighbours::first);
  return joined;
}

/// Mostly the first one: a file may have many thousands. REQUIRES: it is there.
template <typename Planned>
void take_out(Planned& planned, const typename Planned::value_type& piece) {
  if (planned.front() == piece) {
    planned.pop_front();
  } else {
    std::erase(planned, piece);
  }
}

}  // namespace

ReadAhead::ReadAhead(std::shared_ptr<const InputFile> file, int64_t most_bytes)
    : file_(std::move(file)), most_bytes_(most_bytes), piece_bytes_(std::min(kReadAheadPieceBytes, most_bytes)) {
  DARKROOM_CHECK(most_bytes > 0, "nothing can be read ahead within (bytes):", most_bytes);
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard hold(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  threads_.clear();  // Before what they use.
}

ReadAhead::Pieces::iterator ReadAhead::find(int64_t offset) const {
  auto after = pieces_.upper_bound(offset);
  if (after == pieces_.begin()) {
    return pieces_.end();
  }
  const auto piece = std::prev(after);
  return offset < end_of(piece->second->bytes) ? piece : pieces_.end();
}

/// REQUIRES of all that follow: mutex_ is held.
ReadAhead::Pieces::iterator ReadAhead::drop(Pieces::iterator piece) const {
  const PiecePointer dropped = piece->second;
  if (dropped->state == PieceState::kPlanned) {
    planned_bytes_ -= dropped->bytes.num_bytes;
    take_out(planned_, dropped);
  } else if (dropped->state == PieceState::kThere) {
    held_bytes_ -= dropped->bytes.num_bytes;
    changed_.notify_all();
  }
  dropped->left_bytes = 0;  // Who asks for it lets go of it.
  return pieces_.erase(piece);
}

/// Pieces of its stream before `now`: the reader does not go back.
void ReadAhead::drop_passed(const Piece& now) const {
  auto piece = pieces_.find(now.bytes.offset);
  while (piece != pieces_.begin() && std::prev(piece)->second->stream == now.stream) {
    piece = drop(std::prev(piece));
  }
}

/// Null: none may be asked for now.
ReadAhead::PiecePointer ReadAhead::next_planned() const {
  if (planned_.empty() || (held_bytes_ > 0 && held_bytes_ + planned_.front()->bytes.num_bytes > most_bytes_)) {
    return nullptr;
  }
  return planned_.front();
}

void ReadAhead::ask(std::unique_lock<std::mutex>& lock, const PiecePointer& piece) const {
  take_out(planned_, piece);
  planned_bytes_ -= piece->bytes.num_bytes;
  held_bytes_ += piece->bytes.num_bytes;
  piece->state = PieceState::kAsked;
  lock.unlock();
  Status status;
  std::exception_ptr thrown;
  std::vector<std::byte> data;
  try {
    data.resize(static_cast<size_t>(piece->bytes.num_bytes));
    const std::span<std::byte> out = data;
    status = file_->read_ranges(std::span(&piece->bytes, 1), std::span(&out, 1));
  } catch (...) {
    thrown = std::current_exception();
  }
  lock.lock();
  piece->state = PieceState::kThere;
  if (piece->left_bytes == 0) {  // Dropped meanwhile.
    held_bytes_ -= piece->bytes.num_bytes;
  } else {
    piece->data = std::move(data);
    piece->status = std::move(status);
    piece->thrown = std::move(thrown);
  }
  changed_.notify_all();
}

void ReadAhead::work() const {
  std::unique_lock lock(mutex_);
  while (true) {
    PiecePointer piece;
    changed_.wait(lock, [&] { return is_ending_ || (piece = next_planned()) != nullptr; });
    if (is_ending_) {
      return;
    }
    ask(lock, piece);
  }
}

void ReadAhead::begin_threads() const {
  const auto most = static_cast<size_t>(most_bytes_ / piece_bytes_);
  try {
    while (threads_.size() < std::min(most, planned_.size())) {
      threads_.emplace_back([this] { work(); });
    }
  } catch (const std::system_error&) {  // No more threads: those that are there do it, or whoever reads.
  }
}

void ReadAhead::add_stream(ByteRange bytes, int64_t wanted_bytes, int64_t num_steps, std::vector<std::pair<int64_t, PiecePointer>>& found) {
  ++num_streams_;
  for (int64_t at = 0; at < bytes.num_bytes; at += piece_bytes_) {
    const ByteRange part{.offset = bytes.offset + at, .num_bytes = std::min(piece_bytes_, bytes.num_bytes - at)};
    const auto after = pieces_.lower_bound(part.offset);
    if (find(part.offset) != pieces_.end() || (after != pieces_.end() && after->first < end_of(part))) {
      continue;
    }
    auto piece = std::make_shared<Piece>(Piece{.bytes = part,
                                               .number = num_expected_,
                                               .stream = num_streams_,
                                               .left_bytes = bytes.num_bytes <= piece_bytes_ ? wanted_bytes : part.num_bytes});
    pieces_.emplace(part.offset, piece);
    const double share = static_cast<double>(at) / static_cast<double>(bytes.num_bytes);
    found.emplace_back(static_cast<int64_t>(share * static_cast<double>(num_steps)), std::move(piece));
  }
}

int64_t ReadAhead::expect(std::span<const ByteRange> ranges, int64_t num_steps) {
  DARKROOM_CHECK(num_steps > 0, "nothing is read in no steps:", num_steps);
  const std::lock_guard hold(mutex_);
  ++num_expected_;
  std::vector<std::pair<int64_t, PiecePointer>> found;
  for (const Neighbours& next : join_neighbours(ranges, size_bytes(), piece_bytes_)) {
    add_stream(next.bytes, next.wanted_bytes, num_steps, found);
  }
  std::ranges::stable_sort(found, {}, &std::pair<int64_t, PiecePointer>::first);
  for (auto& [step, piece] : found) {
    planned_bytes_ += piece->bytes.num_bytes;
    planned_.push_back(std::move(piece));
  }
  begin_threads();
  changed_.notify_all();
  return num_expected_;
}

void ReadAhead::forget(int64_t number) {
  const std::lock_guard hold(mutex_);
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    piece = piece->second->number == number ? drop(piece) : std::next(piece);
  }
}

int64_t ReadAhead::num_bytes_planned() const {
  const std::lock_guard hold(mutex_);
  return planned_bytes_;
}

Result<size_t> ReadAhead::read_at(int64_t offset, std::span<std::byte> out) const {
  const int64_t end = offset + std::clamp<int64_t>(size_bytes() - offset, 0, static_cast<int64_t>(out.size()));
  std::unique_lock lock(mutex_);
  for (int64_t at = offset; at < end;) {
    const std::span<std::byte> rest = out.subspan(static_cast<size_t>(at - offset), static_cast<size_t>(end - at));
    const auto found = find(at);
    if (found == pieces_.end()) {
      const auto after = pieces_.upper_bound(at);
      const int64_t until = after == pieces_.end() ? end : std::min(end, after->first);
      lock.unlock();
      DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file_->read_at(at, rest.first(static_cast<size_t>(until - at))));
      lock.lock();
      at += static_cast<int64_t>(num_read);
      if (at < until) {
        return static_cast<size_t>(at - offset);
      }
      continue;
    }
    const PiecePointer piece = found->second;
    drop_passed(*piece);
    if (piece->state == PieceState::kPlanned) {
      ask(lock, piece);
    }
    changed_.wait(lock, [&] { return piece->state == PieceState::kThere; });
    if (piece->thrown != nullptr || !piece->status.is_ok()) {
      drop(pieces_.find(piece->bytes.offset));
      if (piece->thrown != nullptr) {
        std::rethrow_exception(piece->thrown);
      }
      return piece->status;
    }
    const int64_t begin = at - piece->bytes.offset;
    const int64_t count = std::min(end - at, piece->bytes.num_bytes - begin);
    std::copy_n(piece->data.begin() + begin, count, rest.begin());
    at += count;
    piece->left_bytes -= count;
    if (piece->left_bytes <= 0) {
      drop(pieces_.find(piece->bytes.offset));
    }
  }
  return static_cast<size_t>(std::max<int64_t>(end - offset, 0));
}

std::shared_ptr<const InputFile> with_read_ahead(std::shared_ptr<const InputFile> file, ByteRange range, int64_t most_bytes) {
  if (!file->is_remote() || most_bytes <= 0 || range.num_bytes <= 0) {
    return file;
  }
  auto ahead = std::make_shared<ReadAhead>(std::move(file), most_bytes);
  ahead->expect(std::span(&range, 1));
  return ahead;
}

}  // namespace darkroom
