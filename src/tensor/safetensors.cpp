#include "darkroom/tensor/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "darkroom/core/utf8.h"
#include "safetensors_header.h"

namespace darkroom {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian and are used without a copy");

constexpr uint64_t kLengthBytes = 8;

class FileHandle {
 public:
  explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
  ~FileHandle() { ::close(descriptor_); }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

Status errno_status(const std::string& what, const std::string& path) {
  const std::string reason = std::generic_category().message(errno);
  return errno == ENOENT ? Status::not_found(what, path, reason) : Status::unavailable(what, path, reason);
}

// Pickle files start as a zip archive (torch >= 1.6) or with pickle's protocol mark. So do the lengths of some headers, which are followed
// by JSON.
bool looks_like_pickle(std::string_view bytes, uint64_t header_bytes) {
  const bool has_mark = bytes.starts_with("PK\x03\x04") || bytes.starts_with("\x80\x02");
  const std::string_view text = bytes.substr(kLengthBytes, 1);
  return has_mark && (header_bytes > kMaxSafetensorsHeaderBytes || text.find_first_not_of("{ \t\r\n") != std::string_view::npos);
}

// By element size, largest first, so that every tensor is aligned; then by name.
void sort_for_file(std::vector<TensorSpec>& specs) {
  std::ranges::sort(specs, [](const TensorSpec& a, const TensorSpec& b) {
    const auto size_a = torch::elementSize(a.dtype), size_b = torch::elementSize(b.dtype);
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
}

TensorSpec spec_of(const NamedTensor& named) { return {named.name, named.tensor.scalar_type(), named.tensor.sizes().vec()}; }

Status write_all(OutputFile& output, const std::vector<NamedTensor>& tensors, const SafetensorsMetadata& metadata) {
  std::vector<TensorSpec> specs;
  std::map<std::string, const torch::Tensor*> by_name;
  for (const auto& named : tensors) {
    specs.push_back(spec_of(named));
    by_name[named.name] = &named.tensor;
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::begin(output, std::move(specs), metadata));
  for (const auto& spec : writer->order()) {
    DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, *by_name.at(spec.name)));
  }
  return writer->finish();
}

// The header is JSON, which is UTF-8.
Status check_text(const OutputFile& output, const std::string& text) {
  const auto [shown, is_broken] = replace_invalid_utf8(text);
  return is_broken ? Status::invalid_argument("write a safetensors file: metadata must be UTF-8 (path, text):", output.path(), shown)
                   : Status::ok();
}

}  // namespace

/// A private, writable mapping of a whole file.
class SafetensorsFile::Mapping {
 public:
  Mapping(void* address, size_t num_bytes) : bytes_(static_cast<std::byte*>(address), num_bytes) {}
  ~Mapping() { ::munmap(bytes_.data(), bytes_.size()); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

SafetensorsFile::SafetensorsFile(std::string path, std::shared_ptr<Mapping> mapping)
    : path_(std::move(path)), mapping_(std::move(mapping)), mapping_bytes_(mapping_->bytes().size()) {}

SafetensorsFile::~SafetensorsFile() = default;

Result<std::shared_ptr<SafetensorsFile>> SafetensorsFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return errno_status("open a safetensors file (path, reason):", path);
  }
  const FileHandle file(descriptor);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    return errno_status("open a safetensors file (path, reason):", path);
  }
  if (!S_ISREG(info.st_mode)) {
    return Status::failed_precondition("open a safetensors file: not a regular file (path):", path);
  }
  const auto num_bytes = static_cast<size_t>(info.st_size);
  if (num_bytes < kLengthBytes) {
    return Status::corrupt_data("read a safetensors file: shorter than its 8-byte header length (path, bytes):", path, num_bytes);
  }
  void* address = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) {
    return errno_status("map a safetensors file (path, reason):", path);
  }
  std::shared_ptr<SafetensorsFile> result(new SafetensorsFile(path, std::make_shared<Mapping>(address, num_bytes)));
  if (Status status = result->read_header(); !status.is_ok()) {
    return status.with_context("read the safetensors file " + path);
  }
  return result;
}

Status SafetensorsFile::read_header() {
  const std::string_view bytes(reinterpret_cast<const char*>(mapping_->bytes().data()), mapping_bytes_);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (looks_like_pickle(bytes, header_bytes)) {
    return Status::failed_precondition(std::string("this is a pickle file; ") + kPickleConversion);
  }
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return Status::corrupt_data("header longer than 100 MB (bytes):", header_bytes);
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return Status::corrupt_data("header longer than the file (header bytes, file bytes):", header_bytes, bytes.size());
  }
  data_offset_ = kLengthBytes + header_bytes;
  DARKROOM_ASSIGN_OR_RETURN(auto header, parse_safetensors_header(bytes.substr(kLengthBytes, header_bytes), bytes.size() - data_offset_));
  metadata_ = std::move(header.metadata);
  for (auto& place : header.places) {
    const std::string name = place.spec.name;
    entries_[name] = {.spec = std::move(place.spec), .begin = place.begin, .end = place.end};
  }
  for (const auto& [name, entry] : entries_) {
    names_.push_back(name);
  }
  return Status::ok();
}

Result<TensorSpec> SafetensorsFile::spec(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return Status::not_found("no such tensor in the file (path, tensor):", path_, name);
  }
  return found->second.spec;
}

Result<torch::Tensor> SafetensorsFile::tensor(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return Status::not_found("no such tensor in the file (path, tensor):", path_, name);
  }
  const Entry& entry = found->second;
  const auto options = torch::TensorOptions().dtype(entry.spec.dtype);
  if (entry.begin == entry.end) {
    return torch::empty(entry.spec.shape, options);
  }
  std::byte* data = mapping_->bytes().data() + data_offset_ + entry.begin;
  if (reinterpret_cast<uintptr_t>(data) % torch::elementSize(entry.spec.dtype) != 0) {
    auto copy = torch::empty(entry.spec.shape, options);
    std::memcpy(copy.data_ptr(), data, entry.end - entry.begin);
    return copy;
  }
  return torch::from_blob(
      data, entry.spec.shape, [keep = mapping_](void*) {}, options);
}

bool can_name_tensor(const std::string& name) { return name != kSafetensorsMetadataKey && !replace_invalid_utf8(name).second; }

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::begin(OutputFile& output, std::vector<TensorSpec> specs,
                                                                    const SafetensorsMetadata& metadata) {
  sort_for_file(specs);
  std::map<std::string, int> seen;
  for (const auto& spec : specs) {
    if (!can_name_tensor(spec.name) || ++seen[spec.name] > 1) {
      return Status::invalid_argument("write a safetensors file: a tensor name is reserved, no UTF-8 or given twice (path, name):",
                                      output.path(), replace_invalid_utf8(spec.name).first);
    }
  }
  for (const auto& [key, text] : metadata) {
    DARKROOM_RETURN_IF_ERROR(check_text(output, key));
    DARKROOM_RETURN_IF_ERROR(check_text(output, text));
  }
  const std::string header = format_safetensors_header(specs, metadata);
  if (header.size() > kMaxSafetensorsHeaderBytes) {
    return Status::invalid_argument("write a safetensors file: header longer than 100 MB (path, bytes):", output.path(), header.size());
  }
  const uint64_t header_bytes = header.size();
  DARKROOM_RETURN_IF_ERROR(output.write(std::as_bytes(std::span(&header_bytes, 1))));
  DARKROOM_RETURN_IF_ERROR(output.write(std::as_bytes(std::span(header))));
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(output, std::move(specs)));
}

Status SafetensorsWriter::write(const std::string& name, const torch::Tensor& tensor) {
  const TensorSpec got = spec_of({name, tensor});
  if (num_written_ == order_.size() || order_[num_written_] != got) {
    const std::string want = num_written_ == order_.size() ? "no further tensor" : order_[num_written_].name;
    return Status::invalid_argument("write a safetensors file: not the tensor that comes next (path, want, got):", output_.path(), want,
                                    name);
  }
  const auto plain = tensor.detach().cpu().contiguous();
  ++num_written_;
  return output_.write({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
}

Status SafetensorsWriter::finish() const {
  if (num_written_ != order_.size()) {
    return Status::invalid_argument("write a safetensors file: tensors are missing (path, written, declared):", output_.path(),
                                    num_written_, order_.size());
  }
  return Status::ok();
}

Status write_safetensors(FileSystem& files, const std::string& path, const std::vector<NamedTensor>& tensors,
                         const SafetensorsMetadata& metadata) {
  DARKROOM_ASSIGN_OR_RETURN(const auto output, files.create(path));
  Status status = write_all(*output, tensors, metadata);
  if (status.is_ok()) {
    status = output->sync();
  }
  if (status.is_ok()) {
    status = output->close();
  }
  if (!status.is_ok()) {
    static_cast<void>(output->close());
    static_cast<void>(files.remove_file(path));  // The first failure is the one to report.
  }
  return status;
}

Status write_safetensors_atomic(FileSystem& files, const std::string& path, const std::vector<NamedTensor>& tensors,
                                const SafetensorsMetadata& metadata) {
  return replace_file_atomic(files, path, [&](OutputFile& output) { return write_all(output, tensors, metadata); });
}

}  // namespace darkroom
