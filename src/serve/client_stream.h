#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>

namespace darkroom {

/// A client's connection, plain or with TLS, as Asio and Beast read and write it. Of the I/O thread.
class ClientStream {
 public:
  using Tcp = boost::asio::ip::tcp;
  using executor_type = Tcp::socket::executor_type;
  using Tls = boost::asio::ssl::stream<Tcp::socket&>;

  /// `tls`: null for a plain connection.
  ClientStream(Tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> tls) : socket_(std::move(socket)), context_(std::move(tls)) {
    if (context_ != nullptr) {
      tls_.emplace(socket_, *context_);
    }
  }

  executor_type get_executor() { return socket_.get_executor(); }
  /// Beneath TLS.
  Tcp::socket& socket() { return socket_; }
  bool has_tls() const { return tls_.has_value(); }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    tls_.has_value() ? tls_->async_read_some(buffers, std::forward<Handler>(handler))
                     : socket_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    tls_.has_value() ? tls_->async_write_some(buffers, std::forward<Handler>(handler))
                     : socket_.async_write_some(buffers, std::forward<Handler>(handler));
  }
  /// REQUIRES: has_tls().
  template <typename Handler>
  void async_handshake(Handler&& handler) {
    tls_->async_handshake(Tls::server, std::forward<Handler>(handler));
  }
  /// Says that nothing more comes, and waits for the client's word that it has heard. REQUIRES: has_tls().
  template <typename Handler>
  void async_farewell(Handler&& handler) {
    tls_->async_shutdown(std::forward<Handler>(handler));
  }

 private:
  Tcp::socket socket_;
  const std::shared_ptr<boost::asio::ssl::context> context_;  // Shared with the server and the other connections of its time.
  std::optional<Tls> tls_;
};

}  // namespace darkroom
