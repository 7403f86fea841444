#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/core/status.h"
#include "darkroom/image/picture_decoder.h"

namespace darkroom {

/// A decoder in a process of its own that may do nothing but compute (docs/sandbox.md).
struct SandboxOptions {
  std::string program;                    ///< Path of darkroom-decoder, of the same version as this program.
  size_t memory_bytes = size_t{1} << 30;  ///< What a picture may take; a decode takes up to 11 bytes a pixel of it. At least 16 MiB.
  std::chrono::milliseconds time_per_picture{10'000};  ///< Processor time of the child; of a clock on the wall four times as much.
  std::chrono::seconds time_per_child{3600};     ///< Processor time after which the kernel ends a child; replaced in good time before.
  size_t input_bytes = size_t{4} << 20;          ///< Shared memory for the encoded picture; a larger one gets another child for itself.
  size_t largest_input_bytes = size_t{1} << 28;  ///< A picture of more bytes is kTooLarge.
  std::stop_token stop{};                        ///< A request ends the picture under way with kCancelled.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// What the kernel grants a decoder against itself. Limits of resources are always in force.
struct SandboxProtection {
  bool has_seccomp = false;  ///< System calls are filtered.
  int landlock_abi = 0;      ///< Version of Landlock that keeps it from files, TCP (from 4) and signals (from 6); 0: none.
  std::string missing{};     ///< What is refused and why, for a log line said once; "" where both are in force.
};

/// Starts a child, asks what protects it and ends it. Errors: those of decoder_in_child.
Result<SandboxProtection> examine_sandbox(const SandboxOptions& options);

/// A decoder whose results are those of decoder_in_process() to the last bit. A child that dies, overruns its time or answers what no
/// decoder answers costs the picture it had (kDecodeFailed) and is replaced. Memory: input_bytes + 1 MiB shared, or what the largest
/// square needs, and up to memory_bytes of the child's own.
/// Errors: kInvalidArgument, kNotFound (no such program), kFailedPrecondition (the kernel grants neither seccomp nor Landlock, or no
/// limits: both reasons are named; or the program is no decoder of this version), kUnavailable (it cannot be started, or says nothing
/// for half a minute), kResourceExhausted (shared memory), kCancelled. Later calls can fail with the same.
/// The children end with the decoder, and with this process, however it ends. They belong to the thread that calls (the kernel ends them
/// with it): a decoder that is handed to another thread starts another child at the next call.
Result<std::unique_ptr<PictureDecoder>> decoder_in_child(const SandboxOptions& options);

/// The options of `program` with memory for the largest picture that `limits` let pass, so that whether a picture can be decoded does not
/// depend on where.
SandboxOptions sandbox_for(std::string program, const ImageLimits& limits, std::stop_token stop);

/// Finds out before anything is written whether `program` can be locked in, and warns of what its protection lacks. An empty program: ok.
/// Errors: decoder_in_child's.
Status check_decoder(const std::string& program, const ImageLimits& limits, std::stop_token stop);

/// The decoder of a worker: decoder_in_child of sandbox_for(program, limits, stop), or decoder_in_process() where `program` is empty.
/// Errors: decoder_in_child's.
Result<std::unique_ptr<PictureDecoder>> open_decoder(const std::string& program, const ImageLimits& limits, std::stop_token stop);

}  // namespace darkroom
