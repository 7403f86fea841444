#include "aws_profiles.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/web/header_text.h"

namespace darkroom {
namespace {

constexpr std::string_view kAwsNameCharacters = "-_/.%@:+";  // Besides letters and digits.

bool is_aws_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

bool begins_aws_comment(std::string_view text) { return text.starts_with('#') || text.starts_with(';'); }

/// `value` begins with the "=" before it. Up to the first # or ; behind white space.
std::string_view without_aws_comment(std::string_view value) {
  for (size_t at = 1; at < value.size(); ++at) {
    if (begins_aws_comment(value.substr(at)) && is_aws_blank(value[at - 1])) {
      return value.substr(0, at);
    }
  }
  return value;
}

bool is_aws_name(std::string_view name, std::string_view others) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || others.find(c) != std::string_view::npos;
  });
}

/// Takes the file's lines one by one.
class AwsFileReader {
 public:
  explicit AwsFileReader(AwsFile file) : file_(file) {}

  Status read_line(std::string_view line) {
    ++line_number_;
    const std::string_view text = trim_blanks(line);
    if (text.empty() || begins_aws_comment(text)) {
      return Status::ok();
    }
    if (is_aws_blank(line.front())) {
      return continue_setting(text);
    }
    return text.front() == '[' ? begin_section(text) : read_setting(text);
  }

  AwsProfiles finish() && {
    if (prefixed_default_) {
      profiles_["default"] = *std::move(prefixed_default_);
    }
    return std::move(profiles_);
  }

 private:
  Status fail(std::string_view what) const {
    return Status::invalid_argument(fmt::format("a shared AWS file is not understood: {} (line):", what), line_number_);
  }

  Status begin_section(std::string_view text) {
    in_section_ = true;
    in_setting_ = false;
    value_ = nullptr;
    const size_t end = text.find(']');
    const std::string_view behind = end == std::string_view::npos ? text : trim_blanks(text.substr(end + 1));
    if (!behind.empty() && !begins_aws_comment(behind)) {
      return fail("a section's name does not end with ]");
    }
    profile_ = profile_of_section(trim_blanks(text.substr(1, end - 1)));
    return Status::ok();
  }

  /// Null where the section is skipped.
  AwsProfile* profile_of_section(std::string_view name) {
    constexpr std::string_view kPrefix = "profile";
    constexpr std::string_view kSession = "sso-session";
    if (file_ == AwsFile::kConfig && name.starts_with(kSession) && name.size() > kSession.size() && is_aws_blank(name[kSession.size()])) {
      const std::string_view session = trim_blanks(name.substr(kSession.size()));
      return is_aws_name(session, kAwsNameCharacters) ? &profiles_[fmt::format("{} {}", kSession, session)] : nullptr;
    }
    const bool has_prefix = name.starts_with(kPrefix) && name.size() > kPrefix.size() && is_aws_blank(name[kPrefix.size()]);
    if (file_ == AwsFile::kConfig && !has_prefix && name != "default") {
      return nullptr;
    }
    if (file_ == AwsFile::kConfig && has_prefix) {
      name = trim_blanks(name.substr(kPrefix.size()));
      if (name == "default") {
        return &(prefixed_default_ ? *prefixed_default_ : prefixed_default_.emplace());
      }
    }
    return is_aws_name(name, kAwsNameCharacters) ? &profiles_[std::string(name)] : nullptr;
  }

  Status read_setting(std::string_view text) {
    if (!in_section_) {
      return fail("a setting stands before the first section");
    }
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
      return fail("a setting has no =");
    }
    std::string name(trim_blanks(text.substr(0, equals)));
    if (name.empty()) {
      return fail("a setting has no name");
    }
    name = ascii_lower(std::move(name));
    const std::string_view value = trim_blanks(without_aws_comment(text.substr(equals)).substr(1));
    in_setting_ = true;
    holds_settings_ = value.empty();
    value_ = nullptr;
    if (profile_ != nullptr && is_aws_name(name, "-_")) {
      value_ = &(*profile_)[name];
      *value_ = value;
    }
    return Status::ok();
  }

  Status continue_setting(std::string_view text) {
    if (!in_setting_) {
      return fail(in_section_ ? "an indented line continues no setting" : "a setting stands before the first section");
    }
    const size_t equals = text.find('=');
    if (holds_settings_ && (equals == std::string_view::npos || equals == 0)) {
      return fail(equals == 0 ? "an indented setting has no name" : "an indented setting has no =");
    }
    if (value_ != nullptr) {
      *value_ += "\n" + std::string(text);
    }
    return Status::ok();
  }

  AwsFile file_;
  int line_number_ = 0;
  bool in_section_ = false;
  bool in_setting_ = false;
  bool holds_settings_ = false;  // The last setting's value was empty: settings of its own may follow, indented.
  AwsProfiles profiles_;
  std::optional<AwsProfile> prefixed_default_;
  AwsProfile* profile_ = nullptr;  // Of the last section; null where it is skipped.
  std::string* value_ = nullptr;   // Of the last setting; null where it is skipped.
};

}  // namespace

Result<AwsProfiles> read_aws_profiles(std::string_view text, AwsFile file) {
  if (text.size() > kMaxAwsFileBytes) {
    return Status::invalid_argument("a shared AWS file is too long (largest, bytes):", kMaxAwsFileBytes, text.size());
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  text.remove_prefix(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  AwsFileReader reader(file);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    DARKROOM_RETURN_IF_ERROR(reader.read_line(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(reader).finish();
}

}  // namespace darkroom
