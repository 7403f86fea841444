#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "darkroom/files/store.h"
#include "darkroom/stores/web_client.h"

namespace darkroom {

/// Files of web servers, for reading; writing and listing are kFailedPrecondition. A path is HOST[:PORT]/PATH as in a URL.
///
/// A file is read in parts (Range), so a server that gives whole files alone is kFailedPrecondition for all but stat and read_small. An
/// open file is the one version that its first answer told of (ETag, else Last-Modified, and the size): another one later on is
/// kFailedPrecondition, "begin again". Queries of URLs, which may be secret (signatures), are kept apart from the paths and are in no
/// message and no URI.
class HttpsStore : public Store {
 public:
  /// The path of a URL of this store's scheme; remembers its query. Errors: kInvalidArgument: no URL, another scheme, no name of a file,
  /// a pattern; kFailedPrecondition: the same URL with another query is known.
  virtual Result<std::string> add(std::string_view url) = 0;
};

/// `scheme`: "https" or "http". Calls end with kCancelled when `stop` is asked for. `web` outlives the store.
std::unique_ptr<HttpsStore> make_https_store(WebClient& web, std::string scheme, std::stop_token stop = {});

}  // namespace darkroom
