#include "write_weights.h"

#include <utility>

namespace darkroom {
namespace {

Status write_tensors(OutputFile& output, std::vector<TensorSpec> specs,
                     const std::function<torch::Tensor(const std::string& name)>& tensor) {
  // transformers refuses a file whose metadata does not name its framework.
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::begin(output, std::move(specs), {{"format", "pt"}}));
  for (const auto& spec : writer->order()) {
    DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, tensor(spec.name)));
  }
  DARKROOM_RETURN_IF_ERROR(writer->finish());
  DARKROOM_RETURN_IF_ERROR(output.sync());
  return output.close();
}

}  // namespace

Status write_weights(FileSystem& files, const std::string& path, std::vector<TensorSpec> specs,
                     const std::function<torch::Tensor(const std::string& name)>& tensor) {
  DARKROOM_ASSIGN_OR_RETURN(const auto output, files.create(path));
  Status status = write_tensors(*output, std::move(specs), tensor);
  if (!status.is_ok()) {
    static_cast<void>(output->close());
    static_cast<void>(files.remove_file(path));  // The first failure is the one to report.
  }
  return status;
}

}  // namespace darkroom
