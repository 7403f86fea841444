#include "darkroom/serve/drain.h"

#include "darkroom/core/log.h"

namespace darkroom {

void drain(const ServingParts& parts, const DrainOptions& options) {
  if (parts.models != nullptr) {
    parts.models->drain();
  }
  parts.batcher.drain();
  parts.server.drain();
  if (!parts.server.await_quiet(options.patience)) {
    log_warning("serve: requests that were not done within {} s are given up", std::chrono::duration<double>(options.patience).count());
    parts.batcher.give_up_all();
    if (parts.intake != nullptr) {
      parts.intake->stop();
    }
    parts.service.stop_finishing();
    parts.server.await_quiet(options.last_words);
  }
  parts.batcher.give_up_all();  // Jobs that nobody watches: who asked for them could not fetch their pictures any more.
}

}  // namespace darkroom
