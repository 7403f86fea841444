#include "darkroom/slices/slice_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <list>
#include <mutex>
#include <stdexcept>

#include "slice_talk.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A gate that makers wait at.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
  }
  void await(int num_waiting) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kFarAway, [&] { return num_waiting_ >= num_waiting; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  int num_waiting_ = 0;
};

/// A server whose workers wait at the gate.
std::unique_ptr<SliceServer> start_gated_server(SliceServerOptions options, Gate& gate) {
  return start_server(options, [&gate](int worker, std::span<const int64_t> rows) {
    gate.pass();
    return rows_as_text(worker, rows);
  });
}

TEST(slice_server, answers_a_trainer_that_wants_what_it_has) {
  const auto server = start_server();
  RawTrainer trainer(*server);
  const Frame welcome = trainer.greet();
  ASSERT_EQ(welcome.type, FrameType::kWelcome) << welcome.body;
  const auto words = nlohmann::json::parse(welcome.body);
  EXPECT_EQ(words["place"], slice_server_options().place);
  EXPECT_EQ(words["proof"], proof_of("", "encoder", "mine"));
  trainer.send_frame(FrameType::kRequest, RawTrainer::request(9, {7, 999, 0}));
  const Frame slice = trainer.receive();
  EXPECT_EQ(slice.type, FrameType::kSlice);
  EXPECT_EQ(number_at(slice.body, 0), 9);
  EXPECT_EQ(RawTrainer::content_of(slice), "7,999,0;");
  EXPECT_EQ(server->counts().rows, 3);
}

TEST(slice_server, refuses_another_dataset_naming_both_values) {
  const auto server = start_server();
  RawTrainer trainer(*server);
  const Frame refusal = trainer.greet({{"dataset", "d2"}, {"resolution", 64}});
  EXPECT_EQ(refusal.type, FrameType::kRefusal);
  EXPECT_THAT(refusal.body, AllOf(HasSubstr("dataset"), HasSubstr("d1"), HasSubstr("d2"), HasSubstr("failed_precondition")));
  EXPECT_EQ(trainer.receive().type, FrameType{0});
}

TEST(slice_server, tells_strangers_without_the_token_nothing_of_the_dataset) {
  SliceServerOptions options = slice_server_options();
  options.token = "secret";
  const auto server = start_server(options);
  for (const char* token : {"", "secre", "secret2"}) {
    RawTrainer trainer(*server);
    const Frame refusal = trainer.greet({{"dataset", "d2"}}, token);
    EXPECT_EQ(refusal.type, FrameType::kRefusal);
    EXPECT_THAT(refusal.body, AllOf(HasSubstr("DARKROOM_ENCODER_TOKEN"), Not(HasSubstr("d1")))) << token;
  }
  RawTrainer trainer(*server);
  EXPECT_EQ(trainer.greet(options.facts, "secret").type, FrameType::kWelcome);
}

TEST(slice_server, whatever_comes_over_a_connection_costs_that_connection_alone) {
  const auto server = start_server();
  RawTrainer good(*server);
  ASSERT_EQ(good.greet().type, FrameType::kWelcome);
  std::string huge(kFrameMark);
  append_number(huge, static_cast<uint64_t>(FrameType::kHello) | uint64_t{0xFFFF'FFFF} << 32);  // Type, then half of the length.
  std::string long_frame(kFrameMark);
  long_frame += std::string("\2\0\0\0", 4);
  append_number(long_frame, uint64_t{1} << 62);
  const std::vector<std::string> hostile = {"GET / HTTP/1.1\r\n\r\n",
                                            std::string(64, '\0'),
                                            huge + "12345678",
                                            long_frame,
                                            encode_frame(FrameType::kHello, "[]"),
                                            encode_frame(FrameType::kHello, std::string(5000, '[')),
                                            encode_frame(FrameType::kHello, R"({"nonce": 1, "proof": []})"),
                                            encode_frame(FrameType::kHello, R"({"nonce": "a", "proof": "b", "facts": 7})"),
                                            encode_frame(FrameType::kRequest, RawTrainer::request(1, {1})),
                                            encode_frame(FrameType::kSlice, ""),
                                            encode_frame(FrameType::kWelcome, "{}")};
  for (const std::string& bytes : hostile) {
    RawTrainer stranger(*server);
    EXPECT_EQ(stranger.receive().type, FrameType::kChallenge);
    stranger.send_bytes(bytes);
    EXPECT_EQ(stranger.receive().type, FrameType::kRefusal) << bytes.substr(0, 40);
    EXPECT_EQ(stranger.receive().type, FrameType{0});
  }
  good.send_frame(FrameType::kRequest, RawTrainer::request(1, {5}));
  EXPECT_EQ(RawTrainer::content_of(good.receive()), "5;");
}

TEST(slice_server, refuses_requests_of_rows_that_are_not_there) {
  const auto server = start_server();
  const std::vector<std::string> bad = {"",
                                        "1234567",
                                        RawTrainer::request(1, {}),
                                        RawTrainer::request(1, {1}) + "x",
                                        RawTrainer::request(1, {1000}),
                                        RawTrainer::request(1, {~uint64_t{0}}),
                                        RawTrainer::request(1, std::vector<uint64_t>(257, 1))};
  for (const std::string& body : bad) {
    RawTrainer trainer(*server);
    ASSERT_EQ(trainer.greet().type, FrameType::kWelcome);
    trainer.send_frame(FrameType::kRequest, body);
    EXPECT_EQ(trainer.receive().type, FrameType::kRefusal) << body.size();
  }
  RawTrainer trainer(*server);
  ASSERT_EQ(trainer.greet().type, FrameType::kWelcome);
  trainer.send_frame(FrameType::kRequest, RawTrainer::request(1, std::vector<uint64_t>(256, 1)));
  EXPECT_EQ(trainer.receive().type, FrameType::kSlice) << "the largest slice";
}

TEST(slice_server, strangers_do_not_fill_the_log) {
  testing::internal::CaptureStderr();
  {
    const auto server = start_server();
    for (int i = 0; i < 30; ++i) {
      RawTrainer stranger(*server);
      EXPECT_EQ(stranger.receive().type, FrameType::kChallenge);
      stranger.send_bytes(std::string(64, 'x'));
      EXPECT_EQ(stranger.receive().type, FrameType::kRefusal);
    }
  }
  const std::string said = testing::internal::GetCapturedStderr();
  size_t num_lines = 0;
  for (size_t at = said.find("a connection is refused"); at != std::string::npos; at = said.find("a connection is refused", at + 1)) {
    ++num_lines;
  }
  EXPECT_EQ(num_lines, 10);
  EXPECT_THAT(said, HasSubstr("from now on such connections are told of once a minute"));
}

TEST(slice_server, a_failure_is_told_and_the_next_slice_made) {
  const auto server = start_server(slice_server_options(), [](int worker, std::span<const int64_t> rows) -> Result<std::string> {
    if (rows[0] == 1) {
      return Status::corrupt_data("row is damaged:", rows[0]);
    }
    if (rows[0] == 2) {
      throw std::runtime_error("no memory left");
    }
    return rows_as_text(worker, rows);
  });
  RawTrainer trainer(*server);
  ASSERT_EQ(trainer.greet().type, FrameType::kWelcome);
  for (const auto& [row, words] : {std::pair(1, "row is damaged"), std::pair(2, "no memory left")}) {
    trainer.send_frame(FrameType::kRequest, RawTrainer::request(4, {static_cast<uint64_t>(row)}));
    const Frame failure = trainer.receive();
    EXPECT_EQ(failure.type, FrameType::kFailure);
    EXPECT_THAT(RawTrainer::content_of(failure), HasSubstr(words));
  }
  trainer.send_frame(FrameType::kRequest, RawTrainer::request(5, {3}));
  EXPECT_EQ(RawTrainer::content_of(trainer.receive()), "3;");
  EXPECT_EQ(server->counts().rows, 1);
}

TEST(slice_server, takes_no_more_requests_than_may_be_in_flight) {
  SliceServerOptions options = slice_server_options();
  options.max_in_flight = 2;
  Gate gate;
  std::mutex mutex;
  std::vector<int64_t> made;
  const auto server = start_server(options, [&](int worker, std::span<const int64_t> rows) {
    gate.pass();
    const std::lock_guard lock(mutex);
    made.push_back(rows[0]);
    return rows_as_text(worker, rows);
  });
  RawTrainer greedy(*server), other(*server);
  ASSERT_EQ(greedy.greet().type, FrameType::kWelcome);
  ASSERT_EQ(other.greet().type, FrameType::kWelcome);
  greedy.send_frame(FrameType::kRequest, RawTrainer::request(0, {0}));
  gate.await(1);
  for (uint64_t row = 1; row < 6; ++row) {
    greedy.send_frame(FrameType::kRequest, RawTrainer::request(row, {row}));
  }
  other.send_frame(FrameType::kRequest, RawTrainer::request(0, {100}));
  gate.open();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(greedy.receive().type, FrameType::kSlice);
  }
  EXPECT_EQ(other.receive().type, FrameType::kSlice);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(made.size(), 7U);
  EXPECT_EQ(made[0], 0);
  EXPECT_EQ(made[6], 5) << "who asks for much at once does not come before all others";
}

TEST(slice_server, a_connection_more_than_may_be_is_told_so) {
  SliceServerOptions options = slice_server_options();
  options.max_connections = 1;
  const auto server = start_server(options);
  RawTrainer first(*server);
  ASSERT_EQ(first.greet().type, FrameType::kWelcome);
  RawTrainer second(*server);
  const Frame refusal = second.greet();
  EXPECT_EQ(refusal.type, FrameType::kRefusal);
  EXPECT_THAT(refusal.body, HasSubstr("unavailable"));
  EXPECT_EQ(second.receive().type, FrameType{0});
  first.send_frame(FrameType::kRequest, RawTrainer::request(1, {5}));
  EXPECT_EQ(first.receive().type, FrameType::kSlice);
}

TEST(slice_server, whoever_says_nothing_keeps_no_trainer_out) {
  SliceServerOptions options = slice_server_options();
  options.max_connections = 1;
  options.handshake_timeout = kFarAway;
  const auto server = start_server(options);
  RawTrainer silent(*server);
  EXPECT_EQ(silent.receive().type, FrameType::kChallenge);
  RawTrainer trainer(*server);
  EXPECT_EQ(trainer.greet().type, FrameType::kWelcome);
  // Of many that are silent the oldest goes, and no trainer.
  std::list<RawTrainer> others;
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(others.emplace_back(*server).receive().type, FrameType::kChallenge);
  }
  EXPECT_EQ(silent.receive().type, FrameType{0});
  trainer.send_frame(FrameType::kRequest, RawTrainer::request(1, {5}));
  EXPECT_EQ(trainer.receive().type, FrameType::kSlice);
  EXPECT_EQ(RawTrainer(*server).greet().type, FrameType::kRefusal);
}

TEST(slice_server, whoever_does_not_greet_in_time_is_put_out) {
  SliceServerOptions options = slice_server_options();
  options.handshake_timeout = std::chrono::milliseconds(20);
  const auto server = start_server(options);
  RawTrainer silent(*server);
  EXPECT_EQ(silent.receive().type, FrameType::kChallenge);
  EXPECT_EQ(silent.receive().type, FrameType{0});
}

TEST(slice_server, whoever_does_not_take_its_slices_is_put_out) {
  SliceServerOptions options = slice_server_options();
  options.send_timeout = std::chrono::milliseconds(20);
  options.max_connections = 1;
  const auto server = start_server(options, [](int, std::span<const int64_t>) { return Result<std::string>(std::string(64 << 20, 'x')); });
  RawTrainer slow(*server);
  ASSERT_EQ(slow.greet().type, FrameType::kWelcome);
  slow.send_frame(FrameType::kRequest, RawTrainer::request(1, {5}));
  const auto end = std::chrono::steady_clock::now() + kFarAway;
  bool has_room = false;
  while (!has_room && std::chrono::steady_clock::now() < end) {
    RawTrainer next(*server);
    has_room = next.is_let_in();
  }
  EXPECT_TRUE(has_room);
}

TEST(slice_server, drains_what_is_being_made_and_drops_what_is_only_asked_for) {
  SliceServerOptions options = slice_server_options();
  options.max_in_flight = 4;
  Gate gate;
  const auto server = start_gated_server(options, gate);
  RawTrainer trainer(*server);
  ASSERT_EQ(trainer.greet().type, FrameType::kWelcome);
  for (uint64_t row = 1; row < 4; ++row) {
    trainer.send_frame(FrameType::kRequest, RawTrainer::request(row, {row}));
  }
  gate.await(1);
  EXPECT_FALSE(server->drain(std::chrono::milliseconds(1))) << "the first one is being made";
  gate.open();
  EXPECT_TRUE(server->drain(kFarAway));
  EXPECT_EQ(RawTrainer::content_of(trainer.receive()), "1;");
  // The worker may have begun another one before the thread of the connections heard of the drain.
  while (trainer.receive().type != FrameType{0}) {
  }
  EXPECT_LE(server->counts().slices, 3);
}

TEST(slice_server, says_that_it_works_while_a_slice_takes_long) {
  SliceServerOptions options = slice_server_options();
  options.word_interval = std::chrono::milliseconds(10);
  Gate gate;
  const auto server = start_gated_server(options, gate);
  RawTrainer trainer(*server);
  ASSERT_EQ(trainer.greet().type, FrameType::kWelcome);
  trainer.send_frame(FrameType::kRequest, RawTrainer::request(1, {1}));
  EXPECT_EQ(trainer.receive().type, FrameType::kWorking);
  EXPECT_EQ(trainer.receive().type, FrameType::kWorking);
  gate.open();
  Frame frame = trainer.receive();
  while (frame.type == FrameType::kWorking) {
    frame = trainer.receive();
  }
  EXPECT_EQ(RawTrainer::content_of(frame), "1;");
}

TEST(slice_server, says_nothing_more_of_a_slice_that_takes_for_ever) {
  SliceServerOptions options = slice_server_options();
  options.word_interval = std::chrono::milliseconds(1);
  options.work_timeout = std::chrono::milliseconds(1);
  Gate gate;
  const auto server = start_gated_server(options, gate);
  RawTrainer trainer(*server);
  ASSERT_EQ(trainer.greet().type, FrameType::kWelcome);
  trainer.send_frame(FrameType::kRequest, RawTrainer::request(1, {1}));
  gate.await(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // Words of a millisecond, if there are any, are sent by then.
  gate.open();
  int num_words = 0;
  Frame frame = trainer.receive();
  for (; frame.type == FrameType::kWorking; frame = trainer.receive()) {
    ++num_words;
  }
  EXPECT_EQ(RawTrainer::content_of(frame), "1;");
  EXPECT_LE(num_words, 2);
}

TEST(frame_writer, lets_go_of_what_is_sent_while_more_comes) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  FrameWriter writer;
  std::string received, sent;
  for (int i = 0; i < 8; ++i) {  // Never empty: the next frame is there before the one before is through.
    const std::string frame(300'000, static_cast<char>('a' + i));
    sent += frame;
    writer.add(frame);
    ASSERT_TRUE(writer.write(ends[0]).is_ok());
    while (writer.num_frames() > 1) {
      char bytes[4096];
      received.append(bytes, static_cast<size_t>(recv(ends[1], bytes, sizeof bytes, 0)));
      ASSERT_TRUE(writer.write(ends[0]).is_ok());
    }
    EXPECT_LE(writer.num_frames(), 1);
  }
  while (received.size() < sent.size()) {
    ASSERT_TRUE(writer.write(ends[0]).is_ok());
    char bytes[4096];
    const ssize_t num_bytes = recv(ends[1], bytes, sizeof bytes, 0);
    received.append(bytes, static_cast<size_t>(std::max<ssize_t>(0, num_bytes)));
  }
  EXPECT_TRUE(writer.is_empty());
  EXPECT_EQ(received, sent);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(slice_server, refuses_a_port_that_is_taken_and_options_that_make_no_sense) {
  const auto server = start_server();
  SliceServerOptions options = slice_server_options();
  options.address = server->address();
  EXPECT_THAT(SliceServer::start(options, rows_as_text).status().message(), HasSubstr("--listen"));
  options = slice_server_options();
  options.num_rows = 0;
  EXPECT_THAT(SliceServer::start(options, rows_as_text).status().message(), HasSubstr("num_rows"));
  options = slice_server_options();
  options.max_in_flight = -1;
  EXPECT_THAT(SliceServer::start(options, rows_as_text).status().message(), HasSubstr("max_in_flight"));
  options = slice_server_options();
  options.send_timeout = std::chrono::milliseconds(0);
  EXPECT_THAT(SliceServer::start(options, rows_as_text).status().message(), HasSubstr("time-outs"));
}

}  // namespace
}  // namespace darkroom
