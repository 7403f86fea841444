#pragma once

#include <map>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

inline constexpr size_t kMaxAwsFileBytes = 1 << 20;

/// The settings of one profile: names in lower case, values without white space at their ends. The lines that continue a value follow
/// it after "\n" each.
using AwsProfile = std::map<std::string, std::string>;

/// Profiles by name; names keep their case.
using AwsProfiles = std::map<std::string, AwsProfile>;

/// Which of the two shared files: they write a profile's name as [profile NAME] (of the default one also [default]) and as [NAME].
enum class AwsFile { kConfig, kCredentials };

/// The profiles of a shared config or credentials file (AWS SDKs and Tools Reference Guide, "Format of the config and credentials
/// files"). A profile that stands twice is one; of a setting that stands twice the last counts. [profile default] makes [default]
/// void. A config file's [sso-session NAME] is given as "sso-session NAME", as no profile is called. Sections of other kinds, profiles
/// and settings with names of other characters are skipped.
/// Comments are lines that begin with # or ;, and what follows them behind white space in a value or anywhere behind a section's
/// name. An indented line goes on with the value before it, except that it is skipped where it begins like a comment.
/// Errors: kInvalidArgument naming the line (from 1) and never what stands in it, which may be a secret: more than kMaxAwsFileBytes,
/// a section without its "]", a setting outside of a section, without "=" or without a name, an indented line behind no setting.
/// Pure: any thread.
Result<AwsProfiles> read_aws_profiles(std::string_view text, AwsFile file);

}  // namespace darkroom
