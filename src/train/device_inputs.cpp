#include "device_inputs.h"

namespace darkroom {

torch::Tensor DeviceInputs::put(const std::string& name, const torch::Tensor& source) {
  if (device_.is_cpu()) {
    return source;
  }
  Input& input = inputs_.try_emplace(name, Input{Upload(device_), {}}).first->second;
  if (!input.values.defined() || input.values.sizes() != source.sizes() || input.values.scalar_type() != source.scalar_type()) {
    input.values = torch::empty(source.sizes(), source.options().device(device_));
  }
  input.upload.send(source, input.values);
  return input.values;
}

}  // namespace darkroom
