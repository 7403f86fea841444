#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Name, type and shape of one tensor in a safetensors file.
struct TensorSpec {
  std::string name;
  torch::Dtype dtype = torch::kFloat32;
  std::vector<int64_t> shape;

  bool operator==(const TensorSpec&) const = default;
};

/// A tensor under a name.
struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

/// How a user turns a pickle file, which is never read here, into a safetensors file: part of every message that refuses one.
inline constexpr const char* kPickleConversion =
    "it can run code when it is read; convert it elsewhere with python -c \"import sys, torch, safetensors.torch as s; "
    "d = torch.load(sys.argv[1], map_location='cpu', weights_only=True); s.save_file({k: v.clone().contiguous() for k, v in "
    "d.get('state_dict', d).items() if torch.is_tensor(v)}, sys.argv[2])\" IN OUT.safetensors";

/// The string-to-string map of a safetensors header.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// Whether a tensor of a safetensors file can have this name: it is UTF-8, and not "__metadata__", which the header keeps for itself.
bool can_name_tensor(const std::string& name);

/// The name that a safetensors header uses for a dtype ("F32", "BF16", ...). REQUIRES: a dtype that the format knows.
std::string safetensors_dtype_name(torch::Dtype dtype);

/// A safetensors file, mapped into memory and checked before the first tensor is handed out (docs/formats/safetensors.md).
/// Thread safety: immutable after open; any thread may read.
class SafetensorsFile {
 public:
  /// Maps a local file and checks its header: length at most 100 MB, one JSON object without a key twice, string-only
  /// metadata, known dtypes, and offsets that agree with the shapes and cover the data exactly, without gap or overlap.
  /// Errors: kNotFound; kUnavailable (the file cannot be read); kCorruptData, naming the file and the first fault;
  /// kFailedPrecondition for a pickle file (docs/formats/model_folder.md says how to convert it).
  static Result<std::shared_ptr<SafetensorsFile>> open(const std::string& path);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return mapping_bytes_; }
  /// Names in byte order.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  /// Type and shape of a tensor. Errors: kNotFound.
  Result<TensorSpec> spec(const std::string& name) const;
  /// A view of the mapping, without a copy (a copy only where the file left the tensor unaligned); it keeps the mapping
  /// alive by itself. Writing to it changes this process's pages only, never the file. Errors: kNotFound.
  Result<torch::Tensor> tensor(const std::string& name) const;

 private:
  struct Entry {
    TensorSpec spec;
    uint64_t begin = 0;  // Within the data area.
    uint64_t end = 0;
  };
  class Mapping;

  SafetensorsFile(std::string path, std::shared_ptr<Mapping> mapping);
  Status read_header();

  std::string path_;
  std::shared_ptr<Mapping> mapping_;  // Shared with the tensors that view it.
  uint64_t mapping_bytes_ = 0;
  uint64_t data_offset_ = 0;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> names_;
  SafetensorsMetadata metadata_;
};

/// Writes a safetensors file tensor by tensor: the layout is declared first, so only one tensor is in memory at a time.
/// The order in the file is by element size (largest first), then by name, as the reference writer's; the same specs,
/// metadata and values always give the same bytes. Thread safety: one object, one thread.
class SafetensorsWriter {
 public:
  /// Starts a file in `output`, which must be empty and outlive the writer. Errors: kInvalidArgument (a name twice, or
  /// one that can_name_tensor() refuses), those of the file.
  static Result<std::unique_ptr<SafetensorsWriter>> begin(OutputFile& output, std::vector<TensorSpec> specs,
                                                          const SafetensorsMetadata& metadata);

  /// The specs in file order: the order in which write() wants the tensors.
  const std::vector<TensorSpec>& order() const { return order_; }
  /// Appends the next tensor of order(); copies it to the CPU and makes it contiguous where needed.
  /// Errors: kInvalidArgument (not the next one: name, dtype or shape), those of the file.
  Status write(const std::string& name, const torch::Tensor& tensor);
  /// Checks that every tensor was written. Syncing and closing the file stay with the caller.
  Status finish() const;

 private:
  SafetensorsWriter(OutputFile& output, std::vector<TensorSpec> order) : output_(output), order_(std::move(order)) {}

  OutputFile& output_;
  std::vector<TensorSpec> order_;
  size_t num_written_ = 0;
};

/// Writes all tensors into a new file at `path`: create, write, sync, close. A failure removes what was written.
/// Errors: kAlreadyExists, kInvalidArgument (a name twice), those of the file system.
Status write_safetensors(FileSystem& files, const std::string& path, const std::vector<NamedTensor>& tensors,
                         const SafetensorsMetadata& metadata = {});

/// The same, but replaces what is at `path` as replace_file_atomic does: never half a file under its name.
Status write_safetensors_atomic(FileSystem& files, const std::string& path, const std::vector<NamedTensor>& tensors,
                                const SafetensorsMetadata& metadata = {});

}  // namespace darkroom
