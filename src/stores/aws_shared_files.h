#pragma once

#include <functional>
#include <optional>
#include <string>

#include "aws_profiles.h"
#include "darkroom/core/result.h"

namespace darkroom {

/// What a search for keys may look at. Thread safety: that of the functions given.
struct AwsPlaces {
  /// The value of a variable of the environment; nothing where it is not set.
  std::function<std::optional<std::string>(const std::string& name)> environment;
  /// A small file's bytes. kNotFound: there is none.
  std::function<Result<std::string>(const std::string& path)> read_file;

  std::string variable(const std::string& name) const { return environment(name).value_or(""); }
  /// A path as the AWS tools write it: "~/" is the home folder.
  std::string expand_home(const std::string& path) const;
};

/// One of the two shared files, read.
struct AwsSharedFile {
  std::string path;  ///< Empty: there is no home folder in which it could be.
  AwsProfiles profiles;

  bool holds(const std::string& profile) const { return profiles.contains(profile); }
  /// Without settings where the file lacks it.
  AwsProfile profile(const std::string& name) const;
};

/// The credentials file (~/.aws/credentials, or AWS_SHARED_CREDENTIALS_FILE) and the config file (~/.aws/config, or AWS_CONFIG_FILE).
struct AwsSharedFiles {
  AwsSharedFile credentials;
  AwsSharedFile config;

  bool holds(const std::string& profile) const { return config.holds(profile) || credentials.holds(profile); }
  /// Of a profile; the credentials file's before the config file's. Empty: neither has it.
  std::string setting(const std::string& profile, const std::string& name) const;
};

/// Both files; one that does not exist is empty. Errors: kInvalidArgument (not understood; names the file and the line), those of
/// read_file.
Result<AwsSharedFiles> read_aws_shared_files(const AwsPlaces& places);

/// The setting's value; empty where it lacks.
std::string setting_of(const AwsProfile& profile, const std::string& name);

}  // namespace darkroom
