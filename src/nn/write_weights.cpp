#include "write_weights.h"

#include <utility>

#include "darkroom/nn/component_config.h"

namespace darkroom {
namespace {

Result<torch::Tensor> converted(const std::string& name, const torch::Tensor& tensor, torch::Dtype type) {
  const torch::Tensor stored = tensor.to(type);
  if (stored.scalar_type() != tensor.scalar_type() && at::logical_and(stored.isinf(), tensor.isfinite()).any().item<bool>()) {
    return Status::failed_precondition("a weight is too large for float16, which ends at 65504; store float32 (tensor, largest value):",
                                       name, tensor.abs().max().item<double>());
  }
  return stored;
}

Status go_on_writing(const std::stop_token& stop, const std::string& path) {
  return stop.stop_requested() ? Status::cancelled("stopped while weights were written (file):", path) : Status::ok();
}

Status write_tensors(OutputFile& output, std::vector<TensorSpec> specs, const std::function<torch::Tensor(const std::string& name)>& tensor,
                     const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::begin(output, std::move(specs), weights_metadata()));
  for (const auto& spec : writer->order()) {
    DARKROOM_RETURN_IF_ERROR(go_on_writing(stop, output.path()));
    DARKROOM_ASSIGN_OR_RETURN(const torch::Tensor stored, converted(spec.name, tensor(spec.name), spec.dtype));
    DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, stored));
  }
  DARKROOM_RETURN_IF_ERROR(go_on_writing(stop, output.path()));  // Before the wait for the disk.
  DARKROOM_RETURN_IF_ERROR(writer->finish());
  DARKROOM_RETURN_IF_ERROR(output.sync());
  return output.close();
}

}  // namespace

SafetensorsMetadata weights_metadata() { return {{"format", "pt"}}; }

Status write_weights(FileSystem& files, const std::string& path, std::vector<TensorSpec> specs,
                     const std::function<torch::Tensor(const std::string& name)>& tensor, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const auto output, files.create(path));
  Status status = write_tensors(*output, std::move(specs), tensor, stop);
  if (!status.is_ok()) {
    static_cast<void>(output->close());
    static_cast<void>(files.remove_file(path));  // The first failure is the one to report.
  }
  return status;
}

}  // namespace darkroom
