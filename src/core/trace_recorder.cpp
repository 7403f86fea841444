#include "darkroom/core/trace_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>

#include <nlohmann/json.hpp>

#include "darkroom/core/version.h"

namespace darkroom {
namespace {

using nlohmann::ordered_json;

constexpr int kSpanKindInternal = 1;
constexpr int kStatusError = 2;
constexpr std::string_view kChromeBegin = "[\n";
constexpr std::string_view kLinesBegin = R"({"resourceSpans")";
constexpr std::string_view kChromeEnd = "{}]\n";
constexpr std::string_view kChromeEndings[] = {".trace.json", ".perfetto.json"};

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

/// Splitmix64's finaliser: a bijection, so that counted identifiers differ.
uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

std::string trace_hex(const SpanContext& context) { return hex(context.trace_high) + hex(context.trace_low); }

/// The JSON mapping of protobuf: integers of 64 bits as text.
ordered_json otlp_value(const SpanValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return {{"intValue", std::to_string(*integer)}};
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return {{"doubleValue", *number}};
  }
  return {{"stringValue", std::get<std::string>(value)}};
}

ordered_json otlp_attributes(const SpanAttributes& attributes) {
  ordered_json list = ordered_json::array();
  for (const auto& [key, value] : attributes) {
    list.push_back({{"key", key}, {"value", otlp_value(value)}});
  }
  return list;
}

ordered_json plain_value(const SpanValue& value) {
  return std::visit([](const auto& inner) { return ordered_json(inner); }, value);
}

// Rows and messages may hold bytes that are no UTF-8.
std::string dumped(const ordered_json& json) { return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

double microseconds(Clock::Instant::duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

Status file_failure(const std::string& path, int error) {
  const std::string reason = std::generic_category().message(error);
  if (error == ENOENT || error == ENOTDIR) {
    return Status::not_found("cannot write the trace; is there such a folder? (file, reason):", path, reason);
  }
  return error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE
             ? Status::resource_exhausted("cannot write the trace (file, reason):", path, reason)
             : Status::failed_precondition("cannot write the trace (file, reason):", path, reason);
}

/// "spans-attempt2.jsonl" of "spans.jsonl": the ending, which chooses the form, stays.
std::string path_of_attempt(const std::string& path, int number) {
  size_t ending = path.rfind('.');
  for (const std::string_view known : kChromeEndings) {
    ending = path.ends_with(known) ? path.size() - known.size() : ending;
  }
  const size_t slash = path.rfind('/');
  if (ending == std::string::npos || (slash != std::string::npos && ending < slash)) {
    ending = path.size();
  }
  return fmt::format("{}-attempt{}{}", path.substr(0, ending), number, path.substr(ending));
}

/// Of the system's own folders, whose names stand for devices and for what is open: /dev/stdout.
bool is_of_system(std::string_view path) {
  return (path.starts_with("/dev/") && !path.starts_with("/dev/shm/")) || path.starts_with("/proc/");
}

/// The file itself of a link. "": it must not move. Errors: the system's.
Result<std::string> movable_path(const std::string& path) {
  std::error_code error;
  const std::string real = std::filesystem::canonical(path, error).string();
  if (error == std::errc::no_such_file_or_directory) {  // Another process has moved it.
    return path;
  }
  if (error) {
    return file_failure(path, error.value());
  }
  return is_of_system(path) || is_of_system(real) ? std::string() : real;
}

/// A file system that knows no flags takes a second name and drops the first. Which name is there already is never replaced.
bool move_to_free_name(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return true;
  }
  return errno == EINVAL && link(from.c_str(), to.c_str()) == 0 && unlink(from.c_str()) == 0;
}

/// A trace that is there is of an attempt before this one, which may have been lost: it moves aside, the oldest one to number 1. Another
/// process may do so at the same time.
Status move_aside(const std::string& path) {
  constexpr int kMostAttempts = 9'999;
  for (int number = 1; number <= kMostAttempts; ++number) {
    const std::string aside = path_of_attempt(path, number);
    if (move_to_free_name(path, aside)) {
      return {};
    }
    if (errno != EEXIST) {
      return errno == ENOENT ? Status() : file_failure(aside, errno);
    }
  }
  return Status::failed_precondition("there are too many traces of earlier attempts; remove some (file, most):", path, kMostAttempts);
}

/// Whether a trace of an earlier attempt is there. Errors: also of what is none, which is left alone.
Result<bool> holds_trace(int descriptor, const std::string& path) {
  struct stat info = {};
  if (fstat(descriptor, &info) != 0) {
    return file_failure(path, errno);
  }
  if (S_ISCHR(info.st_mode)) {
    return false;
  }
  if (!S_ISREG(info.st_mode)) {
    return Status::failed_precondition("a trace is written into a file, and this is none:", path);
  }
  char begin[kLinesBegin.size()] = {};
  const ssize_t num_read = pread(descriptor, begin, sizeof begin, 0);
  const std::string_view found(begin, static_cast<size_t>(std::max<ssize_t>(num_read, 0)));
  if (info.st_size > 0 && !found.starts_with(kLinesBegin) && !found.starts_with(kChromeBegin)) {
    return Status::failed_precondition("there is a file that is no trace; name another one for --trace-file, or remove it:", path);
  }
  return info.st_size > 0;
}

/// A pipe would be waited for. Errors: the system's.
Result<int> open_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND | O_NONBLOCK, 0644);
  return descriptor >= 0 ? Result<int>(descriptor) : file_failure(path, errno);
}

/// An empty file, or a device, or what is open already (/dev/stdout), behind what it holds. Errors: also of a file that is no trace.
Result<int> begin_file(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const int descriptor, open_file(path));
  const Result<bool> is_taken = holds_trace(descriptor, path);
  if (is_taken.is_ok() && !*is_taken) {
    return descriptor;
  }
  const Result<std::string> real = is_taken.is_ok() ? movable_path(path) : is_taken.status();
  if (real.is_ok() && real->empty()) {
    return descriptor;
  }
  ::close(descriptor);
  DARKROOM_RETURN_IF_ERROR(real.status());
  DARKROOM_RETURN_IF_ERROR(move_aside(*real));
  return open_file(path);
}

}  // namespace

bool chooses_chrome_form(std::string_view path) {
  return std::ranges::any_of(kChromeEndings, [&](std::string_view ending) { return path.ends_with(ending); });
}

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::open(TraceOptions options) {
  DARKROOM_ASSIGN_OR_RETURN(const int descriptor, begin_file(options.path));
  std::unique_ptr<TraceRecorder> recorder(new TraceRecorder(std::move(options), descriptor));
  if (recorder->is_chrome_) {
    const std::lock_guard hold(recorder->mutex_);
    recorder->write_text(kChromeBegin);
    DARKROOM_RETURN_IF_ERROR(recorder->failure_);
  }
  return recorder;
}

TraceRecorder::TraceRecorder(TraceOptions options, int descriptor)
    : options_(std::move(options)),
      is_chrome_(chooses_chrome_form(options_.path)),
      descriptor_(descriptor),
      wall_began_(std::chrono::duration_cast<std::chrono::nanoseconds>(options_.clock->wall().time_since_epoch()).count()),
      seed_(options_.seed != 0 ? options_.seed : random_seed()) {}

TraceRecorder::~TraceRecorder() {
  static_cast<void>(finish());
  ::close(descriptor_);
}

SpanContext TraceRecorder::make_context(const SpanContext& parent) {
  const uint64_t number = num_contexts_.fetch_add(1, std::memory_order_relaxed) + 1;
  SpanContext context = parent;
  context.span = std::max<uint64_t>(mixed(seed_ + number), 1);  // 0 is no identifier.
  if (parent.span == 0) {
    context.trace_high = std::max<uint64_t>(mixed(~seed_), 1);
    context.trace_low = mixed(mixed(seed_) + number);
  }
  return context;
}

void TraceSpan::begin(const char* name, const SpanContext& parent) {
  span_.name = name;
  span_.context = recorder_->make_context(parent);
  span_.parent = parent.span;
  span_.begin = recorder_->now();
}

int64_t TraceRecorder::unix_nanoseconds(Clock::Instant instant) const {
  return wall_began_ + std::chrono::duration_cast<std::chrono::nanoseconds>(instant - began_).count();
}

void TraceRecorder::record(Span span) {
  constexpr std::chrono::seconds kLongestKept{1};
  const int64_t thread = ::gettid();
  const std::lock_guard hold(mutex_);
  if (is_finished_ || !failure_.is_ok() || num_bytes_ >= options_.max_bytes) {
    num_dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const Clock::Instant end = span.end;
  batch_began_ = batch_.empty() ? end : batch_began_;
  batch_.emplace_back(std::move(span), thread);
  if (batch_.size() >= options_.batch_spans || end - batch_began_ >= kLongestKept) {
    write_batch();
  }
}

Status TraceRecorder::finish() {
  const std::lock_guard hold(mutex_);
  if (!is_finished_) {
    write_batch();
    if (is_chrome_) {
      write_text(kChromeEnd);
    }
    is_finished_ = true;
  }
  return failure_;
}

/// REQUIRES: mutex_ is held.
void TraceRecorder::write_batch() {
  if (batch_.empty()) {
    return;
  }
  std::string text;
  if (is_chrome_) {
    for (const auto& [span, thread] : batch_) {
      text += chrome_events(span, thread);
    }
  } else {
    text = otlp_line();
  }
  write_text(text);
  if (!failure_.is_ok()) {
    num_dropped_.fetch_add(static_cast<int64_t>(batch_.size()), std::memory_order_relaxed);
  }
  batch_.clear();
}

/// REQUIRES: mutex_ is held.
void TraceRecorder::write_text(std::string_view text) {
  while (failure_.is_ok() && !text.empty()) {
    const ssize_t num_written = ::write(descriptor_, text.data(), text.size());
    if (num_written < 0 && errno != EINTR) {
      failure_ = file_failure(options_.path, errno);
    } else if (num_written > 0) {
      num_bytes_ += num_written;
      text.remove_prefix(static_cast<size_t>(num_written));
    }
  }
}

/// One ExportTraceServiceRequest, as OpenTelemetry's file exporter writes them (opentelemetry-proto, the JSON mapping of OTLP).
/// REQUIRES: mutex_ is held.
std::string TraceRecorder::otlp_line() const {
  ordered_json spans = ordered_json::array();
  for (const auto& [span, thread] : batch_) {
    ordered_json json = {{"traceId", trace_hex(span.context)}, {"spanId", hex(span.context.span)}};
    if (span.parent != 0) {
      json["parentSpanId"] = hex(span.parent);
    }
    json.update({{"name", span.name},
                 {"kind", kSpanKindInternal},
                 {"startTimeUnixNano", std::to_string(unix_nanoseconds(span.begin))},
                 {"endTimeUnixNano", std::to_string(unix_nanoseconds(span.end))},
                 {"attributes", otlp_attributes(span.attributes)}});
    json["attributes"].push_back({{"key", "thread.id"}, {"value", {{"intValue", std::to_string(thread)}}}});
    if (!span.failure.empty()) {
      json["status"] = {{"code", kStatusError}, {"message", span.failure}};
    }
    spans.push_back(std::move(json));
  }
  const ordered_json scope = {{"scope", {{"name", "darkroom"}, {"version", kVersion}}}, {"spans", std::move(spans)}};
  const ordered_json resource = {{"resource", {{"attributes", otlp_attributes(options_.resource)}}},
                                 {"scopeSpans", ordered_json::array({scope})}};
  return dumped({{"resourceSpans", ordered_json::array({resource})}}) + "\n";
}

/// Complete events on a thread's track, whose spans lie within each other; a pair of asynchronous ones, with a track of their own, for a
/// span that threads hand on ("Trace Event Format"). An array without its end is a valid file.
std::string TraceRecorder::chrome_events(const Span& span, int64_t thread) {
  ordered_json arguments = {{"trace", trace_hex(span.context)}, {"span", hex(span.context.span)}};
  if (span.parent != 0) {
    arguments["parent"] = hex(span.parent);
  }
  for (const auto& [key, value] : span.attributes) {
    arguments[key] = plain_value(value);
  }
  if (!span.failure.empty()) {
    arguments["failure"] = span.failure;
  }
  ordered_json event = {
      {"name", span.name}, {"cat", "darkroom"}, {"pid", ::getpid()}, {"tid", thread}, {"ts", microseconds(span.begin - began_)}};
  std::string text;
  if (span.is_on_thread) {
    if (named_threads_.insert(thread).second) {  // By what it does first.
      text += dumped({{"name", "thread_name"}, {"ph", "M"}, {"pid", ::getpid()}, {"tid", thread}, {"args", {{"name", span.name}}}}) + ",\n";
    }
    event.update({{"ph", "X"}, {"dur", microseconds(span.end - span.begin)}, {"args", std::move(arguments)}});
    return text + dumped(event) + ",\n";
  }
  event.update({{"ph", "b"}, {"id", "0x" + hex(span.context.span)}, {"args", std::move(arguments)}});
  text += dumped(event) + ",\n";
  event.update({{"ph", "e"}, {"ts", microseconds(span.end - began_)}});
  event.erase("args");
  return text + dumped(event) + ",\n";
}

}  // namespace darkroom
