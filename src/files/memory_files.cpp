#include "darkroom/files/memory_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "darkroom/core/random.h"
#include "darkroom/files/paths.h"

namespace darkroom {

/// A file or folder: what processes see now, and what a power loss would leave.
struct MemoryFileSystem::Node {
  bool is_folder = false;
  std::vector<std::byte> bytes;
  std::vector<std::byte> durable_bytes;
  std::map<std::string, std::shared_ptr<Node>> children;  // Shared: a name here, a name that survives, open files.
  std::map<std::string, std::shared_ptr<Node>> durable_children;
  std::weak_ptr<void> lock;  // Expired: nobody holds it.
};

namespace {

using Node = MemoryFileSystem::Node;

std::vector<std::string> names_of(const std::string& path) {
  std::vector<std::string> names;
  std::string name;
  for (const char letter : path + "/") {
    if (letter != '/') {
      name += letter;
      continue;
    }
    if (!name.empty() && name != ".") {
      names.push_back(name);
    }
    name.clear();
  }
  return names;
}

Status not_found(const std::string& path) { return Status::not_found(fmt::format("cannot open {}: no such file or folder", path)); }
Status no_folder(const std::string& path) {
  return Status::failed_precondition(fmt::format("cannot open {}: a part of the path is no folder", path));
}

class MemoryInputFile final : public InputFile {
 public:
  MemoryInputFile(std::string path, std::shared_ptr<Node> node, std::mutex& mutex)
      : path_(std::move(path)), node_(std::move(node)), mutex_(mutex), size_bytes_(static_cast<int64_t>(node_->bytes.size())) {}

  const std::string& path() const override { return path_; }
  int64_t size_bytes() const override { return size_bytes_; }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
    const std::lock_guard hold(mutex_);
    const size_t begin = std::min(static_cast<size_t>(offset), node_->bytes.size());
    const size_t num_read = std::min(out.size(), node_->bytes.size() - begin);
    std::copy_n(node_->bytes.begin() + static_cast<std::ptrdiff_t>(begin), num_read, out.begin());
    return num_read;
  }

 private:
  std::string path_;
  std::shared_ptr<Node> node_;
  std::mutex& mutex_;
  int64_t size_bytes_;
};

class MemoryOutputFile final : public OutputFile {
 public:
  MemoryOutputFile(std::string path, std::shared_ptr<Node> node, std::mutex& mutex)
      : path_(std::move(path)), node_(std::move(node)), mutex_(mutex) {}

  const std::string& path() const override { return path_; }
  Status write(std::span<const std::byte> bytes) override {
    const std::lock_guard hold(mutex_);
    DARKROOM_CHECK(!closed_, "use of a closed file (path):", path_);
    node_->bytes.insert(node_->bytes.end(), bytes.begin(), bytes.end());
    return Status::ok();
  }
  Status sync() override {
    const std::lock_guard hold(mutex_);
    DARKROOM_CHECK(!closed_, "use of a closed file (path):", path_);
    node_->durable_bytes = node_->bytes;
    return Status::ok();
  }
  Status close() override {
    closed_ = true;
    return Status::ok();
  }

 private:
  std::string path_;
  std::shared_ptr<Node> node_;
  std::mutex& mutex_;
  bool closed_ = false;
};

class MemoryLock final : public FileLock {
 public:
  explicit MemoryLock(std::shared_ptr<void> token) : token_(std::move(token)) {}

 private:
  std::shared_ptr<void> token_;  // The node watches it.
};

/// What a power loss leaves of a node, drawn by `seed` where it is not certain.
class PowerLoss {
 public:
  explicit PowerLoss(uint64_t seed) : seed_(seed) {}

  void strike(Node& node, const std::string& path) {
    if (!struck_.insert(&node).second) {
      return;  // Reached by another name already.
    }
    node.lock.reset();
    if (!node.is_folder) {
      strike_bytes(node, path);
      return;
    }
    strike_names(node, path);
    for (auto& [name, child] : node.children) {
      strike(*child, path + "/" + name);
    }
  }

 private:
  uint32_t draw(const std::string& path, uint64_t index, uint32_t bound) const {
    return CounterRandom(seed_, Purpose::kSelect, 0, path).below(index, bound);
  }

  void strike_bytes(Node& node, const std::string& path) const {
    std::vector<std::byte> left = node.durable_bytes;
    if (seed_ != 0 && node.bytes.size() > left.size()) {
      const auto num_unsynced = static_cast<uint32_t>(node.bytes.size() - left.size());
      const size_t num_kept = draw(path, 0, num_unsynced + 1);
      const size_t num_written = draw(path, 1, static_cast<uint32_t>(num_kept) + 1);
      left.insert(left.end(), node.bytes.begin() + static_cast<std::ptrdiff_t>(left.size()),
                  node.bytes.begin() + static_cast<std::ptrdiff_t>(left.size() + num_written));
      left.resize(node.durable_bytes.size() + num_kept);  // The size reached the disk, the last blocks did not: zeros.
    }
    node.bytes = left;
    node.durable_bytes = std::move(left);
  }

  void strike_names(Node& node, const std::string& path) const {
    std::map<std::string, std::shared_ptr<Node>> left = node.durable_children;
    if (seed_ != 0) {
      std::set<std::string> names;
      for (const auto* side : {&node.children, &node.durable_children}) {
        for (const auto& [name, child] : *side) {
          names.insert(name);
        }
      }
      for (const std::string& name : names) {
        if (draw(path + "/" + name, 2, 2) == 0) {
          continue;
        }
        const auto live = node.children.find(name);
        if (live == node.children.end()) {
          left.erase(name);
        } else {
          left[name] = live->second;
        }
      }
    }
    node.children = left;
    node.durable_children = std::move(left);
  }

  uint64_t seed_;
  std::set<const Node*> struck_;
};

}  // namespace

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) { root_->is_folder = true; }

MemoryFileSystem::~MemoryFileSystem() = default;

void MemoryFileSystem::crash(uint64_t seed) {
  const std::lock_guard hold(mutex_);
  PowerLoss(seed).strike(*root_, "");
}

std::shared_ptr<MemoryFileSystem::Node> MemoryFileSystem::find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (const std::string& name : names_of(path)) {
    const auto child = node->children.find(name);
    if (child == node->children.end()) {
      return nullptr;
    }
    node = child->second;
  }
  return node;
}

Result<std::shared_ptr<MemoryFileSystem::Node>> MemoryFileSystem::find_folder(const std::string& path) const {
  std::shared_ptr<Node> node = find(path);
  if (node == nullptr) {
    return not_found(path);
  }
  return node->is_folder ? Result<std::shared_ptr<Node>>(std::move(node)) : no_folder(path);
}

Result<std::unique_ptr<InputFile>> MemoryFileSystem::open_input(const std::string& path) {
  const std::lock_guard hold(mutex_);
  const std::shared_ptr<Node> node = find(path);
  if (node == nullptr) {
    return not_found(path);
  }
  if (node->is_folder) {
    return Status::failed_precondition(fmt::format("cannot open {}: it is a folder", path));
  }
  return std::unique_ptr<InputFile>(std::make_unique<MemoryInputFile>(path, node, mutex_));
}

Result<std::unique_ptr<OutputFile>> MemoryFileSystem::create(const std::string& path) {
  const std::lock_guard hold(mutex_);
  DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, find_folder(parent_folder(path)));
  const auto [entry, made] = folder->children.try_emplace(file_name(path), nullptr);
  if (!made) {
    return Status::already_exists(fmt::format("cannot create {}: the name is taken", path));
  }
  entry->second = std::make_shared<Node>();
  return std::unique_ptr<OutputFile>(std::make_unique<MemoryOutputFile>(path, entry->second, mutex_));
}

Result<std::unique_ptr<OutputFile>> MemoryFileSystem::open_append(const std::string& path) {
  {
    const std::lock_guard hold(mutex_);
    if (const std::shared_ptr<Node> node = find(path)) {
      if (node->is_folder) {
        return Status::failed_precondition(fmt::format("cannot open {}: it is a folder", path));
      }
      return std::unique_ptr<OutputFile>(std::make_unique<MemoryOutputFile>(path, node, mutex_));
    }
  }
  return create(path);
}

Result<FileInfo> MemoryFileSystem::stat(const std::string& path) {
  const std::lock_guard hold(mutex_);
  const std::shared_ptr<Node> node = find(path);
  if (node == nullptr) {
    return not_found(path);
  }
  return FileInfo{.path = path, .size_bytes = static_cast<int64_t>(node->bytes.size()), .is_folder = node->is_folder};
}

Result<std::vector<FileInfo>> MemoryFileSystem::list(const std::string& folder) {
  const std::lock_guard hold(mutex_);
  DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<Node> node, find_folder(folder));
  std::vector<FileInfo> entries;
  for (const auto& [name, child] : node->children) {
    entries.push_back(
        {.path = join_path(folder, name), .size_bytes = static_cast<int64_t>(child->bytes.size()), .is_folder = child->is_folder});
  }
  return entries;
}

Status MemoryFileSystem::create_folders(const std::string& folder) {
  const std::lock_guard hold(mutex_);
  std::shared_ptr<Node> node = root_;
  for (const std::string& name : names_of(folder)) {
    std::shared_ptr<Node>& child = node->children[name];
    if (child == nullptr) {
      child = std::make_shared<Node>();
      child->is_folder = true;
      node->durable_children[name] = child;
    }
    if (!child->is_folder) {
      return no_folder(folder);
    }
    node = child;
  }
  return Status::ok();
}

/// REQUIRES: mutex_ is held.
Status MemoryFileSystem::move(const std::string& from, const std::string& to) {
  const std::shared_ptr<Node> node = find(from);
  if (node == nullptr) {
    return not_found(from);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<Node> target, find_folder(parent_folder(to)));
  find(parent_folder(from))->children.erase(file_name(from));
  target->children[file_name(to)] = node;
  return Status::ok();
}

Status MemoryFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  const std::lock_guard hold(mutex_);
  if (find(from) != nullptr && find(to) != nullptr) {
    return Status::already_exists(fmt::format("cannot rename to {}: the name is taken", to));
  }
  return move(from, to);
}

Status MemoryFileSystem::rename_replace(const std::string& from, const std::string& to) {
  const std::lock_guard hold(mutex_);
  const std::shared_ptr<Node> target = find(to);
  if (target != nullptr && target->is_folder) {
    return Status::failed_precondition(fmt::format("cannot rename to {}: it is a folder", to));
  }
  return move(from, to);
}

Status MemoryFileSystem::remove_file(const std::string& path) {
  const std::lock_guard hold(mutex_);
  const std::shared_ptr<Node> node = find(path);
  if (node == nullptr) {
    return not_found(path);
  }
  if (node->is_folder) {
    return Status::failed_precondition(fmt::format("cannot remove {}: it is a folder", path));
  }
  find(parent_folder(path))->children.erase(file_name(path));
  return Status::ok();
}

Status MemoryFileSystem::remove_tree(const std::string& path) {
  const std::lock_guard hold(mutex_);
  if (find(path) != nullptr) {
    find(parent_folder(path))->children.erase(file_name(path));
  }
  return Status::ok();
}

Status MemoryFileSystem::sync_file(const std::string& path) {
  const std::lock_guard hold(mutex_);
  const std::shared_ptr<Node> node = find(path);
  if (node == nullptr) {
    return not_found(path);
  }
  node->durable_bytes = node->bytes;
  return Status::ok();
}

Status MemoryFileSystem::sync_folder(const std::string& folder) {
  const std::lock_guard hold(mutex_);
  DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<Node> node, find_folder(folder));
  node->durable_children = node->children;
  return Status::ok();
}

Result<std::unique_ptr<FileLock>> MemoryFileSystem::try_lock(const std::string& path) {
  const std::lock_guard hold(mutex_);
  const std::shared_ptr<Node> node = find(path);
  if (node == nullptr) {
    return not_found(path);
  }
  if (!node->lock.expired()) {
    return std::unique_ptr<FileLock>();
  }
  const std::shared_ptr<void> token = std::make_shared<int>();
  node->lock = token;
  return std::unique_ptr<FileLock>(std::make_unique<MemoryLock>(token));
}

}  // namespace darkroom
