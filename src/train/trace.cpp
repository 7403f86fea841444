#include "trace.h"

#include <fmt/format.h>

#include <map>

namespace darkroom {
namespace {

torch::Tensor scalar(double value) { return torch::full({1}, value, torch::kFloat32); }

torch::Tensor rows_of(const Batch& batch) {
  std::vector<int64_t> rows;
  for (const auto& sample : batch.samples) {
    rows.push_back(sample.row);
  }
  return torch::tensor(rows, torch::kInt64);
}

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::begin(FileSystem& files, const std::string& path, int64_t num_steps,
                                                        const FlatParameters& parameters) {
  DARKROOM_ASSIGN_OR_RETURN(const bool taken, files.exists(path));
  if (taken) {
    return Status::already_exists("the trace file is there already; name another one:", path);
  }
  std::unique_ptr<TraceWriter> writer(new TraceWriter(files, path, num_steps));
  DARKROOM_RETURN_IF_ERROR(writer->park_weights("initial.weights.", parameters));
  return writer;
}

TraceWriter::~TraceWriter() {
  for (const auto& file : parked_files_) {
    (void)files_.remove_tree(file);  // Fine when finish() has removed it.
  }
}

Status TraceWriter::park_weights(const std::string& prefix, const FlatParameters& parameters) {
  std::vector<NamedTensor> weights;
  for (const auto& [name, view] : parameters.named_views(parameters.values())) {
    weights.push_back({prefix + name, view.detach()});
  }
  const std::string file = fmt::format("{}.{}.parked", path_, parked_files_.size());
  DARKROOM_RETURN_IF_ERROR(files_.remove_tree(file));
  parked_files_.push_back(file);
  return write_safetensors(files_, file, weights);
}

Status TraceWriter::add(const TrainedPart& part, const Batch& batch, const StepReport& report, const FlatParameters& parameters) {
  if (is_complete()) {
    return {};
  }
  const std::string prefix = fmt::format("step.{}.", next_step_);
  const auto keep = [&](const char* name, const torch::Tensor& tensor) { tensors_.push_back({prefix + name, tensor}); };
  keep("key_row", rows_of(batch));
  keep("loss", scalar(report.loss));
  keep("grad_norm", scalar(report.grad_norm));
  for (const auto& [name, tensor] : part.traced_inputs()) {
    tensors_.push_back({prefix + name, tensor});
  }
  ++next_step_;
  return park_weights(prefix + "weights.", parameters);
}

Status TraceWriter::finish() {
  return replace_file_atomic(files_, path_, [this](OutputFile& output) { return write_all(output); });
}

Status TraceWriter::write_all(OutputFile& output) const {
  std::map<std::string, std::shared_ptr<SafetensorsFile>> parked;  // File of each parked tensor.
  std::map<std::string, torch::Tensor> small;
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors_) {
    small[name] = tensor;
    specs.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  for (const auto& path : parked_files_) {
    DARKROOM_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open(path));
    for (const auto& name : file->names()) {
      DARKROOM_ASSIGN_OR_RETURN(auto spec, file->spec(name));
      specs.push_back(std::move(spec));
      parked[name] = file;
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto writer,
                            SafetensorsWriter::begin(output, std::move(specs), {{"steps", fmt::format("{}", next_step_)}}));
  for (const auto& spec : writer->order()) {
    const auto held = small.find(spec.name);
    if (held != small.end()) {
      DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, held->second));
    } else {
      DARKROOM_ASSIGN_OR_RETURN(const auto tensor, parked.at(spec.name)->tensor(spec.name));
      DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, tensor));
    }
  }
  return writer->finish();
}

}  // namespace darkroom
