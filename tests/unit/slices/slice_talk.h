#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "darkroom/slices/slice_fleet.h"
#include "darkroom/slices/slice_server.h"
#include "slices/frames.h"
#include "slices/handshake.h"

namespace darkroom {

inline constexpr std::chrono::milliseconds kFarAway{60'000};  // Longer than any wait here lasts.

inline SliceServerOptions slice_server_options() {
  SliceServerOptions options;
  options.address = *parse_listen_address("127.0.0.1:0");
  options.facts = {{"dataset", "d1"}, {"resolution", 64}};
  options.place = {{"device", "cpu"}};
  options.num_rows = 1000;
  options.word_interval = std::chrono::hours(1);  // A slow machine is no reason to say more than a test expects.
  return options;
}

/// "7,8;" for the rows 7 and 8.
inline Result<std::string> rows_as_text(int /*worker*/, std::span<const int64_t> rows) {
  std::string text;
  for (const int64_t row : rows) {
    text += std::to_string(row) + ",";
  }
  text.back() = ';';
  return text;
}

inline std::unique_ptr<SliceServer> start_server(const SliceServerOptions& options = slice_server_options(),
                                                 SliceMaker make = rows_as_text) {
  auto server = SliceServer::start(options, std::move(make));
  EXPECT_TRUE(server.is_ok()) << server.status().to_string();
  return *std::move(server);
}

struct TextSlice : SliceContent {
  std::string text;
};

inline Result<std::shared_ptr<const SliceContent>> read_text(std::span<const int64_t> rows, std::string bytes) {
  if (bytes != *rows_as_text(0, rows)) {
    return Status::corrupt_data("other rows:", bytes);
  }
  auto slice = std::make_shared<TextSlice>();
  slice->text = std::move(bytes);
  return std::shared_ptr<const SliceContent>(std::move(slice));
}

inline SliceFleetOptions fleet_options(const std::string& encoders) {
  SliceFleetOptions options;
  options.encoders = encoders;
  options.facts = slice_server_options().facts;
  options.timeout = kFarAway;
  options.patience = kFarAway;
  options.look = std::chrono::milliseconds(10);
  return options;
}

inline std::string text_of(const Result<std::shared_ptr<const SliceContent>>& slice) {
  return slice.is_ok() ? static_cast<const TextSlice&>(**slice).text : slice.status().to_string();
}

/// A client that says what a test wants, frame by frame; its waits are long enough for any machine.
class RawTrainer {
 public:
  explicit RawTrainer(const SliceServer& server) {
    const sockaddr_storage place = server.address().to_sockaddr();
    socket_ = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof(sockaddr_in)), 0);
  }
  ~RawTrainer() { close_now(); }
  RawTrainer(const RawTrainer&) = delete;
  RawTrainer& operator=(const RawTrainer&) = delete;

  void close_now() {
    if (socket_ >= 0) {
      ::close(socket_);
    }
    socket_ = -1;
  }
  void send_bytes(const std::string& bytes) const {
    // The server may have closed already: what it answered is what counts.
    [[maybe_unused]] const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void send_frame(FrameType type, const std::string& body) const { send_bytes(encode_frame(type, body)); }

  /// The next frame; one without a body of type 0 where the server has closed.
  Frame receive() {
    for (;;) {
      pollfd watched{socket_, POLLIN, 0};
      if (poll(&watched, 1, static_cast<int>(kFarAway.count())) != 1) {
        ADD_FAILURE() << "the server neither answers nor closes";
        return {.type = FrameType{0}, .body = {}};
      }
      char byte = 0;
      const ssize_t peeked = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (peeked == 0 || (peeked < 0 && errno != EAGAIN)) {
        return {.type = FrameType{0}, .body = {}};
      }
      const auto took = receive_some();
      if (took == FrameReader::Took::kFrame) {
        return reader_.take();
      }
    }
  }
  /// Greets as a trainer with these facts does; returns the answer.
  Frame greet(const nlohmann::json& facts = slice_server_options().facts, const std::string& token = "") {
    const Frame challenge = receive();
    EXPECT_EQ(challenge.type, FrameType::kChallenge);
    const auto words = nlohmann::json::parse(challenge.body);
    EXPECT_EQ(words["protocol"], kSliceProtocol);
    send_frame(FrameType::kHello, hello(words["nonce"].get<std::string>(), facts, token));
    return receive();
  }
  bool is_let_in() {
    const Frame challenge = receive();
    if (challenge.type != FrameType::kChallenge) {
      return false;
    }
    const auto nonce = nlohmann::json::parse(challenge.body)["nonce"].get<std::string>();
    send_frame(FrameType::kHello, hello(nonce, slice_server_options().facts));
    return receive().type == FrameType::kWelcome;
  }
  static std::string hello(const std::string& nonce, const nlohmann::json& facts, const std::string& token = "") {
    return nlohmann::json({{"nonce", "mine"}, {"proof", proof_of(token, "trainer", nonce)}, {"facts", facts}}).dump();
  }
  static std::string request(uint64_t slice, const std::vector<uint64_t>& rows) {
    std::string body;
    append_number(body, slice);
    for (const uint64_t row : rows) {
      append_number(body, row);
    }
    return body;
  }
  static std::string content_of(const Frame& frame) {
    EXPECT_GE(frame.body.size(), kAnswerNumbers * kNumberBytes);
    return frame.body.substr(kAnswerNumbers * kNumberBytes);
  }

 private:
  // The reader wants a socket that does not block, and the test sends with one that does.
  FrameReader::Took receive_some() {
    const auto took = reader_.read(socket_);
    if (!took.is_ok()) {
      ADD_FAILURE() << took.status().to_string();
      return FrameReader::Took::kEnded;
    }
    return *took;
  }

  int socket_ = -1;
  FrameReader reader_{int64_t{1} << 20};
};

}  // namespace darkroom
