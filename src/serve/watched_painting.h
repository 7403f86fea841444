#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/serve/http_server.h"
#include "picture_orders.h"

namespace darkroom {

enum class PaintingState { kQueued, kPainting, kDone, kFailed, kCancelled };

/// "queued", "painting", "done", "failed", "cancelled".
const char* painting_state_name(PaintingState state);

/// A picture as base64 of a PNG, encoded when somebody first asks. Thread safety: any thread.
class EncodedImage {
 public:
  explicit EncodedImage(Image image) : image_(std::move(image)) {}
  const std::string& base64_png();

 private:
  std::once_flag once_;
  Image image_;  // Until it is encoded.
  std::string base64_png_;
};

/// How far an order of pictures is, for any number of readers that come and go. It holds the present state and no history: each reader is
/// shown what has changed since it looked last, so a slow one misses what was overtaken, and never the end. Thread safety: any thread.
class WatchedPainting {
 public:
  struct View {
    PaintingState state = PaintingState::kQueued;
    double share = 0.0;                                     ///< Done, from 0 to 1.
    Status failure = {};                                    ///< Of kFailed.
    std::shared_ptr<const std::vector<Image>> images = {};  ///< Of kDone. Shared with readers, which may be slow.
    Clock::Instant ended = {};                              ///< Once it has ended.
    bool has_ended() const { return state >= PaintingState::kDone; }
  };
  /// What a reader has not seen yet.
  struct News {
    enum class Kind { kProgress, kPreview, kEnd };
    Kind kind = Kind::kProgress;
    View view = {};
    size_t picture = 0;                          ///< Of kPreview.
    std::shared_ptr<EncodedImage> preview = {};  ///< Shared by its readers.
  };

  /// What is asked for beside the pictures.
  struct Wish {
    Clock::Instant begun = {};  ///< When it was asked for.
    Clock::Instant deadline = Clock::Instant::max();
    std::stop_token given_up = {};
  };

  /// Has the pictures of a request painted. Room for them is held until let_go() or its end without them, room for previews
  /// and a job's start picture while it is painted. Errors: as PictureOrders::hold_bytes() and submit().
  static Result<std::shared_ptr<WatchedPainting>> begin(PictureOrders& orders, ImageRequest request, const Wish& wish);

  View view() const;
  /// Clock::Instant::max() before its end.
  Clock::Instant ended_at() const;
  /// Ends it as cancelled. False: it has ended already.
  bool cancel(Clock::Instant now);
  /// Lets the pictures go, and the room that was held for them. Whoever has got them from view() keeps them.
  void let_go();

 private:
  friend class PaintingReader;
  struct Preview {
    uint64_t version = 0;
    std::shared_ptr<EncodedImage> image;
  };

  explicit WatchedPainting(size_t num_pictures) : previews_(num_pictures) {}
  void advance(double share);
  void show(size_t picture, Image image);
  bool end(PaintingState state, Status failure, std::vector<Image> images, Clock::Instant now);
  void wake_readers(std::unique_lock<std::mutex> lock);

  mutable std::mutex mutex_;
  View view_;
  uint64_t version_ = 1;  // Of view_ and of previews: grows with every change.
  uint64_t view_version_ = 1;
  std::vector<Preview> previews_;
  std::shared_ptr<const void> pictures_room_;
  std::shared_ptr<const void> work_room_;
  std::map<const void*, std::function<void()>> waiting_;  // Readers that are to be woken.
};

/// One reader of a painting. Thread safety: none, but any thread may end it.
class PaintingReader {
 public:
  explicit PaintingReader(std::shared_ptr<WatchedPainting> painting);
  ~PaintingReader();
  PaintingReader(const PaintingReader&) = delete;
  PaintingReader& operator=(const PaintingReader&) = delete;

  /// What has changed: first of all how far the painting is, last of all its end. Nothing: `wake` is called at the next change, once.
  std::optional<WatchedPainting::News> next(std::function<void()> wake);

 private:
  std::optional<WatchedPainting::News> unseen_preview();

  const std::shared_ptr<WatchedPainting> painting_;  // Shared with whoever else watches.
  uint64_t seen_view_ = 0;
  std::vector<uint64_t> seen_previews_;
  bool was_preview_ = true;  // What was shown last; previews and progress take turns.
};

/// A painting's news as a reply, each in the words of a protocol.
class PaintingEvents final : public ReplyStream {
 public:
  /// The text of an event; empty: this protocol has none for it.
  using Write = std::function<std::string(const WatchedPainting::News& news)>;

  PaintingEvents(std::shared_ptr<WatchedPainting> painting, Write write) : reader_(std::move(painting)), write_(std::move(write)) {}
  std::optional<Piece> next(std::function<void()> wake) override;

 private:
  PaintingReader reader_;
  const Write write_;
};

// What a preview takes in memory at most, as an event and while it waits for a reader.
constexpr int64_t kPreviewPixels = int64_t{StepEngine::kMaxPreviewSide} * StepEngine::kMaxPreviewSide;
constexpr int64_t kPreviewEventBytes = 5 * kPreviewPixels;  ///< Its PNG in base64 takes up to 4 a pixel, and a little.
constexpr int64_t kPreviewBytes = kPreviewEventBytes + 3 * kPreviewPixels;

/// An event of a text/event-stream. REQUIRES: `data` has no line breaks.
std::string event_text(std::string_view name, std::string_view data);

/// The reply that streams a painting's events. `room`: of PictureOrders::hold_stream.
StreamedReply event_stream(std::shared_ptr<WatchedPainting> painting, PaintingEvents::Write write, std::shared_ptr<const void> room);

}  // namespace darkroom
