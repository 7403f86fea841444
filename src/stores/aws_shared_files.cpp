#include "aws_shared_files.h"

#include <string_view>
#include <utility>

namespace darkroom {
namespace {

Result<AwsSharedFile> read_shared(const AwsPlaces& places, AwsFile kind, const std::string& variable, const std::string& usual) {
  AwsSharedFile shared;
  const std::string named = places.variable(variable);
  if (!named.empty()) {
    shared.path = places.expand_home(named);
  } else if (!places.variable("HOME").empty()) {
    shared.path = places.expand_home(usual);
  }
  if (shared.path.empty()) {
    return shared;
  }
  const Result<std::string> text = places.read_file(shared.path);
  if (!text.is_ok()) {
    return text.status().code() == StatusCode::kNotFound ? Result<AwsSharedFile>(std::move(shared)) : text.status();
  }
  Result<AwsProfiles> profiles = read_aws_profiles(*text, kind);
  if (!profiles.is_ok()) {
    return profiles.status().with_context(shared.path);
  }
  shared.profiles = *std::move(profiles);
  return shared;
}

}  // namespace

std::string AwsPlaces::expand_home(const std::string& path) const {
  const std::string home = variable("HOME");
  return path.starts_with("~/") && !home.empty() ? home + path.substr(1) : path;
}

AwsProfile AwsSharedFile::profile(const std::string& name) const {
  const auto found = profiles.find(name);
  return found == profiles.end() ? AwsProfile() : found->second;
}

std::string setting_of(const AwsProfile& profile, const std::string& name) {
  const auto found = profile.find(name);
  return found == profile.end() ? "" : found->second;
}

std::string AwsSharedFiles::setting(const std::string& profile, const std::string& name) const {
  const std::string value = setting_of(credentials.profile(profile), name);
  return value.empty() ? setting_of(config.profile(profile), name) : value;
}

Result<AwsSharedFiles> read_aws_shared_files(const AwsPlaces& places) {
  AwsSharedFiles files;
  DARKROOM_ASSIGN_OR_RETURN(files.credentials,
                            read_shared(places, AwsFile::kCredentials, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"));
  DARKROOM_ASSIGN_OR_RETURN(files.config, read_shared(places, AwsFile::kConfig, "AWS_CONFIG_FILE", "~/.aws/config"));
  return files;
}

}  // namespace darkroom
