#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/version.h"
#include "verb.h"

namespace darkroom {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Verbs and flags of the design that a later release brings; naming one says so instead of "unknown".
constexpr std::array<std::string_view, 3> kLaterVerbs = {"serve", "tune", "plan"};

/// Turns SIGINT and SIGTERM into a stop request; a second signal ends the process at once.
/// The signals are blocked in every thread and read by one thread, so no code runs inside a signal handler.
class SignalWatch {
 public:
  SignalWatch() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC);
    finished_ = eventfd(0, EFD_CLOEXEC);
    thread_ = std::jthread([this] { watch(); });
  }

  ~SignalWatch() {
    eventfd_write(finished_, 1);
    thread_.join();
    close(signals_);
    close(finished_);
  }

  std::stop_token token() { return stop_.get_token(); }
  /// 130 or 143 after SIGINT or SIGTERM, 0 before.
  int exit_code() const { return received_ == 0 ? 0 : 128 + received_; }

 private:
  void watch() {
    for (;;) {
      std::array<pollfd, 2> sources = {pollfd{signals_, POLLIN, 0}, pollfd{finished_, POLLIN, 0}};
      if (poll(sources.data(), sources.size(), -1) < 0) {
        continue;
      }
      signalfd_siginfo info{};
      if ((sources[0].revents & POLLIN) == 0 || read(signals_, &info, sizeof info) != sizeof info) {
        return;
      }
      const int number = static_cast<int>(info.ssi_signo);
      if (received_ != 0) {
        _exit(128 + number);
      }
      received_ = number;
      log_warning("stopping after what is complete has been committed; a second signal stops at once");
      stop_.request_stop();
    }
  }

  std::stop_source stop_;
  std::atomic<int> received_ = 0;
  int signals_ = -1;
  int finished_ = -1;  // Written by the destructor.
  std::jthread thread_;
};

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

Result<int> run_action(const Verb& verb, VerbContext& context) {
  try {
    return verb.action(context);
  } catch (const std::bad_alloc&) {
    return Status::resource_exhausted("out of memory; what was committed is safe: lower --memory, batch size or workers and run again");
  } catch (const std::exception& exception) {
    return Status::internal("this is a bug of darkroom; what was committed is safe. Please report:", exception.what());
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

bool write_summary(const std::string& path, const nlohmann::json& summary) {
  std::ofstream file(path);
  file << summary.dump(2) << '\n';
  file.close();
  if (file.fail()) {
    log_error("--json-summary: cannot write the summary (path): {}", path);
    return false;
  }
  return true;
}

int report_parse_error(const CLI::App& program, const CLI::ParseError& error, int argc, char** argv) {
  if (error.get_exit_code() == 0) {
    return program.exit(error);  // --help, --version
  }
  if (argc > 1) {
    for (const std::string_view verb : kLaterVerbs) {
      if (verb == argv[1]) {
        fmt::print(stderr, "error: `darkroom {}` is not built yet; `darkroom --help` lists what is\n", verb);
        return kExitUsage;
      }
    }
  }
  fmt::print(stderr, "error: {}\nrun `darkroom {}--help` for the flags\n", one_line(error.what()),
             program.get_subcommands().empty() ? "" : program.get_subcommands().front()->get_name() + " ");
  return kExitUsage;
}

int run_program(int argc, char** argv) {
  SignalWatch signals;
  CLI::App program("darkroom pre-trains Stable Diffusion from a list of URLs", "darkroom");
  program.set_version_flag("--version", std::string(kVersion));
  program.require_subcommand(1);
  program.option_defaults()->always_capture_default();

  std::vector<Verb> verbs;
  for (const auto add : {add_download_verb, add_process_verb, add_train_verb, add_sample_verb, add_inspect_verb, add_models_verb,
                         add_demo_verb, add_bench_verb, add_tokenize_verb, add_transform_verb}) {
    verbs.push_back(add(program));
  }
  std::string summary_path;
  for (const Verb& verb : verbs) {
    verb.command
        ->add_option("--json-summary", summary_path,
                     "write the closing summary as JSON; a job that failed or was stopped has an `error` in it")
        ->type_name("PATH");
    verb.command->set_config("--config", "", "flags as TOML: one `flag = value` a line; flags on the command line win")
        ->type_name("FILE.toml");
  }

  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return report_parse_error(program, error, argc, argv);
  }
  for (const Verb& verb : verbs) {
    if (!verb.command->parsed()) {
      continue;
    }
    VerbContext context{.stop = signals.token()};
    const Result<int> result = run_action(verb, context);
    show_progress("");
    int exit_code = exit_code_of(result, signals);
    if (!result.is_ok()) {
      log_error("{} {}", verb.command->get_name(), result.status().message());
      context.summary["error"] = result.status().message();
    }
    if (!summary_path.empty() && !write_summary(summary_path, context.summary) && exit_code == 0) {
      exit_code = kExitFailed;
    }
    return exit_code;
  }
  return kExitUsage;
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) { return darkroom::run_program(argc, argv); }
