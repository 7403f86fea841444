#include "darkroom/nn/run_component.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/packing.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;

// One component behind a common face: named tensors in, named tensors out.
struct Component {
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::string> inputs;
  std::function<Tensors(const Tensors&)> forward;
};

// DIR is a model folder, a single file, or the component's own folder.
Result<std::string> component_folder(const std::string& model, const std::string& name) {
  const std::string inside = join_path(model, name);
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, local_files().stat(model));
  if (!info.is_folder) {
    return inside;
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool is_model_folder, local_files().exists(join_path(inside, "config.json")));
  return is_model_folder ? inside : model;
}

Result<Component> open_unet(const std::string& model) {
  DARKROOM_ASSIGN_OR_RETURN(const auto folder, component_folder(model, "unet"));
  DARKROOM_ASSIGN_OR_RETURN(UNet2DConditionModel unet, load_any_unet(folder));
  if (unet->config().added_embedding) {
    return Component{
        unet.ptr(), {"sample", "timestep", "encoder_hidden_states", "text_embeds", "time_ids"}, [unet](const Tensors& in) mutable {
          const AddedConditions added{.text_embeds_nc = in.at("text_embeds"), .time_ids_nk = in.at("time_ids")};
          return Tensors{{"output", unet->forward_with(in.at("sample"), in.at("timestep"), in.at("encoder_hidden_states"), added)}};
        }};
  }
  return Component{unet.ptr(), {"sample", "timestep", "encoder_hidden_states"}, [unet](const Tensors& in) mutable {
                     return Tensors{{"output", unet(in.at("sample"), in.at("timestep"), in.at("encoder_hidden_states"))}};
                   }};
}

Result<Component> open_vae(const std::string& model, bool encodes) {
  DARKROOM_ASSIGN_OR_RETURN(const auto folder, component_folder(model, "vae"));
  DARKROOM_ASSIGN_OR_RETURN(AutoencoderKL vae, load_vae(folder));
  if (!encodes) {
    return Component{vae.ptr(), {"sample"}, [vae](const Tensors& in) mutable { return Tensors{{"image", vae->decode(in.at("sample"))}}; }};
  }
  return Component{vae.ptr(), {"sample"}, [vae](const Tensors& in) mutable {
                     const Moments moments = vae->encode(in.at("sample"));
                     return Tensors{{"mean", moments.mean}, {"logvar", moments.logvar}};
                   }};
}

Result<Component> open_text_encoder(const std::string& model) {
  DARKROOM_ASSIGN_OR_RETURN(const auto folder, component_folder(model, "text_encoder"));
  DARKROOM_ASSIGN_OR_RETURN(ClipTextModel text_encoder, load_text_encoder(folder));
  return Component{text_encoder.ptr(), {"input_ids"}, [text_encoder](const Tensors& in) mutable {
                     return Tensors{{"last_hidden_state", text_encoder(in.at("input_ids").to(torch::kInt64))}};
                   }};
}

// As SDXL uses its text encoders.
Result<Component> open_text_states(const std::string& model) {
  DARKROOM_ASSIGN_OR_RETURN(const auto folder, component_folder(model, "text_encoder_2"));
  DARKROOM_ASSIGN_OR_RETURN(ClipTextModel text_encoder, load_text_encoder(folder));
  return Component{text_encoder.ptr(), {"input_ids"}, [text_encoder](const Tensors& in) mutable {
                     const ClipTextStates states = text_encoder->encode(in.at("input_ids").to(torch::kInt64));
                     Tensors outputs = {{"penultimate_hidden_state", states.penultimate_btc}};
                     if (states.text_embeds_np.defined()) {
                       outputs["text_embeds"] = states.text_embeds_np;
                     }
                     return outputs;
                   }};
}

Result<Component> open_component(const std::string& model, const std::string& name) {
  if (name == "unet") {
    return open_unet(model);
  }
  if (name == "text_encoder") {
    return open_text_encoder(model);
  }
  if (name == "text_encoder_2") {
    return open_text_states(model);
  }
  return open_vae(model, /*encodes=*/name == "vae_encoder");
}

Result<torch::Tensor> read_float32(const SafetensorsFile& file, const std::string& name) {
  DARKROOM_ASSIGN_OR_RETURN(const auto tensor, file.tensor(name));
  return tensor.is_floating_point() ? tensor.to(torch::kFloat32) : tensor;
}

Result<Tensors> read_inputs(const SafetensorsFile& file, const Component& component, bool gradients) {
  Tensors inputs;
  for (const auto& name : component.inputs) {
    DARKROOM_ASSIGN_OR_RETURN(auto tensor, read_float32(file, name));
    tensor.set_requires_grad(gradients && tensor.is_floating_point());
    inputs[name] = std::move(tensor);
  }
  return inputs;
}

torch::Tensor gradient_of(const torch::Tensor& tensor) { return tensor.grad().defined() ? tensor.grad() : torch::zeros_like(tensor); }

// Back-propagates the cotangents that the file holds and lists every gradient.
Result<std::vector<NamedTensor>> collect_gradients(const SafetensorsFile& file, const Component& component, const Tensors& inputs,
                                                   const Tensors& outputs) {
  std::vector<torch::Tensor> roots, cotangents;
  for (const auto& [name, output] : outputs) {
    DARKROOM_ASSIGN_OR_RETURN(auto cotangent, read_float32(file, "cotangent." + name));
    roots.push_back(output);
    cotangents.push_back(std::move(cotangent));
  }
  torch::autograd::backward(roots, cotangents);
  std::vector<NamedTensor> gradients;
  for (const auto& item : component.module->named_parameters()) {
    gradients.push_back({"grad." + item.key(), gradient_of(item.value())});
  }
  for (const auto& [name, input] : inputs) {
    if (input.requires_grad()) {
      gradients.push_back({"grad_input." + name, gradient_of(input)});
    }
  }
  return gradients;
}

Status go_on_computing(const ComponentRun& run, const std::stop_token& stop) {
  return stop.stop_requested() ? Status::cancelled("stopped before everything was computed; nothing was written (output):", run.output)
                               : Status::ok();
}

Result<std::vector<NamedTensor>> compute(const ComponentRun& run, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const Component component, open_component(run.model, run.component));
  DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(run.inputs));
  DARKROOM_ASSIGN_OR_RETURN(const Tensors inputs, read_inputs(*file, component, run.gradients));
  const torch::AutoGradMode grad_mode(run.gradients);
  if (run.packed) {
    pack_network(*component.module);
  }
  DARKROOM_RETURN_IF_ERROR(go_on_computing(run, stop));
  const Tensors outputs = component.forward(inputs);
  DARKROOM_RETURN_IF_ERROR(go_on_computing(run, stop));
  std::vector<NamedTensor> results;
  if (run.gradients) {
    DARKROOM_ASSIGN_OR_RETURN(results, collect_gradients(*file, component, inputs, outputs));
  }
  for (const auto& [name, output] : outputs) {
    results.push_back({name, output.detach()});
  }
  return results;
}

// Shapes and ids come from the user's file, so what torch and our own checks throw about them is no bug of ours.
Result<std::vector<NamedTensor>> compute_guarded(const ComponentRun& run, const std::stop_token& stop) {
  constexpr const char* kMisfit = "run a component: the inputs do not fit it (component, inputs, reason):";
  try {
    return compute(run, stop);
  } catch (const c10::Error& error) {
    return Status::failed_precondition(kMisfit, run.component, run.inputs, error.what_without_backtrace());
  } catch (const CheckFailure& error) {
    return Status::failed_precondition(kMisfit, run.component, run.inputs, error.what());
  }
}

}  // namespace

const std::vector<std::string>& component_names() {
  static const std::vector<std::string> names = {"unet", "vae_encoder", "vae_decoder", "text_encoder", "text_encoder_2"};
  return names;
}

Status run_component(const ComponentRun& run, const std::stop_token& stop) {
  if (std::ranges::find(component_names(), run.component) == component_names().end()) {
    return Status::invalid_argument("unknown component; there are " + nlohmann::json(component_names()).dump() + " (got):", run.component);
  }
  if (run.packed && run.gradients) {
    return Status::invalid_argument("a packed network runs without gradients; ask for one of the two (component):", run.component);
  }
  at::set_num_threads(run.threads);
  DARKROOM_ASSIGN_OR_RETURN(const auto results, compute_guarded(run, stop));
  DARKROOM_RETURN_IF_ERROR(go_on_computing(run, stop));
  return write_safetensors_atomic(local_files(), run.output, results);
}

}  // namespace darkroom
