#include "darkroom/slices/slice_fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>

#include "darkroom/files/file_system.h"
#include "slice_talk.h"
#include "slices/slice_desk.h"
#include "slices/slice_link.h"
#include "support/no_new_threads.h"
#include "support/stub_dns.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

std::string address_of(const SliceServer& server) { return server.address().to_string(); }

std::unique_ptr<SliceFleet> open_fleet(const SliceFleetOptions& options) {
  auto fleet = SliceFleet::open(options, read_text);
  EXPECT_TRUE(fleet.is_ok()) << fleet.status().to_string();
  return *std::move(fleet);
}

/// A listener that is no encoder: answers each connection with these bytes, or with none, and keeps it open.
class Impostor {
 public:
  explicit Impostor(std::string bytes = "") {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&place), size), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size), 0);
    port_ = ntohs(place.sin_port);
    if (!bytes.empty()) {
      thread_ = std::thread([this, answer = std::move(bytes)] {
        for (int one = accept(listener_, nullptr, nullptr); one >= 0; one = accept(listener_, nullptr, nullptr)) {
          [[maybe_unused]] const ssize_t sent = send(one, answer.data(), answer.size(), MSG_NOSIGNAL);
          taken_.push_back(one);
        }
      });
    }
  }
  ~Impostor() {
    shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) {
      thread_.join();
    }
    for (const int one : taken_) {
      ::close(one);
    }
    ::close(listener_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int listener_ = -1;
  int port_ = 0;
  std::vector<int> taken_;  // Of the thread.
  std::thread thread_;
};

std::string challenge_frame(int protocol) {
  return encode_frame(FrameType::kChallenge, nlohmann::json({{"protocol", protocol}, {"nonce", "n"}}).dump());
}

TEST(slice_fleet, gives_every_slice_as_it_was_asked_for_whoever_made_it) {
  const auto one = start_server(), two = start_server(), three = start_server();
  const auto fleet = open_fleet(fleet_options(address_of(*one) + "," + address_of(*two) + "," + address_of(*three)));
  std::vector<uint64_t> slices;
  for (int64_t row = 0; row < 200; ++row) {
    slices.push_back(fleet->ask({row, row + 1}));
  }
  for (int64_t row = 0; row < 200; ++row) {
    EXPECT_EQ(text_of(fleet->take(slices[static_cast<size_t>(row)])), *rows_as_text(0, std::vector<int64_t>{row, row + 1}));
  }
  const FleetReport report = fleet->report();
  EXPECT_EQ(report.rows, 400);
  EXPECT_EQ(report.lost, 0);
  EXPECT_EQ(report.repeated, 0);
}

TEST(slice_fleet, asks_others_for_what_a_lost_encoder_owes) {
  auto doomed = std::make_unique<Impostor>();  // Takes the connection and says nothing: hung.
  SliceFleetOptions options = fleet_options("");
  std::mutex mutex;
  std::condition_variable changed;
  bool is_asked = false, is_let_go = false;
  auto hangs = start_server(slice_server_options(), [&](int worker, std::span<const int64_t> rows) {
    std::unique_lock lock(mutex);
    is_asked = true;
    changed.notify_all();
    changed.wait(lock, [&] { return is_let_go; });
    return rows_as_text(worker, rows);
  });
  options.encoders = address_of(*hangs) + "," + doomed->address();
  options.timeout = milliseconds(1'000);
  const auto fleet = open_fleet(options);
  const uint64_t slice = fleet->ask({4});
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kFarAway, [&] { return is_asked; }));
  }
  // Whoever asks again hangs, too: the slice comes once the gate is open.
  std::thread opener([&] {
    while (fleet->report().lost == 0) {
      std::this_thread::yield();
    }
    const std::lock_guard lock(mutex);
    is_let_go = true;
    changed.notify_all();
  });
  EXPECT_EQ(text_of(fleet->take(slice)), "4;");
  opener.join();
  EXPECT_GE(fleet->report().repeated, 1);
}

TEST(slice_fleet, goes_on_with_those_that_are_left_when_one_ends) {
  auto one = start_server();
  const auto two = start_server();
  const auto fleet = open_fleet(fleet_options(address_of(*one) + "," + address_of(*two)));
  for (int64_t row = 0; row < 50; ++row) {
    const uint64_t slice = fleet->ask({row});
    if (row == 20) {
      one.reset();
    }
    EXPECT_EQ(text_of(fleet->take(slice)), std::to_string(row) + ";");
  }
}

TEST(slice_fleet, asks_others_for_what_one_encoder_cannot_make) {
  const auto broken = start_server(slice_server_options(), [](int, std::span<const int64_t>) -> Result<std::string> {
    return Status::internal("a device that has failed");
  });
  const auto healthy = start_server();
  const auto fleet = open_fleet(fleet_options(address_of(*broken) + "," + address_of(*healthy)));
  while (fleet->report().encoders < 2) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::vector<uint64_t> slices;
  for (int64_t row = 0; row < 50; ++row) {
    slices.push_back(fleet->ask({row}));
  }
  for (size_t row = 0; row < slices.size(); ++row) {
    EXPECT_EQ(text_of(fleet->take(slices[row])), std::to_string(row) + ";");
  }
}

TEST(slice_fleet, waits_for_encoders_that_a_cluster_replaces) {
  const TemporaryFolder folder;
  const std::string path = folder.path("encoders.txt");
  auto old = start_server();
  ASSERT_TRUE(write_file_atomic(local_files(), path, address_of(*old) + "\n").is_ok());
  const auto fleet = open_fleet(fleet_options("@" + path));
  EXPECT_EQ(text_of(fleet->take(fleet->ask({1}))), "1;");
  old.reset();
  while (fleet->report().lost == 0) {  // Only then is it one after the other.
    std::this_thread::sleep_for(milliseconds(1));
  }
  const uint64_t slice = fleet->ask({2});
  const auto next = start_server();
  ASSERT_TRUE(write_file_atomic(local_files(), path, "not whole").is_ok());  // Passed over: what was read before stands.
  ASSERT_TRUE(write_file_atomic(local_files(), path, address_of(*next) + "\n").is_ok());
  EXPECT_EQ(text_of(fleet->take(slice)), "2;");
  EXPECT_EQ(fleet->report().encoders, 1);
  EXPECT_EQ(fleet->report().lost, 1);
}

TEST(slice_fleet, ends_waiting_for_an_encoder_with_its_patience) {
  const Impostor nobody;
  SliceFleetOptions options = fleet_options(nobody.address());
  options.timeout = milliseconds(5);
  options.patience = milliseconds(30);
  const Status never = SliceFleet::open(options, read_text).status();
  EXPECT_EQ(never.code(), StatusCode::kUnavailable);
  EXPECT_THAT(never.message(), HasSubstr(nobody.address()));

  auto server = start_server();
  options.encoders = address_of(*server);
  options.timeout = kFarAway;
  options.patience = milliseconds(3'000);
  const auto fleet = open_fleet(options);
  server.reset();
  const Status gone = fleet->take(fleet->ask({1})).status();
  EXPECT_EQ(gone.code(), StatusCode::kUnavailable);
  EXPECT_THAT(gone.message(), HasSubstr(options.encoders));
}

TEST(slice_fleet, an_encoder_that_does_not_fit_ends_the_start) {
  SliceServerOptions other = slice_server_options();
  other.facts["resolution"] = 256;
  const auto server = start_server(other);
  const Status refused = SliceFleet::open(fleet_options(address_of(*server)), read_text).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("resolution"), HasSubstr("256"), HasSubstr("64"), HasSubstr(address_of(*server))));

  SliceServerOptions locked = slice_server_options();
  locked.token = "secret";
  const auto guarded = start_server(locked);
  SliceFleetOptions options = fleet_options(address_of(*guarded));
  EXPECT_THAT(SliceFleet::open(options, read_text).status().message(), HasSubstr("DARKROOM_ENCODER_TOKEN"));
  options.token = "secret";
  EXPECT_TRUE(SliceFleet::open(options, read_text).is_ok());
}

TEST(slice_fleet, another_version_or_what_is_no_encoder_ends_the_start) {
  const Impostor newer(challenge_frame(kSliceProtocol + 1));
  const Status version = SliceFleet::open(fleet_options(newer.address()), read_text).status();
  EXPECT_EQ(version.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(version.message(), AllOf(HasSubstr("protocol"), HasSubstr(std::to_string(kSliceProtocol + 1))));
  for (const std::string& bytes : {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), encode_frame(FrameType::kSlice, "{}"),
                                   challenge_frame(kSliceProtocol) + encode_frame(FrameType::kWelcome, "{}"),
                                   challenge_frame(kSliceProtocol) + encode_frame(FrameType::kWelcome, R"({"proof": "00"})"),
                                   challenge_frame(kSliceProtocol) + encode_frame(FrameType::kRefusal, "nothing")}) {
    const Impostor impostor(bytes);
    const Status status = SliceFleet::open(fleet_options(impostor.address()), read_text).status();
    EXPECT_TRUE(status.code() == StatusCode::kCorruptData || status.code() == StatusCode::kFailedPrecondition) << status.to_string();
  }
}

TEST(slice_desk, an_encoder_with_other_bits_than_the_first_is_turned_away) {
  SliceDesk desk(fleet_options("a:1"));
  const EncoderWelcome first{.place = {{"device", "cpu"}, {"threads", 1}}, .max_rows = 256};
  ASSERT_TRUE(desk.join("a:1", first).is_ok());
  EXPECT_TRUE(desk.join("b:1", first).is_ok());
  EncoderWelcome other = first;
  other.place["device"] = "cuda";
  const Status refused = desk.join("c:1", other);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("a:1"), HasSubstr("device"), HasSubstr("cuda"), HasSubstr("cpu")));
  other.place = "nothing";
  EXPECT_EQ(desk.join("c:1", other).code(), StatusCode::kFailedPrecondition);
  other = first;
  other.max_rows = 1;
  EXPECT_THAT(desk.join("c:1", other).message(), HasSubstr("smaller slices"));
  EXPECT_EQ(desk.report().encoders, 2);
}

TEST(slice_desk, slices_have_as_many_rows_as_the_networks_take_together) {
  SliceDesk small(fleet_options("a:1")), large(fleet_options("a:1")), narrow(fleet_options("a:1"));
  ASSERT_TRUE(small.join("a:1", {.place = {}, .max_rows = 256, .rows_together = 1}).is_ok());
  ASSERT_TRUE(large.join("a:1", {.place = {}, .max_rows = 256, .rows_together = 120}).is_ok());
  ASSERT_TRUE(narrow.join("a:1", {.place = {}, .max_rows = 5, .rows_together = 1}).is_ok());
  EXPECT_EQ(small.slice_rows(), 16);
  EXPECT_EQ(large.slice_rows(), 120);
  EXPECT_EQ(narrow.slice_rows(), 5);
}

TEST(slice_fleet, wrong_contents_cost_the_encoder_its_connection_and_the_slice_a_repetition) {
  std::atomic<int> num_made = 0;
  const auto liar = start_server(slice_server_options(), [&](int worker, std::span<const int64_t> rows) {
    return ++num_made == 1 ? Result<std::string>("something else") : rows_as_text(worker, rows);
  });
  const auto fleet = open_fleet(fleet_options(address_of(*liar)));
  EXPECT_EQ(text_of(fleet->take(fleet->ask({8}))), "8;");
  EXPECT_EQ(fleet->report().lost, 1);
  EXPECT_EQ(fleet->report().repeated, 1);
}

TEST(slice_fleet, a_slice_that_no_encoder_can_make_fails_with_their_reason) {
  std::atomic<int> num_made = 0;
  const auto server = start_server(slice_server_options(), [&](int worker, std::span<const int64_t> rows) -> Result<std::string> {
    ++num_made;
    return rows[0] == 1 ? Status::corrupt_data("row is damaged:", rows[0]) : rows_as_text(worker, rows);
  });
  const auto fleet = open_fleet(fleet_options(address_of(*server)));
  const Status failure = fleet->take(fleet->ask({1})).status();
  EXPECT_EQ(failure.code(), StatusCode::kCorruptData);
  EXPECT_THAT(failure.message(), HasSubstr("row is damaged: 1"));
  EXPECT_EQ(num_made, 3);
  EXPECT_EQ(text_of(fleet->take(fleet->ask({2}))), "2;");
}

TEST(slice_desk, who_is_being_ended_for_ever_is_asked_no_more) {
  SliceDesk desk(fleet_options("a:1"));
  ASSERT_TRUE(desk.join("a:1", {.place = {}, .max_rows = 256, .rows_together = 1}).is_ok());
  const uint64_t slice = desk.ask({1});
  int num_asked = 0;
  for (const int connection = 0; num_asked < 100; ++num_asked) {
    const std::optional<AskedSlice> asked = desk.next(&connection);
    if (!asked) {
      break;
    }
    desk.fail(&connection, *asked, Status::cancelled("an encoder that is being ended"));
  }
  ASSERT_EQ(num_asked, 4) << "once as one that is being ended, then as one that fails";
  EXPECT_EQ(desk.take(slice).status().code(), StatusCode::kCancelled);
}

TEST(slice_fleet, a_slice_that_ends_every_encoder_fails_in_the_end) {
  const auto server = start_server(slice_server_options(), [](int, std::span<const int64_t>) { return Result<std::string>("wrong"); });
  const auto fleet = open_fleet(fleet_options(address_of(*server)));
  const Status failure = fleet->take(fleet->ask({1})).status();
  EXPECT_EQ(failure.code(), StatusCode::kUnavailable);
  EXPECT_THAT(failure.message(), HasSubstr("lost with every encoder"));
}

TEST(slice_fleet, waiting_ends_on_request) {
  auto server = start_server();
  std::stop_source stop;
  SliceFleetOptions options = fleet_options(address_of(*server));
  options.stop = stop.get_token();
  const auto fleet = open_fleet(options);
  stop.request_stop();
  EXPECT_EQ(text_of(fleet->take(fleet->ask({1}))), "1;") << "where there is an encoder the slice comes all the same";
  server.reset();
  const uint64_t slice = fleet->ask({2});
  EXPECT_EQ(fleet->take(slice).status().code(), StatusCode::kCancelled);

  std::promise<void> stopped;
  const auto other = start_server(slice_server_options(), [end = stopped.get_future().share()](int worker, std::span<const int64_t> rows) {
    end.wait();  // A slice that is there would be given.
    return rows_as_text(worker, rows);
  });
  const auto second = open_fleet(fleet_options(address_of(*other)));
  second->stop_waiting();
  EXPECT_EQ(second->take(second->ask({1})).status().code(), StatusCode::kCancelled);
  stopped.set_value();
}

TEST(slice_fleet, counts_what_encoders_did_and_how_long_they_were_idle) {
  const auto server = start_server();
  const auto fleet = open_fleet(fleet_options(address_of(*server)));
  for (int64_t row = 0; row < 20; ++row) {
    EXPECT_TRUE(fleet->take(fleet->ask({row, row + 1})).is_ok());
  }
  const FleetReport report = fleet->report();
  EXPECT_EQ(report.encoder_rows, 38) << "from the first answer on";
  EXPECT_GE(report.encoder_seconds, report.encoder_idle_seconds);
  EXPECT_GE(report.encoder_idle_seconds, 0);
  EXPECT_EQ(report.to_json()["encoders"], 1);
  FleetReport known{.encoder_seconds = 10, .encoder_idle_seconds = 6, .encoder_rows = 200};
  EXPECT_EQ(known.rows_per_second(), 50);
  EXPECT_EQ(FleetReport().rows_per_second(), 0);
}

/// Times so long that whoever waits for them hangs for the test.
ResolverOptions patient_resolver(const StubDns& dns) {
  return {.servers = {dns.server()}, .hosts_file = "", .try_time = std::chrono::minutes(5), .num_tries = 1, .uses_search_domains = true};
}

TEST(slice_fleet, a_stop_ends_asking_for_the_name_of_a_machine) {
  std::stop_source stop;
  const StubDns dns([&](const StubDns::Question&) {
    stop.request_stop();
    return StubDns::Answer{.is_silent = true};
  });
  SliceFleetOptions options = fleet_options("node-3.cluster.test:7000");
  options.timeout = std::chrono::minutes(5);
  options.resolver = patient_resolver(dns);
  options.stop = stop.get_token();
  EXPECT_EQ(SliceFleet::open(options, read_text).status().code(), StatusCode::kCancelled);
  EXPECT_GE(dns.num_questions(), 1);  // With a search domain, where the machine has some.
}

TEST(slice_fleet, names_are_those_of_name_servers_with_the_search_domains_of_the_machine) {
  const auto server = start_server();
  const StubDns dns([](const StubDns::Question& question) {
    if (question.name == "node-3.cluster.test" && question.type == StubDns::kA) {
      return StubDns::Answer{.records = {StubDns::a(question.name, "127.0.0.1")}};
    }
    return StubDns::Answer{.rcode = question.name == "node-3.cluster.test" ? 0 : 3};
  });
  ASSERT_EQ(setenv("LOCALDOMAIN", "cluster.test", 1), 0);
  SliceFleetOptions options = fleet_options("node-3:" + std::to_string(server->address().port));
  options.resolver = patient_resolver(dns);
  const auto fleet = open_fleet(options);
  EXPECT_EQ(text_of(fleet->take(fleet->ask({7}))), "7;");
  options.encoders = "nobody:7000";
  options.patience = milliseconds(3'000);
  EXPECT_THAT(SliceFleet::open(options, read_text).status().message(), AllOf(HasSubstr("name"), HasSubstr("no_name")));
  unsetenv("LOCALDOMAIN");
}

TEST(slice_fleet, messages_name_the_sides_and_flags_of_whom_they_are_about) {
  SliceServerOptions other = slice_server_options();
  other.facts["resolution"] = 256;
  other.names = transformer_names();
  const auto server = start_server(other);
  SliceFleetOptions options = fleet_options(address_of(*server));
  options.names = transformer_names();
  std::vector<std::string> said = {SliceFleet::open(options, read_text).status().message()};
  EXPECT_THAT(said[0], AllOf(HasSubstr("transformer and job do not fit"), HasSubstr("at the job")));

  const Impostor silent;
  options.encoders = silent.address();
  options.timeout = milliseconds(5);
  options.patience = milliseconds(3'000);
  said.push_back(SliceFleet::open(options, read_text).status().message());
  EXPECT_THAT(said[1], AllOf(HasSubstr("--transformers"), HasSubstr("a transformer said nothing")));
  const Impostor foreign("HTTP/1.1 400 Bad Request\r\n\r\n"), newer(challenge_frame(kSliceProtocol + 1));
  options.timeout = options.patience = kFarAway;
  for (const std::string& encoders : {foreign.address(), newer.address(), std::string("nowhere")}) {
    options.encoders = encoders;
    said.push_back(SliceFleet::open(options, read_text).status().message());
  }
  options.look = milliseconds(0);
  said.push_back(SliceFleet::open(options, read_text).status().message());
  for (const std::string& message : said) {
    EXPECT_THAT(message, testing::Not(testing::AnyOf(HasSubstr("encoder"), HasSubstr("trainer"), HasSubstr("--encoder"))));
  }
}

TEST(slice_fleet, refuses_addresses_and_times_that_make_no_sense) {
  EXPECT_EQ(SliceFleet::open(fleet_options("nowhere"), read_text).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SliceFleet::open(fleet_options("@/no/such/file"), read_text).status().code(), StatusCode::kNotFound);
  SliceFleetOptions options = fleet_options("a:1");
  options.look = milliseconds(0);
  EXPECT_THAT(SliceFleet::open(options, read_text).status().message(), HasSubstr("look"));
  options = fleet_options("a:1");
  options.resolver.num_tries = 0;
  EXPECT_THAT(SliceFleet::open(options, read_text).status().message(), HasSubstr("num_tries"));
}

size_t num_open_files() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

TEST(slice_link, keeps_nothing_where_its_thread_cannot_start) {
  SliceFleetOptions options;
  options.encoders = "127.0.0.1:1";
  const SliceReader read = read_text;
  SliceDesk desk(options);
  const EncoderAddress address{.host = "127.0.0.1", .port = "1"};
  const size_t before = num_open_files();
  {
    const NoNewThreads none;
    EXPECT_THROW(SliceLink(address, options, read, desk), std::system_error);
  }
  EXPECT_EQ(num_open_files(), before);
  EXPECT_EQ(desk.num_wakes(), 0U);
}

}  // namespace
}  // namespace darkroom
