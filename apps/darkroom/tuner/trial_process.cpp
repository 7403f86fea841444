#include "trial_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "darkroom/core/utf8.h"
#include "darkroom/files/file_system.h"

namespace darkroom {
namespace {

constexpr int kLookMilliseconds = 100;  // How late a stop request or the end of the budget may be seen.

int64_t size_of(const std::string& path) {
  const auto info = local_files().stat(path);
  return info.is_ok() ? info->size_bytes : 0;
}

// What follows the mark of an error, else the line without its time.
std::string told_by(const std::string& line) {
  constexpr std::string_view kMark = "error: ";
  const size_t mark = line.find(kMark);
  return mark == std::string::npos ? line : line.substr(mark + kMark.size());
}

// A launcher is given the program by its path, since /proc/self is another's there.
Result<std::vector<std::string>> trial_command(const std::vector<std::string>& launcher, const std::vector<std::string>& train_flags) {
  std::vector<std::string> command = launcher;
  if (launcher.empty()) {
    command.emplace_back("/proc/self/exe");
  } else {
    std::error_code error;
    command.push_back(std::filesystem::read_symlink("/proc/self/exe", error).string());
    if (error) {
      return Status::unavailable("cannot learn this program's own path for --launcher (reason):", error.message());
    }
  }
  command.emplace_back("train");
  command.insert(command.end(), train_flags.begin(), train_flags.end());
  return command;
}

}  // namespace

Result<std::vector<std::string>> launcher_words(const std::string& text) {
  std::vector<std::string> words;
  char quote = 0;
  bool is_in_word = false;
  for (const char letter : text) {
    if (quote == 0 && letter == ' ') {
      is_in_word = false;
      continue;
    }
    if (!is_in_word) {
      words.emplace_back();
      is_in_word = true;
    }
    if (letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '\'' || letter == '"')) {
      quote = letter;
    } else {
      words.back() += letter;
    }
  }
  if (quote != 0 || words.empty() || words.front().empty()) {
    return Status::invalid_argument(quote != 0 ? "--launcher has a quote that is not closed:" : "--launcher names no program:", text);
  }
  return words;
}

Result<std::unique_ptr<TrialProcess>> TrialProcess::start(const std::vector<std::string>& launcher,
                                                          const std::vector<std::string>& train_flags, const std::string& log_path) {
  std::unique_ptr<TrialProcess> process(new TrialProcess());
  process->log_path_ = log_path;
  process->log_begin_ = size_of(log_path);
  process->began_ = SteadyClock::now();
  process->is_launched_ = !launcher.empty();
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<std::string> command, trial_command(launcher, train_flags));
  const std::string starter = launcher.empty() ? fmt::format("{}", getpid()) : kAnyStarter;
  const ChildOptions options{.merges_errors = true,
                             .has_own_group = true,
                             .output_path = log_path,
                             .environment = {fmt::format("{}={}", kStarterVariable, starter)}};
  DARKROOM_ASSIGN_OR_RETURN(const Child child, start_child(command, options));
  process->pid_ = child.pid;
  process->watched_ = watch_child(child.pid);
  if (process->watched_ < 0) {
    return Status::unavailable("cannot watch a trial (process, reason):", child.pid, std::strerror(errno));
  }
  return process;
}

TrialProcess::~TrialProcess() {
  if (pid_ > 0 && !has_ended_) {
    kill(-pid_, SIGKILL);
    static_cast<void>(wait_for_child(pid_));
  }
  if (watched_ >= 0) {
    close(watched_);
  }
}

void TrialProcess::ask_to_stop() {
  if (!was_asked_ && !has_ended_) {
    was_asked_ = true;
    kill(pid_, SIGTERM);
  }
}

Result<std::optional<ChildEnd>> TrialProcess::poll_end() {
  pollfd source{watched_, POLLIN, 0};
  if (poll(&source, 1, 0) <= 0) {
    return std::optional<ChildEnd>();
  }
  has_ended_ = true;
  DARKROOM_ASSIGN_OR_RETURN(ChildEnd end, wait_for_child_end(pid_));
  end.peak_bytes = is_launched_ ? 0 : end.peak_bytes;
  return std::optional(end);
}

double TrialProcess::seconds() const { return std::chrono::duration<double>(SteadyClock::now() - began_).count(); }

std::string TrialProcess::last_words() const {
  const auto text = read_file(local_files(), log_path_);
  if (!text.is_ok()) {
    return "";
  }
  std::string last;
  bool is_error = false;
  for (size_t begin = static_cast<size_t>(log_begin_); begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string line = text->substr(begin, end - begin);
    const bool tells_error = line.find("error: ") != std::string::npos;
    if (!line.empty() && (tells_error || !is_error)) {
      last = told_by(line);
      is_error = is_error || tells_error;
    }
    begin = end + 1;
  }
  return replace_invalid_utf8(last).first;
}

void wait_for_any(const std::vector<const TrialProcess*>& processes) {
  std::vector<pollfd> sources;
  for (const TrialProcess* process : processes) {
    sources.push_back({process->watched(), POLLIN, 0});
  }
  static_cast<void>(poll(sources.data(), sources.size(), kLookMilliseconds));
}

}  // namespace darkroom
