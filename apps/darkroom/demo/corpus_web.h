#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "demo_tools.h"
#include "troubled_web/troubled_web.h"

namespace darkroom {

/// The port of a demo where it is free: URLs are part of images/, so demos on the same port write the same bytes.
inline constexpr uint16_t kUsualPort = 8765;

/// Writes the corpus into `folder` (docs/corpus.md) and serves it on 127.0.0.1, on `usual_port` or, where that is taken, on any free
/// one; its URLs name the port.
/// Errors: kFailedPrecondition with what the tool said, kUnavailable (no port), kCancelled.
Result<std::unique_ptr<TroubledWeb>> make_corpus_web(const DemoTools& tools, const std::string& folder, uint64_t seed,
                                                     const std::stop_token& stop, uint16_t usual_port = kUsualPort);

}  // namespace darkroom
