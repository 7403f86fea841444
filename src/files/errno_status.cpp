#include "errno_status.h"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <string>
#include <system_error>

namespace darkroom {

namespace {

StatusCode code_of_errno(int error) {
  switch (error) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return StatusCode::kResourceExhausted;
    case EROFS:
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case EISDIR:
    case ENOTEMPTY:
    case ENAMETOOLONG:
    case ELOOP:
    case EXDEV:
    case EINVAL:
    case EOPNOTSUPP:
    case ENOLCK:
    case ENOSYS:
    case ESPIPE:
      return StatusCode::kFailedPrecondition;
    default:
      return StatusCode::kUnavailable;
  }
}

// The system's words are made to stand alone ("Is a directory"); ours go on after a colon.
std::string reason(int error) {
  switch (error) {
    case ENOENT:
      return "no such file or folder";
    case EISDIR:
      return "it is a folder";
    case ENOTDIR:
      return "a part of the path is no folder";
    case EEXIST:
      return "the name is taken";
    case ENOTEMPTY:
      return "the folder is not empty";
    case EROFS:
      return "the file system is read-only";
    case ENOSPC:
      return "no space left on the disk";
    case ESPIPE:
      return "it is a pipe, which has no places to read from";
    default: {
      std::string text = std::generic_category().message(error);
      if (text.size() > 1 && text[1] >= 'a' && text[1] <= 'z') {
        text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
      }
      return text;
    }
  }
}

std::string_view advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space or choose another folder";
    case EROFS:
      return "; choose a folder that can be written";
    case EACCES:
    case EPERM:
      return "; change its permissions or choose another path";
    case EMFILE:
    case ENFILE:
      return "; raise the limit of open files (ulimit -n)";
    case ESPIPE:
      return "; write it to a file first";
    default:
      return "";
  }
}

}  // namespace

Status status_of_errno(int error, std::string_view doing, std::string_view path) {
  return Status::make(code_of_errno(error),
                      fmt::format("cannot {} {}: {}{}", doing, path.empty() ? "''" : path, reason(error), advice(error)));
}

}  // namespace darkroom
