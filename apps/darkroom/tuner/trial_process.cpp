#include "trial_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

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

}  // namespace

Result<std::unique_ptr<TrialProcess>> TrialProcess::start(const std::vector<std::string>& train_flags, const std::string& log_path) {
  std::unique_ptr<TrialProcess> process(new TrialProcess());
  process->log_path_ = log_path;
  process->log_begin_ = size_of(log_path);
  process->began_ = SteadyClock::now();
  std::vector<std::string> command = {"/proc/self/exe", "train"};
  command.insert(command.end(), train_flags.begin(), train_flags.end());
  const ChildOptions options{.merges_errors = true,
                             .has_own_group = true,
                             .output_path = log_path,
                             .environment = {fmt::format("{}={}", kStarterVariable, getpid())}};
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
  DARKROOM_ASSIGN_OR_RETURN(const ChildEnd end, wait_for_child_end(pid_));
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
