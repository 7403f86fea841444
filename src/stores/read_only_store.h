#pragma once

#include <memory>
#include <string>
#include <vector>

#include "darkroom/files/paths.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// A store of others, which is read and never written: whatever changes something is kFailedPrecondition. `Interface` is Store, or derives
/// from it.
template <typename Interface>
class ReadOnly : public Interface {
 public:
  bool is_writable() const final { return false; }
  Result<std::unique_ptr<PendingObject>> begin_object(const std::string& folder, const std::string& name) final {
    return refusal(join_path(folder, name));
  }
  Result<std::unique_ptr<PendingFolder>> begin_folder(const std::string& folder, const std::string& name) final {
    return refusal(join_path(folder, name));
  }
  Status replace_small(const std::string& path, std::string_view /*bytes*/) final { return refusal(path); }
  Result<bool> create_small(const std::string& path, std::string_view /*bytes*/) final { return refusal(path); }
  Status remove(const std::string& path) final { return refusal(path); }
  Status remove_tree(const std::string& folder) final { return refusal(folder); }
  Status move_object(const std::string& from, const std::string& /*to*/) final { return refusal(from); }
  Status move_over(const std::string& from, const std::string& /*to*/) final { return refusal(from); }
  Result<SweepReport> sweep(const std::string& folder, std::chrono::seconds /*age*/, std::chrono::system_clock::time_point /*now*/) final {
    return refusal(folder);
  }
  Result<FirstWins> first_wins(const std::string& folder) final { return refusal(folder); }

 private:
  Status refusal(const std::string& path) const {
    return Status::failed_precondition("nothing can be written here; name a folder of this machine (address):", this->uri_of(path));
  }
};

}  // namespace darkroom
