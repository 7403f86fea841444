#include "darkroom/serve/image_inputs.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/base64.h"
#include "darkroom/core/check.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

// "https://..." -> "https"; empty where the text begins with no scheme. Base64 has no colon.
std::string_view scheme_of(std::string_view text) {
  constexpr size_t kLongestScheme = 32;
  const size_t colon = text.substr(0, kLongestScheme).find(':');
  return colon == std::string_view::npos ? std::string_view() : text.substr(0, colon);
}

Result<InputPicture> refuse_text(const std::string& field, std::string_view why, std::string_view shown) {
  return Status::invalid_argument(fmt::format("{} must be a picture in base64, or data:image/...;base64,... of it; {}, got:", field, why),
                                  shown);
}

Status shutting_down() { return Status::unavailable("the server is shutting down and reads no more pictures"); }

}  // namespace

Result<InputPicture> read_picture_text(std::string field, std::string text) {
  constexpr size_t kLongestHeader = 100;
  const std::string_view scheme = scheme_of(text);
  if (text.empty()) {
    return refuse_text(field, "an empty text is none", "\"\"");
  }
  if (scheme.empty()) {
    return InputPicture{.field = std::move(field), .text = std::move(text), .is_base64 = true};
  }
  if (ascii_lower(std::string(scheme)) != "data") {
    return refuse_text(field, "this server opens no URLs", fmt::format("{}:...", ascii_lower(std::string(scheme))));
  }
  const size_t comma = text.find(',');
  const std::string header = ascii_lower(text.substr(0, std::min(comma, kLongestHeader)));
  if (comma == std::string::npos || comma > kLongestHeader || !header.starts_with("data:image/") || !header.ends_with(";base64")) {
    return refuse_text(field, "other data: URLs are refused", header.substr(0, header.find(',')));
  }
  return InputPicture{.field = std::move(field), .text = text.substr(comma + 1), .is_base64 = true};
}

Result<std::string> picture_file(InputPicture picture) {
  if (!picture.is_base64) {
    return std::move(picture.text);
  }
  std::optional<std::string> bytes = decode_base64(picture.text);
  if (!bytes.has_value()) {
    return Status::invalid_argument(fmt::format("{} must be a picture in base64, and is no base64; its length:", picture.field),
                                    picture.text.size());
  }
  return *std::move(bytes);
}

Status PictureIntakeOptions::validate() const {
  if (num_threads < 1 || num_threads > 64) {
    return Status::invalid_argument("threads that read pictures must be 1 to 64, got:", num_threads);
  }
  if (max_waiting < 1 || max_waiting_bytes < 1) {
    return Status::invalid_argument("requests that wait for their pictures to be read need room (requests, bytes):", max_waiting,
                                    max_waiting_bytes);
  }
  if (limits.max_pixels < 1) {
    return Status::invalid_argument("the bound on the pixels of a request's pictures must be at least 1, got:", limits.max_pixels);
  }
  return Status::ok();
}

Result<Image> PictureIntake::Desk::decode(InputPicture picture, int width, int height) {
  const std::string field = picture.field;
  DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, picture_file(std::move(picture)));
  if (stop_.stop_requested()) {
    return shutting_down();
  }
  if (decoder_ == nullptr) {
    auto opened = intake_.open_(stop_);
    if (!opened.is_ok()) {
      log_error("serve: no decoder can be had for a picture of a request: {}", opened.status().message());
      return Status::unavailable("the server has no decoder for the pictures of requests now; its log says why");
    }
    decoder_ = *std::move(opened);
  }
  Image image = Image::filled(width, height, 3);
  const auto decoded =
      decoder_->resize_to(std::as_bytes(std::span(bytes)), {.width = width, .height = height}, intake_.options_.limits, image.pixels);
  if (!decoded.is_ok()) {  // The decoder itself is lost.
    decoder_.reset();
    if (stop_.stop_requested()) {
      return shutting_down();
    }
    log_error("serve: the decoder of requests' pictures is lost: {}", decoded.status().message());
    return Status::unavailable("the server's decoder was lost; its log says why");
  }
  if (!decoded->is_ok()) {
    return Status::invalid_argument(fmt::format("{} is no JPEG, PNG or WebP that can be read within {} pixels (error, detail):", field,
                                                intake_.options_.limits.max_pixels),
                                    (*decoded).error().name(), (*decoded).error().detail);
  }
  return image;
}

PictureIntake::PictureIntake(const PictureIntakeOptions& options, OpenDecoder open, Clock& clock)
    : options_(options), open_(std::move(open)), deadlines_(clock) {
  DARKROOM_CHECK(options_.validate().is_ok(), "options of an intake:", options_.validate().message());
  for (int i = 0; i < options_.num_threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

PictureIntake::~PictureIntake() {
  for (std::jthread& thread : threads_) {
    thread.request_stop();
  }
  threads_.clear();
}

Status PictureIntake::post(size_t num_bytes, std::stop_token gone, Task task, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  const auto bytes = static_cast<int64_t>(num_bytes);
  if (is_stopped_) {
    return shutting_down();
  }
  drop_gone();
  if (waiting_.size() >= static_cast<size_t>(options_.max_waiting) || waiting_bytes_ + bytes > options_.max_waiting_bytes) {
    return Status::resource_exhausted("as many requests with pictures wait to be read as the server takes on; try again later");
  }
  waiting_bytes_ += bytes;
  Waiting asked{.num_bytes = num_bytes, .gone = std::move(gone), .task = std::move(task), .number = num_posted_++};
  if (deadline.late != nullptr) {
    asked.watched = deadlines_.add(deadline.at, [this, number = asked.number, late = std::move(deadline.late)] {
      drop_late(number);
      late();
    });
  }
  waiting_.push_back(std::move(asked));
  changed_.notify_one();
  return Status::ok();
}

// A decoder may hang: those who wait behind it are answered here.
void PictureIntake::stop() {
  std::deque<Waiting> left;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    left.swap(waiting_);
    waiting_bytes_ = 0;
  }
  std::stop_source ended;
  ended.request_stop();
  Desk desk(*this, ended.get_token());
  for (std::jthread& thread : threads_) {
    thread.request_stop();
  }
  for (const Waiting& one : left) {
    handle(one, desk);
  }
}

// REQUIRES: the lock is held.
void PictureIntake::drop_gone() {
  std::erase_if(waiting_, [this](const Waiting& one) {
    const bool is_gone = one.gone.stop_requested();
    if (is_gone && one.watched.has_value()) {
      deadlines_.remove(*one.watched);
    }
    waiting_bytes_ -= is_gone ? static_cast<int64_t>(one.num_bytes) : 0;
    return is_gone;
  });
}

// Where it still waits.
void PictureIntake::drop_late(uint64_t number) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const Waiting& one) {
    waiting_bytes_ -= one.number == number ? static_cast<int64_t>(one.num_bytes) : 0;
    return one.number == number;
  });
}

void PictureIntake::handle(const Waiting& asked, Desk& desk) {
  if (!asked.gone.stop_requested()) {
    try {
      asked.task(desk);
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a request with a picture could not be handled: {}", failure.what());
    }
  }
  if (asked.watched.has_value()) {
    deadlines_.remove(*asked.watched);
  }
}

size_t PictureIntake::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

void PictureIntake::run(const std::stop_token& stop) {
  Desk desk(*this, stop);  // On this thread from its begin to its end: the kernel ends a decoder with the thread that started it.
  for (;;) {
    Waiting next;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !waiting_.empty(); }) || stop.stop_requested()) {
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= static_cast<int64_t>(next.num_bytes);
    }
    handle(next, desk);
  }
}

}  // namespace darkroom
