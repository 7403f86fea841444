#include "tls_context.h"

#include <openssl/ssl.h>

#include <string>

namespace darkroom {
namespace {

namespace ssl = boost::asio::ssl;
using ErrorCode = boost::system::error_code;

}  // namespace

Result<std::shared_ptr<ssl::context>> open_tls(const TlsFiles& files) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);  // Shared with connections.
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  context->set_options(ssl::context::default_workarounds | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                       SSL_OP_CIPHER_SERVER_PREFERENCE);
  ErrorCode error;
  // OpenSSL would ask for a password on the terminal.
  context->set_password_callback([](size_t, ssl::context::password_purpose) { return std::string(); }, error);
  context->use_certificate_chain_file(files.certificate, error);
  if (error) {
    return Status::invalid_argument("the file of --tls-cert must be there and hold certificates in PEM (file, reason):", files.certificate,
                                    error.message());
  }
  context->use_private_key_file(files.key, ssl::context::pem, error);
  if (error) {
    return Status::invalid_argument(
        "the file of --tls-key must be there and hold the certificate's private key in PEM, without a password (file, reason):", files.key,
        error.message());
  }
  return context;
}

}  // namespace darkroom
