#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// A credential_process as words, as the AWS tools split it: at white space, "..." and '...' as one word, \ before a character that is
/// meant itself. No shell, so no variables, patterns or pipes. Errors: kInvalidArgument (no word, an open quote), without the text.
Result<std::vector<std::string>> split_key_command(std::string_view command);

/// Runs a program, `command[0]` looked up in PATH when it holds no slash, and returns what it wrote to stdout: keys. Its stdin is empty,
/// its stderr goes nowhere, because nobody knows what it shows; it and what it started are killed when `timeout` has passed or `stop` is
/// requested. Of our environment it lacks what begins with HF_, HUGGING_FACE_ or DARKROOM_. Errors, without output and arguments: kNotFound
/// (cannot be started), kFailedPrecondition (ended with a failure, too much output), kUnavailable (timeout, no pipe), kCancelled.
Result<std::string> run_key_process(const std::vector<std::string>& command, std::chrono::milliseconds timeout,
                                    const std::stop_token& stop = {});

}  // namespace darkroom
