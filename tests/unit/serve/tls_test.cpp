#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>

#include "darkroom/files/file_system.h"
#include "darkroom/serve/http_server.h"
#include "darkroom/web/metrics_server.h"
#include "serve_client.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Greeting final : HttpService {
  void handle(HttpQuestion question, std::stop_token /*gone*/, Answer answer) override {
    answer(HttpReply{.type = "text/plain", .body = question.path + question.body});
  }
};

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

/// Opens a pipe for writing once `started` reads it; -1 where that ends before.
int open_once_read(const std::string& path, const std::future<void>& started) {
  int pipe = -1;
  do {
    pipe = ::open(path.c_str(), O_WRONLY | O_NONBLOCK);
  } while (pipe < 0 && started.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout);
  return pipe;
}

Key make_key() { return {EVP_EC_gen("P-256"), &EVP_PKEY_free}; }

void write_key(const Key& key, const std::string& path, const char* password = nullptr) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "w"), &fclose);
  ASSERT_EQ(PEM_write_PrivateKey(file.get(), key.get(), password == nullptr ? nullptr : EVP_aes_128_cbc(),
                                 reinterpret_cast<const unsigned char*>(password), password == nullptr ? 0 : 4, nullptr, nullptr),
            1);
}

void write_certificate(const Key& key, const std::string& path, const char* name) {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name), -1,
                             -1, 0);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "w"), &fclose);
  ASSERT_EQ(PEM_write_X509(file.get(), certificate.get()), 1);
}

/// A client that trusts whatever certificate comes.
class TlsClient {
 public:
  explicit TlsClient(const SocketAddress& address, int highest = 0) : connection_(address) {
    if (highest != 0) {
      SSL_CTX_set_max_proto_version(context_.get(), highest);
      SSL_CTX_set_min_proto_version(context_.get(), highest);
      SSL_CTX_set_security_level(context_.get(), 0);
    }
    tls_.reset(SSL_new(context_.get()));
    SSL_set_fd(tls_.get(), connection_.descriptor());
    is_connected_ = SSL_connect(tls_.get()) == 1;
  }
  bool is_connected() const { return is_connected_; }
  void send_text(const std::string& text) { ASSERT_EQ(SSL_write(tls_.get(), text.data(), static_cast<int>(text.size())), text.size()); }
  std::string receive_until(const std::string& end) {
    std::string received;
    char next = 0;
    while (!received.ends_with(end) && SSL_read(tls_.get(), &next, 1) == 1) {
      received += next;
    }
    return received;
  }
  /// What comes up to the server's farewell; `is_whole` says whether it took leave.
  std::string receive_all(bool* is_whole = nullptr) {
    std::string received;
    char buffer[4096];
    int num_bytes = 0;
    while ((num_bytes = SSL_read(tls_.get(), buffer, sizeof buffer)) > 0) {
      received.append(buffer, static_cast<size_t>(num_bytes));
    }
    if (is_whole != nullptr) {
      *is_whole = SSL_get_error(tls_.get(), num_bytes) == SSL_ERROR_ZERO_RETURN;
    }
    return received;
  }
  std::string certificate_name() const {
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(tls_.get()), &X509_free);
    char name[256] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name, sizeof name);
    return name;
  }

 private:
  ServeClient connection_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_client_method()), &SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{nullptr, &SSL_free};
  bool is_connected_ = false;
};

class tls : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to connections that the server has closed.
    write_pair("first");
  }
  void write_pair(const char* name) {
    const Key key = make_key();
    write_key(key, files_.key);
    write_certificate(key, files_.certificate, name);
  }
  void start(std::chrono::milliseconds head_timeout = std::chrono::minutes(10), int max_connections = 512) {
    server_ = HttpServer::start(service_, {.address = parse_metrics_address("0").value(),
                                           .tls = files_,
                                           .head_timeout = head_timeout,
                                           .max_connections = max_connections})
                  .value();
  }
  Status refusal(const TlsFiles& files) {
    return HttpServer::start(service_, {.address = parse_metrics_address("0").value(), .tls = files}).status();
  }

  TemporaryFolder folder_;
  TlsFiles files_{.certificate = folder_.path() + "/cert.pem", .key = folder_.path() + "/key.pem"};
  Greeting service_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(tls, requests_and_replies_are_those_of_plain_connections) {
  start();
  TlsClient client(server_->address());
  ASSERT_TRUE(client.is_connected());
  client.send_text("GET /one HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.receive_until("/one"), StartsWith("HTTP/1.1 200"));
  const std::string body(100'000, 'x');  // Longer than a record.
  client.send_text(post("/two", body));
  bool is_whole = false;
  EXPECT_THAT(client.receive_all(&is_whole), AllOf(StartsWith("HTTP/1.1 200"), EndsWith("/two" + body)));
  EXPECT_TRUE(is_whole);
}

TEST_F(tls, takes_1_2_and_1_3_and_nothing_older) {
  start();
  EXPECT_TRUE(TlsClient(server_->address(), TLS1_3_VERSION).is_connected());
  EXPECT_TRUE(TlsClient(server_->address(), TLS1_2_VERSION).is_connected());
  EXPECT_FALSE(TlsClient(server_->address(), TLS1_1_VERSION).is_connected());
}

TEST_F(tls, plain_bytes_get_no_answer_and_cost_only_themselves) {
  start();
  const ServeClient plain(server_->address());
  plain.send_text(get("/plain"));
  EXPECT_THAT(plain.receive_all(), testing::Not(HasSubstr("HTTP")));
  TlsClient client(server_->address());
  client.send_text(get("/after"));
  EXPECT_THAT(client.receive_all(), HasSubstr("/after"));
}

TEST_F(tls, a_handshake_that_is_not_ended_ends_at_its_deadline) {
  start(std::chrono::milliseconds(50));
  const ServeClient silent(server_->address());
  EXPECT_EQ(silent.receive_all(), "");
  const ServeClient half(server_->address());
  half.send_text(std::string("\x16\x03\x01\x02", 4));  // The begin of a record.
  EXPECT_EQ(half.receive_all(), "");
}

TEST_F(tls, a_head_that_does_not_go_on_is_told_so) {
  start(std::chrono::milliseconds(2000));
  TlsClient client(server_->address());
  ASSERT_TRUE(client.is_connected());
  client.send_text("GET /hea");
  bool is_whole = false;
  EXPECT_THAT(client.receive_all(&is_whole), AllOf(StartsWith("HTTP/1.1 408"), HasSubstr("Connection: close")));
  EXPECT_TRUE(is_whole);
}

TEST_F(tls, a_handshake_under_way_holds_no_place_that_another_needs) {
  start(std::chrono::minutes(10), 1);
  const ServeClient silent(server_->address());
  TlsClient client(server_->address());
  ASSERT_TRUE(client.is_connected());
  client.send_text(get("/here"));
  EXPECT_THAT(client.receive_all(), HasSubstr("/here"));
  EXPECT_EQ(silent.receive_all(), "");
}

TEST_F(tls, files_that_do_not_fit_are_refused_by_name) {
  const Key other = make_key();
  write_key(other, folder_.path() + "/other.pem");
  write_key(other, folder_.path() + "/locked.pem", "word");
  std::ofstream(folder_.path() + "/garbage.pem") << "garbage";
  const std::string missing = folder_.path() + "/missing.pem";
  for (const std::string& key : {folder_.path() + "/other.pem", folder_.path() + "/locked.pem", folder_.path() + "/garbage.pem", missing}) {
    const Status status = refusal({.certificate = files_.certificate, .key = key});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("--tls-key"), HasSubstr(key)));
  }
  for (const std::string& certificate : {folder_.path() + "/garbage.pem", missing, files_.key}) {
    const Status status = refusal({.certificate = certificate, .key = files_.key});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("--tls-cert"), HasSubstr(certificate)));
  }
  EXPECT_THAT(refusal({.certificate = files_.certificate, .key = ""}).message(), AllOf(HasSubstr("--tls-cert"), HasSubstr("--tls-key")));
}

TEST_F(tls, a_hangup_has_the_files_read_again_and_keeps_the_old_ones_where_they_do_not_fit) {
  start();
  TlsClient before(server_->address());
  EXPECT_EQ(before.certificate_name(), "first");
  write_pair("second");
  raise(SIGHUP);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto name = [&] { return TlsClient(server_->address()).certificate_name(); };
  while (name() != "second" && std::chrono::steady_clock::now() < limit) {
  }
  EXPECT_EQ(name(), "second");
  before.send_text(get("/still"));
  EXPECT_THAT(before.receive_all(), HasSubstr("/still"));
  std::ofstream(files_.key) << "garbage";
  raise(SIGHUP);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(name(), "second");
  }
}

TEST_F(tls, a_hangup_while_the_files_are_read_has_them_read_again) {
  const std::string key_bytes = read_file(local_files(), files_.key).value();
  std::filesystem::remove(files_.key);
  ASSERT_EQ(mkfifo(files_.key.c_str(), 0600), 0);  // The server waits for its key.
  auto started = std::async(std::launch::async, [&] { start(); });
  const int pipe = open_once_read(files_.key, started);
  ASSERT_GE(pipe, 0) << "the server did not come to its key";
  raise(SIGHUP);
  std::filesystem::remove(files_.key);
  write_pair("second");
  EXPECT_EQ(::write(pipe, key_bytes.data(), key_bytes.size()), static_cast<ssize_t>(key_bytes.size()));
  ::close(pipe);
  started.get();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto name = [&] { return TlsClient(server_->address()).certificate_name(); };
  while (name() != "second" && std::chrono::steady_clock::now() < limit) {
  }
  EXPECT_EQ(name(), "second");
}

}  // namespace
}  // namespace darkroom
