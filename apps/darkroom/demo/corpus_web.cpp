#include "corpus_web.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "child_process/child_process.h"

namespace darkroom {
namespace {

constexpr int kAttempts = 3;  // Another program may take the port between its release and the server's start.
constexpr uint16_t kAnyPort = 0;

/// Keeps a port of 127.0.0.1 from others without listening on it.
class ReservedPort {
 public:
  explicit ReservedPort(uint16_t wanted) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;  // Connections of an earlier demo may still linger on the port.
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_port = htons(wanted);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_, generic, size) == 0 && getsockname(socket_, generic, &size) == 0) {
      port_ = ntohs(address.sin_port);
    }
  }
  ~ReservedPort() { close(socket_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  /// 0 when it is not to be had; errno says why.
  uint16_t port() const { return port_; }

 private:
  int socket_;
  uint16_t port_ = 0;
};

Status run_tool(const DemoTools& tools, const std::string& folder, uint64_t seed, uint16_t port, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const ChildOutput output, run_child({tools.python, tools.corpus_tool, folder, "--seed", fmt::format("{}", seed),
                                                                 "--base-url", fmt::format("http://127.0.0.1:{}", port)},
                                                                stop));
  if (output.exit_code == 0) {
    return Status::ok();
  }
  return Status::failed_precondition("the corpus tool failed; `make setup` installs what it needs (tool, exit code, what it said):",
                                     tools.corpus_tool, output.exit_code, output.text);
}

// The port stays taken while the corpus that names it is written.
Result<uint16_t> make_corpus(const DemoTools& tools, const std::string& folder, uint64_t seed, uint16_t wanted_port,
                             const std::stop_token& stop) {
  const ReservedPort reserved(wanted_port);
  if (reserved.port() == 0 && wanted_port != kAnyPort) {
    return make_corpus(tools, folder, seed, kAnyPort, stop);
  }
  if (reserved.port() == 0) {
    return Status::unavailable("no free port on 127.0.0.1:", std::strerror(errno));
  }
  DARKROOM_RETURN_IF_ERROR(run_tool(tools, folder, seed, reserved.port(), stop));
  return reserved.port();
}

}  // namespace

Result<std::unique_ptr<TroubledWeb>> make_corpus_web(const DemoTools& tools, const std::string& folder, uint64_t seed,
                                                     const std::stop_token& stop, uint16_t usual_port) {
  for (int attempt = 1;; ++attempt) {
    DARKROOM_ASSIGN_OR_RETURN(const uint16_t port, make_corpus(tools, folder, seed, attempt == 1 ? usual_port : kAnyPort, stop));
    auto web = TroubledWeb::start(folder, port);
    if (web.is_ok() || web.status().code() != StatusCode::kUnavailable || attempt == kAttempts) {
      return web;
    }
  }
}

}  // namespace darkroom
