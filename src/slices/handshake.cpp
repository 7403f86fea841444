#include "handshake.h"

#include <fmt/format.h>

#include <random>

#include "darkroom/core/hmac_sha256.h"
#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

constexpr size_t kMostMessageBytes = 4096;
constexpr int kNonceWords = 8;

std::string dump_json(const nlohmann::json& value) { return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

/// The code of that name; kInternal for one that is not known.
StatusCode code_of_name(std::string_view name) {
  for (int code = static_cast<int>(StatusCode::kInvalidArgument); code <= static_cast<int>(StatusCode::kInternal); ++code) {
    if (status_code_name(static_cast<StatusCode>(code)) == name) {
      return static_cast<StatusCode>(code);
    }
  }
  return StatusCode::kInternal;
}

}  // namespace

std::string draw_nonce() {
  std::random_device device;  // The system's generator: 32 bits a call.
  std::string nonce;
  for (int i = 0; i < kNonceWords; ++i) {
    nonce += fmt::format("{:08x}", device());
  }
  return nonce;
}

std::string proof_of(std::string_view token, std::string_view side, std::string_view nonce) {
  std::string hex;
  for (const char c : hmac_sha256(token, fmt::format("{}:{}", side, nonce))) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return hex;
}

Status compare_facts(const nlohmann::json& encoder, const nlohmann::json& trainer, const SliceNames& names) {
  for (const auto& [name, value] : encoder.items()) {
    const nlohmann::json wanted = trainer.is_object() ? trainer.value(name, nlohmann::json()) : nlohmann::json();
    if (wanted != value) {
      return Status::failed_precondition(
          fmt::format("{0} and {1} do not fit together; start the {0} with the {1}'s values (what, at the {0}, at the {1}):", names.peer,
                      names.asker),
          name, dump_json(value), dump_json(wanted).substr(0, kMostMessageBytes));
    }
  }
  return {};
}

Result<nlohmann::json> parse_words(const Frame& frame) {
  auto words = parse_json(frame.body);
  if (!words.is_object()) {
    return Status::corrupt_data("what came over the connection is no JSON object (type of the frame):", static_cast<int>(frame.type));
  }
  return words;
}

std::string failure_words(const Status& failure) {
  return dump_json({{"code", status_code_name(failure.code())}, {"message", failure.message().substr(0, kMostMessageBytes)}});
}

Status parse_failure(std::string_view body) {
  const auto words = parse_json(body);
  if (!words.is_object() || !words.contains("code") || !words["code"].is_string() || !words.contains("message") ||
      !words["message"].is_string()) {
    return Status::corrupt_data("what came over the connection tells of a failure without saying which");
  }
  return Status::make(code_of_name(words["code"].get_ref<const std::string&>()), words["message"].get_ref<const std::string&>());
}

}  // namespace darkroom
