#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/web/http_exchange.h"
#include "s3_documents.h"
#include "s3_retry.h"
#include "s3_signature.h"

namespace darkroom {

// One operation of S3, its answer, and how messages and metrics call both. What is asked again, and how: s3_sender.h. Values and pure
// functions: any thread.

/// An object of a bucket; an empty key is the bucket itself.
struct S3Name {
  std::string bucket;
  std::string key;

  std::string uri() const;  ///< s3://BUCKET/KEY; "%", "?", "#" and control characters of the key as %XX.
};

enum class S3Patience {
  kFull,   ///< As docs/stores.md says of failures.
  kTries,  ///< The same, but once its tries are over a store that cannot be reached is not waited for.
  kLeast,  ///< As S3Options::least_patience, ahead of the bucket's queue, and not at all while nobody answers: what is left is found later.
};

/// One operation, as it is meant.
struct S3Call {
  std::string_view doing;  ///< For messages: "reading", "storing".
  std::string method;
  S3Name name;
  std::vector<S3Parameter> query = {};
  std::vector<S3Header> headers = {};
  std::vector<std::span<const std::byte>> body = {};
  int64_t max_answer_bytes = 5'000'000;
  std::string_view outcome_root = {};  ///< Of an operation that may fail after its status 200 (read_outcome).
  bool may_be_silent = false;          ///< The server may work for long before it answers.
  S3Patience patience = S3Patience::kFull;
  std::function<bool()> is_in_vain = {};  ///< Asked at each InternalError: true, it stands, and is not tried again.
};

/// The answer that stands: success, or a failure that trying again does not mend.
struct S3Reply {
  int status = 0;
  HttpHead head = {};
  std::string body = {};
  S3Error error = {};  ///< Of a failure; its code may be empty (HEAD has no body).

  bool is_ok() const { return status / 100 == 2 && error.code.empty(); }
};

/// The name of the operation, one of a closed list.
std::string_view operation_of(const S3Call& call);

/// What the answer says went wrong; an empty code: nothing, or nothing that is understood.
S3Error error_in(const S3Call& call, int status, const std::string& body);

/// How one request ended, for docs/metrics.md: with an answer, or without one.
std::string_view result_word(const S3Reply& reply, S3Verdict verdict);
std::string_view result_word(HttpEnd end);

/// What a failure is, in our own words.
struct S3Words {
  StatusCode code;
  std::string_view what;
};
/// REQUIRES: the reply is not ok.
S3Words words_of(const S3Reply& reply);

}  // namespace darkroom
