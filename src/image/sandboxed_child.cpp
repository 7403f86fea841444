#include "sandboxed_child.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace darkroom {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kStartTime{30};
constexpr int kWallFactor = 4;  // How much of a clock's time a machine with more work than cores may take.
// How late a death, an overrun or a stop may be seen: what has been waited already, within these bounds.
constexpr std::chrono::milliseconds kFirstSlice{2};
constexpr std::chrono::milliseconds kLastSlice{64};

Exchange died(const ProcessEnd& end) {
  if (end.signal == SIGKILL) {
    return {.outcome = Exchange::Outcome::kKilled, .trouble = "the decoder was killed by somebody else or for lack of memory"};
  }
  return {.outcome = Exchange::Outcome::kDied, .trouble = fmt::format("the decoder died of this picture: {}", end.how)};
}

std::string refusal_of(const char* protection, int error) { return fmt::format("{} ({})", protection, std::strerror(error)); }

SandboxProtection read_report(const LockDownReport& report) {
  SandboxProtection protection{.has_seccomp = report.seccomp_error == 0, .landlock_abi = report.landlock_abi};
  if (report.seccomp_error != 0) {
    protection.missing = "decoders run without seccomp: " + refusal_of("seccomp filter", report.seccomp_error);
  } else if (report.landlock_abi == 0) {
    protection.missing = "decoders run without Landlock: " + refusal_of("Landlock ruleset", report.landlock_error);
  }
  return protection;
}

}  // namespace

Result<SandboxedChild> SandboxedChild::start(const SandboxOptions& options, size_t input_capacity, size_t output_capacity) {
  DARKROOM_ASSIGN_OR_RETURN(DecoderChannel channel, DecoderChannel::create(input_capacity, output_capacity));
  channel.header().limits = {.memory_bytes = options.memory_bytes, .cpu_seconds = static_cast<uint64_t>(options.time_per_child.count())};
  DARKROOM_ASSIGN_OR_RETURN(DecoderProcess process, DecoderProcess::start(options.program, channel.descriptor()));
  SandboxedChild child(std::move(channel), std::move(process));
  DARKROOM_RETURN_IF_ERROR(child.take_report(options));
  return child;
}

Status SandboxedChild::take_report(const SandboxOptions& options) {
  const Exchange start = await(ChannelHeader::kReady, steady_clock::now() + kStartTime, std::chrono::hours(1), options.stop);
  switch (start.outcome) {
    case Exchange::Outcome::kAnswered:
      break;
    case Exchange::Outcome::kStopped:
      return Status::cancelled("stopped while a decoder was started:", options.program);
    case Exchange::Outcome::kOverran:
    case Exchange::Outcome::kKilled:
      return Status::unavailable("the decoder did not start (program, reason):", options.program, start.trouble);
    case Exchange::Outcome::kDied:
    case Exchange::Outcome::kBroken:
      return Status::failed_precondition("this program is no decoder that runs here and is of this version (program, what it said, end):",
                                         options.program, fmt::format("\"{}\"", process_.said()), process_.ended()->how);
  }
  const LockDownReport report = channel_.header().report;  // Written before the child read a byte of a picture.
  if (report.limits_error != 0) {
    return Status::failed_precondition("cannot limit what a decoder takes, the system refuses setrlimit (reason):",
                                       std::strerror(report.limits_error));
  }
  if (report.seccomp_error != 0 && report.landlock_abi == 0) {
    return Status::failed_precondition(
        "cannot lock a decoder in: allow one of these calls where this program runs (a container's seccomp profile), or decode in "
        "process with --no-sandbox; the kernel refuses:",
        refusal_of("seccomp filter", report.seccomp_error), "and", refusal_of("Landlock ruleset", report.landlock_error));
  }
  protection_ = read_report(report);
  return Status::ok();
}

Exchange SandboxedChild::ask(const DecoderRequest& request, const SandboxOptions& options) {
  ChannelHeader& header = channel_.header();
  header.request = request;
  header.request_number.store(++number_, std::memory_order_release);
  wake_other_side(header.request_number);
  return await(number_, steady_clock::now() + kWallFactor * options.time_per_picture, process_.processor_time() + options.time_per_picture,
               options.stop);
}

Exchange SandboxedChild::await(uint32_t number, Instant deadline, std::chrono::nanoseconds processor_deadline,
                               const std::stop_token& stop) {
  const std::atomic<uint32_t>& word = channel_.header().response_number;
  for (std::chrono::milliseconds slice = kFirstSlice;; slice = std::min(2 * slice, kLastSlice)) {
    wait_for_change(word, number - 1, slice);
    if (word.load(std::memory_order_acquire) == number) {
      return answer();
    }
    const std::optional<ProcessEnd> end = process_.ended();
    const bool is_late = steady_clock::now() >= deadline || process_.processor_time() >= processor_deadline;
    // Read again: what came before the end counts, also where this process slept until after the deadline.
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (seen == number) {
      return answer();
    }
    if (end) {
      return died(*end);
    }
    if (seen != number - 1) {
      process_.end();
      return {.outcome = Exchange::Outcome::kBroken,
              .trouble = fmt::format("the decoder answered out of turn (want, got): {} {}", number, seen)};
    }
    if (is_late || stop.stop_requested()) {
      const std::chrono::nanoseconds time_left = processor_deadline - process_.processor_time();
      process_.end();
      return is_late ? Exchange{.outcome = Exchange::Outcome::kOverran,
                                .trouble = "the decoder ran out of time with this picture",
                                .time_left = time_left}
                     : Exchange{.outcome = Exchange::Outcome::kStopped, .trouble = "stopped"};
    }
  }
}

Exchange SandboxedChild::answer() const {
  return {.outcome = Exchange::Outcome::kAnswered, .response = copy_once(channel_.header().response)};
}

}  // namespace darkroom
