#include "top_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "darkroom/core/machine.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

constexpr const char* kAddressFolder = "_metrics";
constexpr const char* kRunLines = "metrics.jsonl";
constexpr int64_t kTailBytes = 65'536;
constexpr uintmax_t kMostAddressBytes = 4096;

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// A pipe would be waited for, and a device may have no end.
bool is_plain_file(const std::string& path, uintmax_t most_bytes) {
  std::error_code failed;
  return std::filesystem::is_regular_file(path, failed) && std::filesystem::file_size(path, failed) <= most_bytes && !failed;
}

/// What a terminal would take for an order is shown as a question mark.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

/// The last whole line of a file.
Result<std::string> last_line(const std::string& path) {
  if (!is_plain_file(path, UINTMAX_MAX)) {
    return Status::failed_precondition("it is no file:", path);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto file, local_files().open_input(path));
  const int64_t size = std::min(kTailBytes, file->size_bytes());
  std::string tail(static_cast<size_t>(size), '\0');
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(file->size_bytes() - size, std::as_writable_bytes(std::span(tail))));
  tail.resize(num_read);
  tail.resize(tail.rfind('\n') + 1);  // A torn one is left out; 0 where there is no line end.
  if (tail.empty()) {
    return Status::failed_precondition("no step was logged yet:", path);
  }
  tail.pop_back();
  return tail.substr(tail.rfind('\n') + 1);
}

/// Where a process says that its numbers are.
struct LeftAddress {
  std::string place = "";    ///< HOST:PORT; empty: the file tells of none.
  std::string failure = "";  ///< Why it cannot be asked from here.

  auto operator<=>(const LeftAddress&) const = default;
};

std::string text_in(const nlohmann::json& json, const char* name) {
  return json.is_object() && json.contains(name) && json[name].is_string() ? json[name].get<std::string>() : "";
}

/// Of another host's process the addresses that only that host knows by themselves stand for what they are there.
LeftAddress seen_from_here(const std::string& address, const std::string& host) {
  const size_t colon = address.rfind(':');
  const std::string ip = address.substr(0, colon);
  if (host.empty() || host == host_name()) {
    return {.place = address};
  }
  if (ip.starts_with("127.") || ip == "[::1]" || ip == "localhost") {
    return {.place = host + address.substr(colon),
            .failure = fmt::format("its numbers are told on {} alone; start it with --metrics-port 0.0.0.0:PORT, or run top there", host)};
  }
  return {.place = ip == "0.0.0.0" || ip == "[::]" ? host + address.substr(colon) : address};
}

/// The address in a file that a process left.
LeftAddress left_address(const std::string& path) {
  const Result<std::string> text = is_plain_file(path, kMostAddressBytes) ? read_file(local_files(), path) : Status::not_found(path);
  const nlohmann::json json = text.is_ok() ? parse_json(*text) : nlohmann::json();
  const std::string address = text_in(json, "address");
  if (metrics_url(address).empty() || address.find(':') == std::string::npos) {
    return {};
  }
  LeftAddress left = seen_from_here(address, text_in(json, "host"));
  const bool is_place = left.place.find_first_of("/@?# ") == std::string::npos && printable(left.place) == left.place;
  return is_place && !metrics_url(left.place).empty() ? left : LeftAddress();
}

std::vector<LeftAddress> left_addresses(const std::string& folder) {
  std::vector<LeftAddress> addresses;
  const auto files = local_files().list(join_path(folder, kAddressFolder));
  for (const FileInfo& file : files.is_ok() ? *files : std::vector<FileInfo>()) {
    if (file.path.ends_with(".json")) {
      addresses.push_back(left_address(file.path));
    }
  }
  std::erase(addresses, LeftAddress());
  std::ranges::sort(addresses);
  const auto doubles = std::ranges::unique(addresses);  // Of a job that was killed and started again.
  addresses.erase(doubles.begin(), doubles.end());
  return addresses;
}

}  // namespace

std::string metrics_url(const std::string& target) {
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const size_t slash = target.find('/', target.find("://") + 3);
    return slash == std::string::npos ? target + "/metrics" : slash + 1 == target.size() ? target + "metrics" : target;
  }
  if (is_port(target)) {
    return fmt::format("http://127.0.0.1:{}/metrics", target);
  }
  const size_t colon = target.rfind(':');
  const bool is_address = colon != std::string::npos && colon > 0 && target.find('/') == std::string::npos &&
                          is_port(std::string_view(target).substr(colon + 1));
  return is_address ? fmt::format("http://{}/metrics", target) : "";
}

Result<std::unique_ptr<TopTargets>> TopTargets::open(std::vector<std::string> targets) {
  std::unique_ptr<TopTargets> opened(new TopTargets(std::move(targets)));
  DARKROOM_ASSIGN_OR_RETURN(opened->http_, HttpClient::start({.num_loops = 1}, opened->metrics_));
  return opened;
}

ProcessLook TopTargets::ask(const std::string& where, const std::string& url, const std::stop_token& stop) {
  HttpRequest request{.url = url};
  request.limits.total = std::chrono::seconds(2);
  request.limits.max_body_bytes = 1'000'000;
  ProcessLook look{.where = where};
  const Result<HttpResponse> response = http_->perform(request, stop);
  if (!response.is_ok()) {
    look.failure = response.status().message();
    return look;
  }
  if (response->status() != 200) {
    look.failure = fmt::format("answered with status {}", response->status());
    return look;
  }
  Result<MetricsPage> page = MetricsPage::parse(response->body);
  if (page.is_ok()) {
    look.page = *std::move(page);
  } else {
    look.failure = page.status().message();
  }
  return look;
}

void TopTargets::look_into(const std::string& folder, const std::stop_token& stop, std::vector<ProcessLook>& looks) {
  bool is_answered = false;
  std::vector<ProcessLook> silent;
  for (const LeftAddress& left : left_addresses(folder)) {
    ProcessLook look =
        left.failure.empty() ? ask(left.place, metrics_url(left.place), stop) : ProcessLook{.where = left.place, .failure = left.failure};
    is_answered = is_answered || look.failure.empty();
    (look.failure.empty() ? looks : silent).push_back(std::move(look));
  }
  const std::string lines = join_path(folder, kRunLines);
  const Result<bool> has_lines = local_files().exists(lines);
  if (!is_answered && has_lines.is_ok() && *has_lines) {
    const Result<std::string> line = last_line(lines);
    ProcessLook look{.where = lines, .failure = line.is_ok() ? "" : line.status().message()};
    look.last_line = line.is_ok() ? parse_json(*line) : nlohmann::json();
    look.failure = look.failure.empty() && !look.last_line.is_object() ? "its last line is no JSON object" : look.failure;
    looks.push_back(std::move(look));
    return;
  }
  std::move(silent.begin(), silent.end(), std::back_inserter(looks));
  if (!is_answered && silent.empty()) {
    looks.push_back({.where = folder, .failure = "no process left its address here; start it with --metrics-port"});
  }
}

TopLook TopTargets::look(const std::stop_token& stop) {
  TopLook look{.at = std::chrono::steady_clock::now(), .processes = {}};
  for (const std::string& target : targets_) {
    const std::string url = metrics_url(target);
    if (url.empty()) {
      look_into(target, stop, look.processes);
    } else {
      look.processes.push_back(ask(target, url, stop));
    }
  }
  for (ProcessLook& process : look.processes) {
    process.where = printable(std::move(process.where));
    process.failure = printable(std::move(process.failure));
  }
  return look;
}

}  // namespace darkroom
