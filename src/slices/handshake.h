#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/slices/slice_names.h"
#include "frames.h"

namespace darkroom {

// What encoder and trainer say before the first slice. Neither sends the token: each proves that it knows it by an HMAC over what the
// other one drew.

/// 32 random bytes as 64 hex digits.
std::string draw_nonce();

/// What the named side ("encoder", "trainer") answers to the other side's nonce.
std::string proof_of(std::string_view token, std::string_view side, std::string_view nonce);

/// Errors: kFailedPrecondition naming the first fact that the trainer wants otherwise than the encoder has it, and both values.
Status compare_facts(const nlohmann::json& encoder, const nlohmann::json& trainer, const SliceNames& names = {});

/// A body that is a JSON object. Errors: kCorruptData.
Result<nlohmann::json> parse_words(const Frame& frame);

/// A failure as a body, and back. Errors of parsing: the failure itself, or kCorruptData.
std::string failure_words(const Status& failure);
Status parse_failure(std::string_view body);

}  // namespace darkroom
