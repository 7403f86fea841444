#include "darkroom/tables/tar_samples.h"

#include <algorithm>

namespace darkroom {

std::optional<std::pair<std::string, std::string>> split_sample_name(std::string_view name) {
  const size_t last_part = name.rfind('/') + 1;  // npos + 1 is 0.
  const size_t dot = name.find('.', last_part);
  if (dot == std::string_view::npos || dot == last_part || dot + 1 == name.size()) {
    return std::nullopt;
  }
  std::string extension(name.substr(dot + 1));
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::pair(std::string(name.substr(0, dot)), std::move(extension));
}

const TarMember* TarSample::find(std::string_view extension) const {
  const auto part = std::find_if(parts.begin(), parts.end(), [&](const TarPart& each) { return each.extension == extension; });
  return part == parts.end() ? nullptr : &part->member;
}

Status TarSampleReader::check_size() const {
  if (sample_.parts.size() + sample_.duplicates.size() < kMaxParts) {
    return Status::ok();
  }
  return Status::corrupt_data("a sample of a tar archive has too many files (archive, offset, limit):", tar_.file().path(), tar_.offset(),
                              kMaxParts);
}

Result<std::optional<TarSample>> TarSampleReader::next() {
  while (true) {
    DARKROOM_RETURN_IF_ERROR(failure_);
    DARKROOM_ASSIGN_OR_RETURN(std::optional<TarMember> member, tar_.next());
    if (!member) {
      return sample_.parts.empty() ? std::nullopt : std::optional(std::exchange(sample_, {}));
    }
    auto names = member->kind == TarMemberKind::kFile ? split_sample_name(member->name) : std::nullopt;
    if (!names) {
      num_left_out_ += member->kind == TarMemberKind::kFolder ? 0 : 1;
      continue;
    }
    TarPart part{.extension = std::move(names->second), .member = *std::move(member)};
    if (!sample_.parts.empty() && names->first != sample_.key) {
      TarSample finished = std::exchange(sample_, {.key = std::move(names->first)});
      sample_.parts.push_back(std::move(part));
      return std::optional(std::move(finished));
    }
    failure_ = check_size();
    DARKROOM_RETURN_IF_ERROR(failure_);
    sample_.key = std::move(names->first);
    (sample_.find(part.extension) == nullptr ? sample_.parts : sample_.duplicates).push_back(std::move(part));
  }
}

}  // namespace darkroom
