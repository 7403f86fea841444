#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

// Values as people write them. A failure's message goes on after the flag's name: "must be a size such as 50MB or 64KiB, got: x".

/// Wide enough for every value of int64_t and uint64_t.
using WideInteger = __int128;

/// "1000", "-3", "100e6", "10k", "1.5M" (decimal: k, M, G), as long as it is a whole number.
Result<WideInteger> parse_count(std::string_view text);
/// A count with a unit of bytes: "50MB" (decimal), "64KiB" (binary), "1.5 GB", "4096".
Result<WideInteger> parse_bytes(std::string_view text);
/// A finite number: "0.5", "1e-4".
Result<double> parse_number(std::string_view text);
/// "60" or "60%".
Result<double> parse_percent(std::string_view text);
/// Seconds: "20", "20s", "500ms", "2min", "1h".
Result<double> parse_seconds(std::string_view text);
/// Minutes: "5.5", "90s", "2min", "1h".
Result<double> parse_minutes(std::string_view text);

std::string format_count(WideInteger value);
/// With the largest decimal unit that keeps it exact, else with the largest binary one: "50 MB", "64 KiB", "12345 B".
std::string format_bytes(WideInteger value);
/// The shortest text that reads back as the same number.
std::string format_number(double value);

/// A value for a message: at most 100 bytes of it, control characters escaped, what is no UTF-8 replaced, an empty one as ''.
std::string quote_value(std::string_view text);

}  // namespace darkroom
