#include "slice_link.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "darkroom/core/hmac_sha256.h"
#include "darkroom/core/log.h"
#include "darkroom/core/metrics.h"
#include "darkroom/web/http_exchange.h"
#include "handshake.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;

constexpr double kSecondsOfMicrosecond = 1e-6;

/// A field of an encoder's welcome that is a whole number of at least 1.
Result<int64_t> positive_field(const nlohmann::json& words, const char* name, const SliceNames& names) {
  constexpr int64_t kMost = int64_t{1} << 20;
  if (!words.contains(name) || !words[name].is_number_integer() || words[name].get<int64_t>() < 1 || words[name].get<int64_t>() > kMost) {
    return Status::corrupt_data(fmt::format("the welcome of {} lacks a number:", names.a_peer()), name);
  }
  return words[name].get<int64_t>();
}

Result<EncoderWelcome> parse_welcome(const nlohmann::json& words, const SliceNames& names) {
  EncoderWelcome welcome;
  welcome.place = words.value("place", nlohmann::json());
  const nlohmann::json processor = words.value("processor", nlohmann::json());
  welcome.processor = processor.is_string() ? processor.get<std::string>() : "";
  DARKROOM_ASSIGN_OR_RETURN(welcome.workers, positive_field(words, "workers", names));
  DARKROOM_ASSIGN_OR_RETURN(welcome.in_flight, positive_field(words, "in_flight", names));
  DARKROOM_ASSIGN_OR_RETURN(welcome.max_rows, positive_field(words, "max_rows", names));
  DARKROOM_ASSIGN_OR_RETURN(welcome.rows_together, positive_field(words, "rows_together", names));
  return welcome;
}

/// An exception (no memory, a tensor's) is a failure of the connection.
Status no_exception(const std::function<Status()>& work) {
  try {
    return work();
  } catch (const std::exception& failure) {
    return Status::internal("asking for slices failed:", failure.what());
  }
}

}  // namespace

/// One connection. Thread safety: none.
class SliceLink::Talk {
 public:
  Talk(SliceLink& link, const std::stop_token& stop) : link_(link), options_(link.options_), desk_(link.desk_), stop_(stop) {}
  ~Talk() {
    if (socket_ >= 0) {
      ::close(socket_);
    }
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  /// To where the encoder has let this trainer in. Errors: kUnavailable, kCorruptData; the encoder's refusal.
  Status open() {
    DARKROOM_RETURN_IF_ERROR(connect_to_any());
    return shake_hands();
  }

  /// Asks and takes until the connection ends, which is never well, or `stop`.
  Status exchange() {
    const Status ended = exchange_frames();
    return stop_.stop_requested() ? Status() : ended;
  }

  const EncoderWelcome& welcome() const { return welcome_; }
  const std::vector<AskedSlice>& owed() const { return owed_; }

 private:
  const SliceNames& names() const { return options_.names; }

  Status said_nothing() const {
    const std::string flag = names().timeout_flag.empty() ? "" : fmt::format(" ({})", names().timeout_flag);
    return Status::unavailable(fmt::format("{} said nothing for so many seconds{}:", names().a_peer(), flag),
                               std::chrono::duration<double>(options_.timeout).count());
  }

  /// Asked for anew at each attempt: a cluster gives a name to another machine. A stop ends it. Errors: kUnavailable, kCancelled.
  Result<std::vector<IpAddress>> find_addresses() {
    if (const auto ip = IpAddress::parse(link_.address_.host)) {
      return std::vector<IpAddress>{*ip};
    }
    std::mutex mutex;
    std::condition_variable_any answered;
    std::optional<DnsAnswer> answer;
    MetricsRegistry metrics;
    const auto resolver = start_resolver(options_.resolver, system_clock(), metrics);  // Ends before what it uses.
    if (resolver.status().code() == StatusCode::kResourceExhausted) {                  // No thread now; no refusal of the machine's.
      return Status::unavailable(resolver.status().message());
    }
    DARKROOM_RETURN_IF_ERROR(resolver.status());
    (*resolver)->resolve(link_.address_.host, [&](const DnsAnswer& come) {
      const std::lock_guard lock(mutex);
      answer = come;
      answered.notify_all();
    });
    std::unique_lock lock(mutex);
    const bool has_come = answered.wait_for(lock, stop_, options_.timeout, [&] { return answer.has_value(); });
    if (stop_.stop_requested()) {
      return Status::cancelled("stopped");
    }
    if (!has_come || answer->kind != DnsAnswer::Kind::kOk) {
      return Status::unavailable(fmt::format("the name of the machine of {} is not known:", names().a_peer()),
                                 dns_answer_name(has_come ? answer->kind : DnsAnswer::Kind::kTimeout));
    }
    return answer->addresses;
  }

  Status connect_to_any() {
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<IpAddress> addresses, find_addresses());
    uint16_t port = 0;
    const std::string& digits = link_.address_.port;
    std::from_chars(digits.data(), digits.data() + digits.size(), port);
    Status last;
    for (const IpAddress& ip : addresses) {
      last = connect_to({.ip = ip, .port = port});
      if (last.is_ok() || stop_.stop_requested()) {
        break;
      }
    }
    return last;
  }

  Status connect_to(const SocketAddress& address) {
    if (socket_ >= 0) {
      ::close(socket_);
    }
    const sockaddr_storage place = address.to_sockaddr();
    socket_ = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    int error = socket_ < 0 ? errno : 0;
    if (socket_ >= 0) {
      setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
      const socklen_t size = place.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      error = connect(socket_, reinterpret_cast<const sockaddr*>(&place), size) == 0 ? 0 : errno;
    }
    if (error == EINPROGRESS) {
      DARKROOM_RETURN_IF_ERROR(wait_for(POLLOUT, Clock::now() + options_.timeout, /*heeds_desk=*/false).status());
      socklen_t size = sizeof error;
      getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    return error == 0 ? Status()
                      : Status::unavailable(fmt::format("{} cannot be reached:", names().a_peer()), std::generic_category().message(error));
  }

  /// Waits for the socket: what of `events` there is; nothing where the desk has something new. Errors: kUnavailable (time is up),
  /// kCancelled.
  Result<int> wait_for(int events, Clock::time_point deadline, bool heeds_desk) {
    for (;;) {
      if (stop_.stop_requested()) {
        return Status::cancelled("stopped");
      }
      const bool is_endless = deadline == Clock::time_point::max();
      const int64_t left = is_endless ? -1 : std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      if (!is_endless && left <= 0) {
        return said_nothing();
      }
      pollfd watched[2] = {{socket_, static_cast<short>(events), 0}, {link_.wake_.descriptor(), POLLIN, 0}};
      if (poll(watched, 2, static_cast<int>(left)) < 0 && errno != EINTR) {
        return Status::unavailable(fmt::format("waiting for {} failed:", names().a_peer()), std::generic_category().message(errno));
      }
      eventfd_t count = 0;
      const bool is_woken = (watched[1].revents & POLLIN) != 0 && eventfd_read(link_.wake_.descriptor(), &count) == 0;
      if (watched[0].revents != 0) {
        return static_cast<int>(watched[0].revents);
      }
      if (is_woken && heeds_desk) {
        return 0;
      }
    }
  }

  Result<Frame> await_words(Clock::time_point deadline) {
    for (;;) {
      DARKROOM_ASSIGN_OR_RETURN(const auto took, reader_.read(socket_));
      if (took == FrameReader::Took::kFrame) {
        return reader_.take();
      }
      if (took == FrameReader::Took::kEnded) {
        return Status::unavailable(fmt::format("{} closed the connection before it let this {} in", names().a_peer(), names().asker));
      }
      DARKROOM_RETURN_IF_ERROR(wait_for(POLLIN, deadline, /*heeds_desk=*/false).status());
    }
  }

  Status shake_hands() {
    const auto deadline = Clock::now() + options_.timeout;
    DARKROOM_ASSIGN_OR_RETURN(Frame frame, await_words(deadline));
    DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json challenge, parse_words(frame));
    const nlohmann::json protocol = challenge.value("protocol", nlohmann::json());
    if (frame.type == FrameType::kChallenge && protocol != kSliceProtocol) {
      return Status::failed_precondition(
          fmt::format("{} and {} are other versions; install the same one on both (protocol there, here):", names().peer, names().asker),
          protocol.dump(), kSliceProtocol);
    }
    if (frame.type != FrameType::kChallenge || !challenge.contains("nonce") || !challenge["nonce"].is_string()) {
      return Status::corrupt_data(fmt::format("what listens there is no {}", names().peer));
    }
    const std::string nonce = draw_nonce();
    const nlohmann::json hello = {{"nonce", nonce},
                                  {"proof", proof_of(options_.token, "trainer", challenge["nonce"].get_ref<const std::string&>())},
                                  {"facts", options_.facts}};
    writer_.add(encode_frame(FrameType::kHello, hello.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
    DARKROOM_RETURN_IF_ERROR(send_all(deadline));
    DARKROOM_ASSIGN_OR_RETURN(frame, await_words(deadline));
    return take_welcome(frame, nonce);
  }

  Status take_welcome(const Frame& frame, const std::string& nonce) {
    if (frame.type == FrameType::kRefusal) {
      return parse_failure(frame.body);
    }
    DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json words, parse_words(frame));
    const nlohmann::json proof = words.value("proof", nlohmann::json());
    if (frame.type != FrameType::kWelcome || !proof.is_string()) {
      return Status::corrupt_data(fmt::format("{} sent what is not its turn to send (type of the frame):", names().a_peer()),
                                  static_cast<int>(frame.type));
    }
    if (!equal_in_constant_time(proof.get_ref<const std::string&>(), proof_of(options_.token, "encoder", nonce))) {
      return Status::failed_precondition("what listens there does not know DARKROOM_ENCODER_TOKEN");
    }
    DARKROOM_ASSIGN_OR_RETURN(welcome_, parse_welcome(words, names()));
    reader_.set_max_body_bytes(options_.max_slice_bytes + static_cast<int64_t>(kAnswerNumbers * kNumberBytes));
    return {};
  }

  Status send_all(Clock::time_point deadline) {
    for (;;) {
      DARKROOM_RETURN_IF_ERROR(writer_.write(socket_).status());
      if (writer_.is_empty()) {
        return {};
      }
      DARKROOM_RETURN_IF_ERROR(wait_for(POLLOUT, deadline, /*heeds_desk=*/false).status());
    }
  }

  /// More than its workers and one in waiting would only be taken from other encoders.
  size_t most_owed() const { return static_cast<size_t>(std::min(welcome_.in_flight, welcome_.workers + 1)); }

  Status ask_for_more() {
    owed_.reserve(most_owed());  // Nothing may fail between the desk and this list: who leaves gives back what stands there.
    while (owed_.size() < most_owed()) {
      std::optional<AskedSlice> slice = desk_.next(&link_);
      if (!slice) {
        return {};
      }
      last_word_ = owed_.empty() ? Clock::now() : last_word_;
      const AskedSlice& asked = owed_.emplace_back(*std::move(slice));
      std::string body;
      append_number(body, asked.number);
      for (const int64_t row : asked.rows) {
        append_number(body, static_cast<uint64_t>(row));
      }
      writer_.add(encode_frame(FrameType::kRequest, body));
      DARKROOM_RETURN_IF_ERROR(send_all(Clock::now() + options_.timeout));
    }
    return {};
  }

  Status exchange_frames() {
    while (!stop_.stop_requested()) {
      DARKROOM_RETURN_IF_ERROR(ask_for_more());
      const auto deadline = owed_.empty() ? Clock::time_point::max() : last_word_ + options_.timeout;
      DARKROOM_ASSIGN_OR_RETURN(const int events, wait_for(POLLIN, deadline, /*heeds_desk=*/true));
      if (events == 0) {
        continue;
      }
      const int64_t before = reader_.num_bytes();
      DARKROOM_ASSIGN_OR_RETURN(const auto took, reader_.read(socket_));
      last_word_ = reader_.num_bytes() > before ? Clock::now() : last_word_;
      if (took == FrameReader::Took::kEnded) {
        return Status::unavailable(fmt::format("{} closed the connection", names().a_peer()));
      }
      if (took == FrameReader::Took::kFrame) {
        DARKROOM_RETURN_IF_ERROR(take_answer(reader_.take()));
      }
    }
    return {};
  }

  Status take_answer(Frame frame) {
    constexpr size_t kPrefix = kAnswerNumbers * kNumberBytes;
    const bool is_answer = (frame.type == FrameType::kSlice || frame.type == FrameType::kFailure) && frame.body.size() >= kPrefix;
    const uint64_t number = is_answer ? number_at(frame.body, 0) : 0;
    const auto found = std::ranges::find(owed_, number, &AskedSlice::number);
    if (frame.type == FrameType::kRefusal) {
      return parse_failure(frame.body);
    }
    if (frame.type == FrameType::kWorking) {
      return {};
    }
    if (!is_answer || found == owed_.end()) {
      return Status::corrupt_data(fmt::format("{} sent what nobody asked for (type of the frame):", names().a_peer()),
                                  static_cast<int>(frame.type));
    }
    count(frame.body);
    const AskedSlice slice = *found;
    frame.body.erase(0, kPrefix);
    const auto num_bytes = static_cast<int64_t>(frame.body.size());
    if (frame.type == FrameType::kFailure) {
      owed_.erase(found);
      const Status failure = parse_failure(frame.body);
      log_warning("{} {} cannot make a slice: {}", names().peer, link_.address_.to_string(), failure.message());
      desk_.fail(&link_, slice, failure);
      return {};
    }
    auto content = link_.read_(slice.rows, std::move(frame.body));
    if (!content.is_ok()) {
      return content.status();  // What is owed goes to others.
    }
    owed_.erase(found);
    desk_.deliver(number, *std::move(content), num_bytes);
    return {};
  }

  /// The encoder's own counts, from its first answer on: before that it may have waited for this trainer to begin.
  void count(std::string_view body) {
    constexpr uint64_t kMost = uint64_t{1} << 53;
    const auto at = [&](size_t i) { return static_cast<double>(std::min(kMost, number_at(body, i * kNumberBytes))); };
    const EncoderCounts now{.seconds = at(1) * kSecondsOfMicrosecond,
                            .busy_seconds = at(2) * kSecondsOfMicrosecond / static_cast<double>(welcome_.workers),
                            .rows = static_cast<int64_t>(at(3))};
    first_counts_ = first_counts_.value_or(now);
    desk_.note_counts(this, {.seconds = now.seconds - first_counts_->seconds,
                             .busy_seconds = now.busy_seconds - first_counts_->busy_seconds,
                             .rows = now.rows - first_counts_->rows});
  }

  SliceLink& link_;
  const SliceFleetOptions& options_;
  SliceDesk& desk_;
  const std::stop_token stop_;
  int socket_ = -1;
  FrameReader reader_{kMaxWordsBytes};
  FrameWriter writer_;
  EncoderWelcome welcome_;
  std::vector<AskedSlice> owed_;
  std::optional<EncoderCounts> first_counts_;
  Clock::time_point last_word_{};
};

WakeEvent::WakeEvent(SliceDesk& desk) : desk_(desk), descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) {
    throw std::system_error(errno, std::generic_category());
  }
  try {
    desk_.add_wake(descriptor_);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

WakeEvent::~WakeEvent() {
  desk_.remove_wake(descriptor_);
  ::close(descriptor_);
}

SliceLink::SliceLink(EncoderAddress address, const SliceFleetOptions& options, const SliceReader& read, SliceDesk& desk)
    : address_(std::move(address)), options_(options), read_(read), desk_(desk), wake_(desk) {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    const std::stop_callback wake(stop, [this] { eventfd_write(wake_.descriptor(), 1); });
    run(stop);
  });
}

SliceLink::~SliceLink() {
  thread_.request_stop();
  thread_.join();
}

// An encoder that is not there yet is no news; one that turns this trainer away is, once.
void SliceLink::note_unreachable(const Status& failure) {
  const Status named = failure.with_context(fmt::format("{} {}", options_.names.peer, address_.to_string()));
  if (failure.code() == StatusCode::kUnavailable) {
    desk_.note_failure(named);
    return;
  }
  desk_.note_refusal(named);
  if (!std::exchange(was_refused_, true)) {
    log_warning("{}", named.message());
  }
}

void SliceLink::run(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any paused;
  while (!stop.stop_requested()) {
    Talk talk(*this, stop);
    Status opened = no_exception([&] { return talk.open(); });
    opened = opened.is_ok() ? desk_.join(address_.to_string(), talk.welcome()) : opened;
    if (opened.is_ok()) {
      is_joined_ = true;
      was_refused_ = false;
      const Status ended = no_exception([&] { return talk.exchange(); });
      is_joined_ = false;
      if (!ended.is_ok()) {
        log_warning("{} {} is lost, and its slices are asked of others: {}", options_.names.peer, address_.to_string(), ended.message());
      }
      desk_.leave(&talk, talk.owed(), ended);
    } else if (!stop.stop_requested()) {
      note_unreachable(opened);
    }
    std::unique_lock lock(mutex);
    paused.wait_for(lock, stop, options_.look, [] { return false; });
  }
}

}  // namespace darkroom
