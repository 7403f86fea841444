#include "watched_painting.h"

#include <fmt/format.h>

#include "darkroom/core/base64.h"
#include "darkroom/image/png.h"

namespace darkroom {

const char* painting_state_name(PaintingState state) {
  switch (state) {
    case PaintingState::kQueued:
      return "queued";
    case PaintingState::kPainting:
      return "painting";
    case PaintingState::kDone:
      return "done";
    case PaintingState::kFailed:
      return "failed";
    case PaintingState::kCancelled:
      break;
  }
  return "cancelled";
}

const std::string& EncodedImage::base64_png() {
  std::call_once(once_, [this] {
    base64_png_ = encode_base64(encode_png(image_));
    image_ = {};
  });
  return base64_png_;
}

Result<std::shared_ptr<WatchedPainting>> WatchedPainting::begin(PictureOrders& orders, ImageRequest request, const Wish& wish) {
  const auto num_pictures = static_cast<int64_t>(request.pictures.size());
  const bool has_previews = request.pictures.front().preview_every > 0;
  const std::shared_ptr<WatchedPainting> painting(new WatchedPainting(request.pictures.size()));
  const int64_t num_bytes = request.bytes_held();
  const int64_t bytes_of_work = request.bytes_while_painted() + (has_previews ? num_pictures * kPreviewBytes : 0);
  PaintOrder order{
      .pictures = std::move(request.pictures), .model = std::move(request.model), .deadline = wish.deadline, .given_up = wish.given_up};
  DARKROOM_RETURN_IF_ERROR(orders.would_take(order));
  DARKROOM_ASSIGN_OR_RETURN(auto room, orders.hold_two(num_bytes, bytes_of_work));
  painting->pictures_room_ = std::move(room.first);
  painting->work_room_ = std::move(room.second);
  order.progress = [painting](double share) { painting->advance(share); };
  order.show = [painting](size_t picture, Image image) { painting->show(picture, std::move(image)); };
  const Status taken = orders.submit(std::move(order), wish.begun, [painting, &orders](Result<PaintedPictures> result) {
    const Clock::Instant now = orders.clock().now();
    if (result.is_ok()) {
      orders.log_painted(*result);
      painting->end(PaintingState::kDone, {}, std::move(result->images), now);
    } else {
      const bool is_cancelled = result.status().code() == StatusCode::kCancelled;
      painting->end(is_cancelled ? PaintingState::kCancelled : PaintingState::kFailed, result.status(), {}, now);
    }
  });
  DARKROOM_RETURN_IF_ERROR(taken);
  return painting;
}

WatchedPainting::View WatchedPainting::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

Clock::Instant WatchedPainting::ended_at() const {
  const std::lock_guard lock(mutex_);
  return view_.has_ended() ? view_.ended : Clock::Instant::max();
}

bool WatchedPainting::cancel(Clock::Instant now) { return end(PaintingState::kCancelled, {}, {}, now); }

void WatchedPainting::let_go() {
  const std::lock_guard lock(mutex_);
  view_.images.reset();
  pictures_room_.reset();
}

void WatchedPainting::advance(double share) {
  std::unique_lock lock(mutex_);
  const bool is_news = view_.state == PaintingState::kQueued || share > view_.share;
  if (view_.has_ended() || !is_news) {
    return;
  }
  view_.state = PaintingState::kPainting;
  view_.share = share;
  view_version_ = ++version_;
  wake_readers(std::move(lock));
}

void WatchedPainting::show(size_t picture, Image image) {
  std::unique_lock lock(mutex_);
  if (!view_.has_ended()) {
    previews_[picture] = {.version = ++version_, .image = std::make_shared<EncodedImage>(std::move(image))};
    wake_readers(std::move(lock));
  }
}

bool WatchedPainting::end(PaintingState state, Status failure, std::vector<Image> images, Clock::Instant now) {
  std::unique_lock lock(mutex_);
  if (view_.has_ended()) {
    return false;
  }
  view_.state = state;
  view_.failure = std::move(failure);
  view_.ended = now;
  if (state == PaintingState::kDone) {
    view_.share = 1.0;
    view_.images = std::make_shared<const std::vector<Image>>(std::move(images));
  } else {
    pictures_room_.reset();
  }
  previews_.assign(previews_.size(), {});
  work_room_.reset();
  view_version_ = ++version_;
  wake_readers(std::move(lock));
  return true;
}

void WatchedPainting::wake_readers(std::unique_lock<std::mutex> lock) {
  const auto woken = std::exchange(waiting_, {});
  lock.unlock();
  for (const auto& [reader, wake] : woken) {
    wake();
  }
}

PaintingReader::PaintingReader(std::shared_ptr<WatchedPainting> painting)
    : painting_(std::move(painting)), seen_previews_(painting_->previews_.size()) {}

PaintingReader::~PaintingReader() {
  const std::lock_guard lock(painting_->mutex_);
  painting_->waiting_.erase(this);
}

// REQUIRES: the painting's lock is held.
std::optional<WatchedPainting::News> PaintingReader::unseen_preview() {
  for (size_t i = 0; i < seen_previews_.size(); ++i) {
    const WatchedPainting::Preview& preview = painting_->previews_[i];
    if (preview.version > seen_previews_[i]) {
      seen_previews_[i] = preview.version;
      return WatchedPainting::News{
          .kind = WatchedPainting::News::Kind::kPreview, .view = painting_->view_, .picture = i, .preview = preview.image};
    }
  }
  return std::nullopt;
}

std::optional<WatchedPainting::News> PaintingReader::next(std::function<void()> wake) {
  using News = WatchedPainting::News;
  const std::lock_guard lock(painting_->mutex_);
  const WatchedPainting::View& view = painting_->view_;
  const bool has_moved = painting_->view_version_ > seen_view_;
  if (view.has_ended() && !has_moved) {
    return News{.kind = News::Kind::kEnd, .view = view};
  }
  if (!has_moved || !was_preview_) {
    if (auto preview = unseen_preview()) {
      was_preview_ = true;
      return preview;
    }
  }
  if (has_moved) {
    was_preview_ = false;
    seen_view_ = painting_->view_version_;
    return News{.kind = News::Kind::kProgress, .view = view};
  }
  painting_->waiting_[this] = std::move(wake);
  return std::nullopt;
}

std::optional<ReplyStream::Piece> PaintingEvents::next(std::function<void()> wake) {
  for (;;) {
    const auto news = reader_.next(wake);
    if (!news.has_value()) {
      return std::nullopt;
    }
    const bool is_last = news->kind == WatchedPainting::News::Kind::kEnd;
    std::string text = write_(*news);
    if (is_last || !text.empty()) {
      return Piece{.bytes = std::move(text), .is_last = is_last};
    }
  }
}

std::string event_text(std::string_view name, std::string_view data) { return fmt::format("event: {}\ndata: {}\n\n", name, data); }

StreamedReply event_stream(std::shared_ptr<WatchedPainting> painting, PaintingEvents::Write write, std::shared_ptr<const void> room) {
  return {.type = "text/event-stream",
          .headers = {{"X-Accel-Buffering", "no"}},  // Proxies that gather replies are to hand this one on piece by piece.
          .stream = std::make_shared<PaintingEvents>(std::move(painting), std::move(write)),
          .idle_bytes = ": still here\n\n",
          .held = std::move(room)};
}

}  // namespace darkroom
