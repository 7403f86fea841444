#include "darkroom/files/store.h"

#include "darkroom/files/paths.h"

namespace darkroom {

Location Location::operator/(std::string_view name) const { return {.store = store, .path = join_path(path, name)}; }

Location Location::parent() const { return {.store = store, .path = parent_folder(path)}; }

std::string Location::name() const { return file_name(path); }

std::string Location::uri() const { return store->uri_of(path); }

Result<bool> Location::exists() const {
  const Result<FileInfo> info = store->stat(path);
  if (!info.is_ok() && info.status().code() != StatusCode::kNotFound) {
    return info.status();
  }
  return info.is_ok();
}

Status PendingObject::write(std::span<const std::byte> bytes) { return write(std::span(&bytes, 1)); }

Status PendingObject::write_text(std::string_view text) { return write(std::as_bytes(std::span(text))); }

std::optional<std::string> Store::local_path(const std::string& /*path*/) const { return std::nullopt; }

}  // namespace darkroom
