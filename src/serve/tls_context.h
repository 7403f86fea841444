#pragma once

#include <memory>

#include <boost/asio/ssl/context.hpp>

#include "darkroom/core/result.h"
#include "darkroom/serve/http_server.h"

namespace darkroom {

/// What connections get their TLS from: 1.2 and later, without renegotiation. Errors: kInvalidArgument naming the file that cannot be read
/// or holds no certificate or key, and a key of another certificate.
Result<std::shared_ptr<boost::asio::ssl::context>> open_tls(const TlsFiles& files);

}  // namespace darkroom
