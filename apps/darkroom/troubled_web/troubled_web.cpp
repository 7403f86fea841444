#include "troubled_web.h"

#include <fmt/format.h>

#include "web_routes.h"
#include "web_server.h"

namespace darkroom {

class TroubledWeb::Server {
 public:
  WebRoutes routes;
  WebServer server{routes};
};

Result<std::unique_ptr<TroubledWeb>> TroubledWeb::start(const std::string& folder, uint16_t port, LoopbackHosts hosts) {
  auto server = std::make_unique<Server>();
  DARKROOM_RETURN_IF_ERROR(read_web_routes(folder, server->routes));
  DARKROOM_RETURN_IF_ERROR(server->server.start(port, hosts));
  return std::unique_ptr<TroubledWeb>(new TroubledWeb(std::move(server)));
}

TroubledWeb::TroubledWeb(std::unique_ptr<Server> server) : server_(std::move(server)) {}
TroubledWeb::~TroubledWeb() = default;

uint16_t TroubledWeb::port() const { return server_->server.port(); }

std::string TroubledWeb::url() const { return fmt::format("http://127.0.0.1:{}", port()); }

int64_t TroubledWeb::num_requests(const std::string& route) const {
  const auto found = server_->routes.find(route);
  return found == server_->routes.end() ? 0 : found->second.num_requests.load();
}

int64_t TroubledWeb::num_requests() const { return server_->server.num_requests(); }

int64_t TroubledWeb::num_connections() const { return server_->server.num_connections(); }

void TroubledWeb::stop() { server_->server.stop(); }

}  // namespace darkroom
