#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "darkroom/files/file_system.h"
#include "darkroom/slices/slice_fleet.h"

namespace darkroom {
namespace {

constexpr size_t kMostEncoders = 4096;

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r";
  const size_t first = text.find_first_not_of(kSpaces);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

Result<EncoderAddress> parse_encoder_address(std::string_view text, const SliceNames& names) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
  const std::string_view digits = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  host = is_bracketed ? host.substr(1, host.size() - 2) : host;
  uint16_t port = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const bool is_host = !host.empty() && host.find_first_of(is_bracketed ? "[]/ " : "[]:/ ") == std::string_view::npos;
  if (!is_host || failure != std::errc() || end != digits.data() + digits.size() || port == 0) {
    return Status::invalid_argument(fmt::format("the address of {} is HOST:PORT, such as node-3:7000 or [::1]:7000, got:", names.a_peer()),
                                    text);
  }
  return EncoderAddress{.host = std::string(host), .port = std::to_string(port)};
}

Status add_address(std::string_view text, const SliceNames& names, std::vector<EncoderAddress>& addresses) {
  DARKROOM_ASSIGN_OR_RETURN(EncoderAddress address, parse_encoder_address(text, names));
  if (std::ranges::find(addresses, address) == addresses.end()) {
    addresses.push_back(std::move(address));
  }
  return addresses.size() <= kMostEncoders
             ? Status()
             : Status::invalid_argument(fmt::format("more {}s than may be, most:", names.peer), kMostEncoders);
}

Status add_file(const std::string& path, const SliceNames& names, std::vector<EncoderAddress>& addresses) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(local_files(), path));
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.size(), rest.find('\n'));
    const std::string_view line = without_spaces(rest.substr(0, end));
    if (!line.empty() && line.front() != '#') {
      DARKROOM_RETURN_IF_ERROR(add_address(line, names, addresses).with_context(path + ":" + std::to_string(number)));
    }
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  return {};
}

}  // namespace

std::string EncoderAddress::to_string() const { return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port; }

Result<std::vector<EncoderAddress>> read_encoder_addresses(const std::string& text, const SliceNames& names) {
  std::vector<EncoderAddress> addresses;
  if (text.starts_with('@')) {
    DARKROOM_RETURN_IF_ERROR(add_file(text.substr(1), names, addresses));
    return addresses;
  }
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    DARKROOM_RETURN_IF_ERROR(add_address(without_spaces(rest.substr(0, comma)), names, addresses));
    if (comma == std::string_view::npos) {
      return addresses;
    }
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace darkroom
