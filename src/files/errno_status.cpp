#include "errno_status.h"

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
      return StatusCode::kFailedPrecondition;
    default:
      return StatusCode::kUnavailable;
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
    default:
      return "";
  }
}

}  // namespace

Status status_of_errno(int error, std::string_view doing, std::string_view path) {
  const std::string reason = std::generic_category().message(error);
  return Status::make(code_of_errno(error), std::string(doing) + " failed: " + reason + std::string(advice(error)) + " (path):", path);
}

}  // namespace darkroom
