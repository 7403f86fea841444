#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "command_line.h"
#include "darkroom/core/log.h"
#include "darkroom/core/printable.h"
#include "darkroom/core/shown_uri.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/core/version.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/tensor/device_runtime.h"
#include "self_description.h"
#include "verb.h"

namespace darkroom {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

/// Turns SIGINT and SIGTERM into a stop request; a second signal ends the process at once, but not a rank among others.
/// The signals are blocked in every thread and the first is read by one thread; only a second one runs a handler, which ends it all.
class SignalWatch {
 public:
  /// Whether this process is one of several that stop together: what stops them all (a launcher, systemd, scancel, Ctrl-C) often reaches
  /// each of them twice, and the second time must not cost the checkpoint.
  static inline std::atomic<bool> is_rank = false;
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler reads it");

  SignalWatch() {
    sigemptyset(&watched_);
    sigaddset(&watched_, SIGINT);
    sigaddset(&watched_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &watched_, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);  // Ignored, as whoever started this program may have left it, it would lose the exit codes of tools.
  }

  /// Errors: kResourceExhausted where the process may not open two more descriptors or start a thread.
  Status start() {
    signals_ = signalfd(-1, &watched_, SFD_CLOEXEC);
    finished_ = signals_ < 0 ? -1 : eventfd(0, EFD_CLOEXEC);
    if (finished_ < 0) {
      return Status::resource_exhausted("cannot watch for signals; let the process open more files (ulimit -n):",
                                        std::generic_category().message(errno));
    }
    try {
      thread_ = std::jthread([this] { watch(); });
    } catch (const std::system_error& error) {
      return Status::resource_exhausted("cannot start a thread that watches for signals; let there be more processes (ulimit -u):",
                                        error.code().message());
    }
    return Status::ok();
  }

  ~SignalWatch() {
    if (thread_.joinable()) {
      eventfd_write(finished_, 1);
      thread_.join();
    }
    close(signals_);
    close(finished_);
  }

  std::stop_token token() { return stop_.get_token(); }
  /// 130 or 143 after SIGINT or SIGTERM, 0 before.
  int exit_code() const { return received_ == 0 ? 0 : 128 + received_; }

 private:
  void watch() {
    std::array<pollfd, 2> sources = {pollfd{signals_, POLLIN, 0}, pollfd{finished_, POLLIN, 0}};
    while (poll(sources.data(), sources.size(), -1) < 0) {
    }
    signalfd_siginfo info{};
    if ((sources[0].revents & POLLIN) == 0 || read(signals_, &info, sizeof info) != sizeof info) {
      return;
    }
    received_ = static_cast<int>(info.ssi_signo);
    // From here on a signal comes through even where this thread waits for somebody to read stderr.
    for (const int number : {SIGINT, SIGTERM}) {
      signal(number, [](int second) {
        if (!is_rank) {
          _exit(128 + second);
        }
      });
    }
    pthread_sigmask(SIG_UNBLOCK, &watched_, nullptr);
    stop_.request_stop();
    log_warning("stopping after what is complete has been committed; {}",
                is_rank ? "only SIGQUIT or SIGKILL stops at once" : "a second signal stops at once");
    eventfd_t end = 0;
    while (eventfd_read(finished_, &end) != 0) {
    }
  }

  sigset_t watched_{};
  std::stop_source stop_;
  std::atomic<int> received_ = 0;
  int signals_ = -1;
  int finished_ = -1;  // Written by the destructor.
  std::jthread thread_;
};

// The verbs in the order of the help.
std::unique_ptr<CommandLine> make_command_line() {
  auto line = std::make_unique<CommandLine>("darkroom", "pre-trains Stable Diffusion from a list of URLs", std::string(kVersion));
  line->group("From URLs to pictures");
  add_download_verb(*line);
  add_process_verb(*line);
  add_transformer_verb(*line);
  add_train_verb(*line);
  add_encoder_verb(*line);
  add_tune_verb(*line);
  add_sample_verb(*line);
  add_serve_verb(*line);
  line->group("Looking and preparing");
  add_inspect_verb(*line);
  add_compare_verb(*line);
  add_models_verbs(*line);
  add_plan_verb(*line);
  add_top_verb(*line);
  line->group("This machine");
  add_doctor_verb(*line);
  add_demo_verb(*line);
  add_bench_verb(*line);
  line->group("Small tools");
  add_tokenize_verb(*line);
  add_transform_verb(*line);
  line->group("Shell");
  add_self_description(*line, make_command_line);
  return line;
}

Result<int> run_action(const VerbDefinition& verb, VerbContext& context) {
  try {
    return verb.action()(context);
  } catch (const std::exception& failure) {
    return caught_on_device(failure);
  }
}

int exit_code_of(const Result<int>& result, const SignalWatch& signals) {
  if (result.is_ok()) {
    return result.value();
  }
  if (result.status().code() == StatusCode::kCancelled && signals.exit_code() != 0) {
    return signals.exit_code();
  }
  return result.status().code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

void remove_uri_secrets(nlohmann::json& value) {
  if (value.is_string()) {
    value = without_uri_secrets(value.get_ref<const std::string&>());
  } else if (value.is_structured()) {
    for (nlohmann::json& inner : value) {
      remove_uri_secrets(inner);
    }
  }
}

// Before hours of work, at whose end it would be lost. A command may make the folder, and only one rank of many writes.
Result<std::string> why_summary_would_be_lost(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const WriteTarget target, local_files().find_write_target(path));
  const std::string folder = parent_folder(target.path);
  std::error_code ignored;
  if (target.is_stream) {
    return std::string();
  }
  if (std::filesystem::is_directory(target.path, ignored)) {
    return std::string("it names a folder");
  }
  if (!std::filesystem::is_directory(folder, ignored)) {
    return "there is no folder " + folder + " yet";
  }
  return access(folder.c_str(), W_OK | X_OK) == 0 ? std::string() : "nothing can be written to " + folder;
}

void warn_of_lost_summary(const std::string& path) {
  const Result<std::string> why = why_summary_would_be_lost(path);
  if (!why.is_ok() || !why->empty()) {
    log_warning("--json-summary: {}; if that stays so, {} is lost at the end", why.is_ok() ? *why : why.status().message(), path);
  }
}

// Paths and messages may hold bytes that are no UTF-8: JSON gets a replacement for them.
Status write_summary(const std::string& path, nlohmann::json summary) {
  remove_uri_secrets(summary);
  // Folders are not made for it: a run's last word in a folder of a misspelt name would be missed.
  DARKROOM_ASSIGN_OR_RETURN(const bool has_folder, local_files().exists(parent_folder(path)));
  if (!has_folder) {
    return Status::not_found("no such folder:", parent_folder(path));
  }
  return write_file_atomic(local_files(), path, summary.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// When stderr takes nothing, there is nobody left to tell; the exit code still says it.
int fail(const std::string& text, int exit_code) {
  const std::string line = (may_color(STDERR_FILENO) ? "\x1b[1;31merror:\x1b[0m " : "error: ") + printable_message(text) + "\n";
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
  return exit_code;
}

int print_and_end(const std::string& text) {
  const Status status = print_text(text);
  return status.is_ok() ? 0 : fail(status.message(), kExitFailed);
}

// A closed standard stream would lend its number to the next file that is opened, and a log line would land in a shard.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) {
      // Opened the other way round, so that using it fails as it would have.
      static_cast<void>(open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_WRONLY));
    }
  }
}

int run_call(const CommandLine& line, const Call& call, SignalWatch& signals) {
  set_verbosity(line.shared().quiet ? Verbosity::kQuiet : line.shared().verbose ? Verbosity::kVerbose : Verbosity::kNormal);
  log_detail("{} {}", line.program(), line.version());
  for (const std::string& setting : call.settings) {
    log_detail("{}: {}", call.verb->name(), setting);
  }
  VerbContext context{.stop = signals.token(), .given = call.given, .summary_path = line.shared().summary_path, .is_rank = [] {
                        SignalWatch::is_rank = true;
                      }};
  if (!context.summary_path.empty()) {
    warn_of_lost_summary(context.summary_path);
  }
  const Result<int> result = run_action(*call.verb, context);
  show_progress("");
  int exit_code = exit_code_of(result, signals);
  if (!result.is_ok()) {
    log_error("{}: {}", call.verb->name(), result.status().message());
    context.summary["error"] = result.status().message();
  }
  // What was printed may still wait in the buffer; a full disk or a closed stream shows only now.
  if (const Status printed = print_text(""); !printed.is_ok() && exit_code == 0) {
    log_error("{}: {}", call.verb->name(), printed.message());
    context.summary["error"] = printed.message();
    exit_code = kExitFailed;
  }
  const std::string& path = context.summary_path;
  const Status written = path.empty() || !context.writes_summary ? Status::ok() : write_summary(path, context.summary);
  if (!written.is_ok()) {
    log_error("--json-summary: {}", written.message());
  }
  exit_code = written.is_ok() || exit_code != 0 ? exit_code : kExitFailed;
  if (context.ends_with_threads) {
    std::fflush(nullptr);
    _exit(exit_code);
  }
  return exit_code;
}

int run_program(const std::vector<std::string>& arguments) {
  open_standard_streams();
  SignalWatch signals;
  if (const Status started = signals.start(); !started.is_ok()) {
    return fail(started.message(), kExitFailed);
  }
  const auto line = make_command_line();
  Call call;
  if (const auto refusal = line->read(arguments, call)) {
    return fail(refusal->message + "\n" + refusal->hint, kExitUsage);
  }
  return call.verb == nullptr ? print_and_end(call.text) : run_call(*line, call, signals);
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  // Without arguments at all, not even the program's name, there is no verb either.
  const int exit_code = darkroom::run_program(argc > 0 ? std::vector<std::string>(argv + 1, argv + argc) : std::vector<std::string>());
  // A profiler of GPUs writes what it saw when the program ends in the usual way.
  if (std::getenv("CUDA_INJECTION64_PATH") != nullptr || std::getenv("LD_PRELOAD") != nullptr) {
    return exit_code;
  }
  // Nothing of ours is left, and to take torch's tables of operators apart takes a third of the time of a short call.
  std::fflush(nullptr);
  std::quick_exit(exit_code);
}
