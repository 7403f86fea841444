#include "darkroom/stores/https_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "darkroom/files/read_ahead.h"
#include "hub_caller.h"
#include "support/remote_files.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

class https_store : public WebTest {
 protected:
  std::string add(const ScriptedServer& server, const std::string& target = "/a.parquet") {
    return store_->add(server_url(server, target)).value();
  }
  static Answer tagged(const Request& request, const std::string& bytes, const std::string& etag = "v1") {
    return {ranged_answer(request, bytes, "ETag: \"" + etag + "\"\r\n")};
  }
  Result<std::string> read(const std::string& path, int64_t offset, size_t size) {
    DARKROOM_ASSIGN_OR_RETURN(const auto file, store_->open_input(path));
    std::string bytes(size, '\0');
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(offset, std::as_writable_bytes(std::span(bytes))));
    bytes.resize(num_read);
    return bytes;
  }

  std::unique_ptr<HttpsStore> store_ = make_https_store(web_, "http");
  const std::string bytes_ = "0123456789abcdefghij";
};

TEST_F(https_store, reads_parts_tails_and_whole_files) {
  const ScriptedServer server([&](const Request& request) { return tagged(request, bytes_); });
  const std::string path = add(server);
  EXPECT_EQ(store_->stat(path).value(), (FileInfo{path, 20, false}));
  EXPECT_EQ(read(path, 5, 3).value(), "567");
  EXPECT_EQ(read(path, 18, 9).value(), "ij");
  EXPECT_EQ(store_->read_small(path).value(), bytes_);
  EXPECT_EQ(store_->read_small(path, 19).status().code(), StatusCode::kCorruptData);
  const size_t num_before = server.requests().size();
  const ObjectTail tail = store_->read_tail(path, 4).value();
  EXPECT_EQ(tail.bytes, "ghij");
  EXPECT_EQ(tail.size_bytes, 20);
  EXPECT_EQ(tail.version, "\"v1\"");
  EXPECT_EQ(server.requests().size(), num_before + 1);
  EXPECT_EQ(store_->read_tail(path, 1000).value().bytes, bytes_);
  EXPECT_EQ(store_->read_tail(path, 0).value().size_bytes, 20);
}

TEST_F(https_store, a_file_that_is_read_ahead_is_asked_for_eight_parts_at_once) {
  const std::string bytes = numbered_bytes((12 << 20) + 3);
  std::mutex mutex;
  std::condition_variable arrived;
  int num_asked = 0;
  const ScriptedServer server([&](const Request& request) {
    if (request_header(request, "Range") != "bytes=0-0") {
      std::unique_lock lock(mutex);
      ++num_asked;
      arrived.notify_all();
      arrived.wait(lock, [&] { return num_asked >= 8; });
    }
    return tagged(request, bytes);
  });
  const std::shared_ptr<const InputFile> file = store_->open_input(add(server)).value();
  ASSERT_TRUE(file->is_remote());
  const auto ahead = with_read_ahead(file, {.offset = 0, .num_bytes = file->size_bytes()});
  std::string got(bytes.size(), '\0');
  EXPECT_EQ(ahead->read_at(0, std::as_writable_bytes(std::span(got))).value(), bytes.size());
  EXPECT_TRUE(got == bytes);
  EXPECT_EQ(num_asked, 13);
}

TEST_F(https_store, an_empty_file_is_empty) {
  const ScriptedServer server([&](const Request& request) { return tagged(request, ""); });
  const std::string path = add(server);
  EXPECT_EQ(store_->stat(path).value().size_bytes, 0);
  EXPECT_EQ(read(path, 0, 5).value(), "");
  EXPECT_EQ(store_->read_tail(path, 5).value().bytes, "");
}

TEST_F(https_store, a_known_size_saves_a_request) {
  const ScriptedServer server([&](const Request& request) { return tagged(request, bytes_); });
  const auto file = store_->open_input(add(server), 20).value();
  EXPECT_TRUE(server.requests().empty());
  std::string out(2, '\0');
  ASSERT_TRUE(file->read_at(3, std::as_writable_bytes(std::span(out))).is_ok());
  EXPECT_EQ(out, "34");
  const auto other = store_->open_input(add(server), 21).value();
  EXPECT_EQ(other->read_at(3, std::as_writable_bytes(std::span(out))).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(https_store, notices_a_file_that_changes_in_the_middle) {
  std::atomic<bool> has_other_tag = false;
  std::atomic<bool> is_longer = false;
  const ScriptedServer server(
      [&](const Request& request) { return tagged(request, is_longer ? bytes_ + "!" : bytes_, has_other_tag ? "v2" : "v1"); });
  std::string out(2, '\0');
  const auto span = std::as_writable_bytes(std::span(out));
  const auto file = store_->open_input(add(server)).value();
  ASSERT_TRUE(file->read_at(0, span).is_ok());
  has_other_tag = true;
  const Status changed = file->read_at(0, span).status();
  EXPECT_EQ(changed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(changed.message(), HasSubstr("changed"));
  has_other_tag = false;
  is_longer = true;
  EXPECT_EQ(file->read_at(0, span).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(https_store, a_small_file_of_a_server_without_ranges_is_read_once_as_a_whole) {
  std::atomic<int> num_whole = 0;
  const ScriptedServer server([&](const Request& request) {
    num_whole += request_header(request, "Range").empty() ? 1 : 0;
    return Answer{http_answer(200, bytes_)};
  });
  const std::string path = add(server);
  EXPECT_EQ(store_->stat(path).value().size_bytes, 20);
  EXPECT_EQ(store_->read_small(path).value(), bytes_);
  EXPECT_EQ(store_->read_tail(path, 20).value().bytes, bytes_);
  EXPECT_EQ(store_->read_tail(path, 5).value().bytes, "fghij");
  for (const std::optional<int64_t> known_size : {std::optional<int64_t>(), std::optional<int64_t>(20)}) {
    const auto file = store_->open_input(path, known_size).value();
    num_whole = 0;
    std::string out(3, '\0');
    for (const int64_t offset : {5, 0, 17}) {
      ASSERT_TRUE(file->read_at(offset, std::as_writable_bytes(std::span(out))).is_ok());
      EXPECT_EQ(out, bytes_.substr(static_cast<size_t>(offset), 3));
    }
    EXPECT_EQ(num_whole, 1);
  }
  const auto other = store_->open_input(path, 21).value();
  std::string out(3, '\0');
  EXPECT_EQ(other->read_at(5, std::as_writable_bytes(std::span(out))).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(https_store, a_small_file_of_a_server_that_sends_it_in_chunks_whatever_was_asked_for_is_read_as_a_whole) {
  for (const std::string& bytes : {bytes_, std::string()}) {
    const ScriptedServer server([&](const Request&) {
      const std::string chunk = bytes.empty() ? "" : fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
      return Answer{fmt::format("HTTP/1.1 200 X\r\nETag: \"v1\"\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk)};
    });
    const std::string path = add(server);
    EXPECT_EQ(store_->stat(path).value().size_bytes, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(read(path, 0, 100).value(), bytes);
    const size_t num_before = server.requests().size();
    const auto file = store_->open_input(path).value();
    EXPECT_EQ(file->size_bytes(), static_cast<int64_t>(bytes.size()));
    std::string out(3, '\0');
    for (const int64_t offset : {5, 0, 17}) {
      const size_t num_read = file->read_at(offset, std::as_writable_bytes(std::span(out))).value();
      EXPECT_EQ(out.substr(0, num_read), bytes.empty() ? "" : bytes.substr(static_cast<size_t>(offset), 3));
    }
    EXPECT_EQ(server.requests().size() - num_before, 2u) << "the first byte, then all of them, once";
    EXPECT_EQ(store_->read_tail(path, 5).value().bytes, bytes.empty() ? "" : "fghij");
  }
}

TEST_F(https_store, a_large_file_of_a_server_without_ranges_is_refused_with_a_sentence) {
  constexpr int64_t kLarge = (int64_t{64} << 20) + 1;
  const ScriptedServer server([&](const Request&) {
    return Answer{fmt::format("HTTP/1.1 200 X\r\nContent-Length: {}\r\n\r\n", kLarge), Answer::Then::kHang};
  });
  const std::string path = add(server);
  for (const Status& status : {store_->open_input(path).status(), store_->read_tail(path, 5).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("gives whole files alone"));
  }
}

TEST_F(https_store, a_server_without_suffix_ranges_is_asked_for_the_size_first) {
  const ScriptedServer server([&](const Request& request) {
    const bool is_suffix = request_header(request, "Range").starts_with("bytes=-");
    return is_suffix ? Answer{http_answer(206, bytes_.substr(0, 5), "Content-Range: bytes 0-4/20\r\n")} : tagged(request, bytes_);
  });
  EXPECT_EQ(store_->read_tail(add(server), 4).value().bytes, "ghij");
}

TEST_F(https_store, believes_no_other_part_than_it_asked_for) {
  for (const char* headers : {"Content-Range: bytes 6-8/20\r\n", "Content-Range: bytes 5-9/20\r\n", "Content-Range: 5-7/20\r\n", ""}) {
    const ScriptedServer server([&](const Request& request) {
      return request_header(request, "Range") == "bytes=0-0" ? tagged(request, bytes_) : Answer{http_answer(206, "567", headers)};
    });
    EXPECT_EQ(read(add(server), 5, 3).status().code(), StatusCode::kUnavailable) << headers;
  }
  const ScriptedServer packed([&](const Request& request) { return Answer{ranged_answer(request, bytes_, "Content-Encoding: gzip\r\n")}; });
  EXPECT_EQ(read(add(packed), 5, 3).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->read_small(add(packed)).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(https_store, says_what_the_server_says) {
  for (const auto& [status, code] : {std::pair(404, StatusCode::kNotFound),
                                     {403, StatusCode::kFailedPrecondition},
                                     {500, StatusCode::kUnavailable},
                                     {400, StatusCode::kFailedPrecondition},
                                     {302, StatusCode::kUnavailable}}) {
    const ScriptedServer server([status = status](const Request&) { return Answer{http_answer(status, "no")}; });
    const std::string path = add(server);
    EXPECT_EQ(store_->stat(path).status().code(), code) << status;
    EXPECT_EQ(store_->read_small(path).status().code(), code) << status;
    EXPECT_EQ(store_->read_tail(path, 3).status().code(), code) << status;
  }
}

TEST_F(https_store, keeps_queries_out_of_paths_and_messages) {
  const ScriptedServer server([&](const Request& request) {
    return request_target_of(request).ends_with("?sig=s3cret") ? tagged(request, bytes_) : Answer{http_answer(403, "")};
  });
  const std::string path = add(server, "/dir/a%20b.parquet?sig=s3cret");
  EXPECT_TRUE(path.ends_with("/dir/a%20b.parquet")) << path;
  EXPECT_EQ(read(path, 0, 2).value(), "01");
  EXPECT_THAT(store_->uri_of(path), Not(HasSubstr("s3cret")));
  const Status other = store_->add(server_url(server, "/dir/a%20b.parquet?sig=an0ther")).status();
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.message(), AllOf(Not(HasSubstr("s3cret")), Not(HasSubstr("an0ther"))));
  EXPECT_EQ(add(server, "/dir/a%20b.parquet?sig=s3cret"), path);
}

TEST_F(https_store, refuses_what_is_no_file_of_its_scheme) {
  for (const char* url : {"https://h/a", "http://h/", "http://h/folder/", "http://h/*.parquet", "http://user:pw@h/a", "http://", "a/b"}) {
    EXPECT_EQ(store_->add(url).status().code(), StatusCode::kInvalidArgument) << url;
  }
  EXPECT_EQ(store_->list("h/a").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->list_tree("h/a", {}, [](auto) { return Status::ok(); }).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->begin_object("h", "a").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(store_->is_writable());
}

TEST_F(https_store, a_stop_ends_a_call) {
  std::stop_source stop;
  const auto stopped = make_https_store(web_, "http", stop.get_token());
  const ScriptedServer server([&](const Request&) {  // Asked, it never answers: the stop comes within the call.
    stop.request_stop();
    return Answer{"", Answer::Then::kHang};
  });
  const std::string path = stopped->add(server_url(server, "/a")).value();
  EXPECT_EQ(stopped->stat(path).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(server.requests().size(), 1u);
}

}  // namespace
}  // namespace darkroom
