#pragma once

#include <string>

namespace darkroom {

/// What the two sides of slices and their flags are called in messages: encoders and trainers, or transformers and jobs.
struct SliceNames {
  std::string peer = "encoder";                    ///< Who makes slices.
  std::string asker = "trainer";                   ///< Who asks for them.
  std::string addresses_flag = "--encoders";       ///< Of the asker: where the peers are.
  std::string timeout_flag = "--encoder-timeout";  ///< Of the asker: how long a peer may be silent; empty: there is none.

  std::string a_peer() const { return with_article(peer); }
  std::string an_asker() const { return with_article(asker); }

 private:
  static std::string with_article(const std::string& word) {
    return (std::string("aeiou").find(word.front()) == std::string::npos ? "a " : "an ") + word;
  }
};

/// Those of `process --transformers`.
inline SliceNames transformer_names() {
  return {.peer = "transformer", .asker = "job", .addresses_flag = "--transformers", .timeout_flag = ""};
}

}  // namespace darkroom
