"""The reference networks (diffusers, transformers) behind the face of `darkroom models forward`.

Shared by tools/goldens/make_nn_goldens.py and tools/parity/nn_parity.py: builds a network from its config, fills it with the
counter-based draws of docs/formats/randomness.md, and runs it forwards and backwards.
"""

import numpy as np
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

import counter_random


def uniform(seed, key, count):
    """Draws 0..count-1 of CounterRandom(seed, kInit, 0, key), in [0, 1), float64."""
    return counter_random.draws(seed, key, count, counter_random.INIT).astype(np.float64) / 2.0**32


def draw(seed, key, shape, scale):
    """float32 tensor, uniform in +-scale."""
    count = int(np.prod(shape))
    return torch.from_numpy(((2 * uniform(seed, key, count) - 1) * scale).astype(np.float32).reshape(shape))


def published_name(component, name):
    """Names as the published files have them: transformers 5 dropped the text model's prefix in memory."""
    is_bare = component.startswith("text_encoder") and not name.startswith(("text_model.", "text_projection."))
    return "text_model." + name if is_bare else name


def build(component, config):
    if component == "unet":
        return UNet2DConditionModel(**config).eval()
    if component == "text_encoder":
        return CLIPTextModel(CLIPTextConfig(**config)).eval()
    if component == "text_encoder_2":
        return CLIPTextModelWithProjection(CLIPTextConfig(**config)).eval()
    return AutoencoderKL(**config).eval()


def fill_parameters(model, component, seed, scale=0.2):
    """Every parameter uniform in +-scale, weights of norms 1 more: nothing is zero, so nothing can hide."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = draw(seed, published_name(component, name), tuple(parameter.shape), scale)
            is_norm_weight = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(values + 1 if is_norm_weight else values)


def run(model, component, inputs):
    if component == "unet":
        added = {key: inputs[key] for key in ("text_embeds", "time_ids") if key in inputs}
        output = model(inputs["sample"], inputs["timestep"], inputs["encoder_hidden_states"], added_cond_kwargs=added or None)
        return {"output": output.sample}
    if component == "text_encoder_2":
        output = model(input_ids=inputs["input_ids"], output_hidden_states=True)
        return {"penultimate_hidden_state": output.hidden_states[-2], "text_embeds": output.text_embeds}
    if component == "text_encoder":
        return {"last_hidden_state": model(input_ids=inputs["input_ids"]).last_hidden_state}
    if component == "vae_decoder":
        return {"image": model.decode(inputs["sample"]).sample}
    posterior = model.encode(inputs["sample"]).latent_dist
    return {"mean": posterior.mean, "logvar": posterior.logvar}


def run_with_gradients(model, component, inputs, seed):
    """Returns (cotangents, outputs and gradients), named as `darkroom models forward --gradients` names them."""
    leaves = {name: value.clone().requires_grad_(value.is_floating_point()) for name, value in inputs.items()}
    outputs = run(model, component, leaves)
    cotangents = {name: draw(seed, "cotangent." + name, tuple(value.shape), 1.0) for name, value in outputs.items()}
    torch.autograd.backward(list(outputs.values()), [cotangents[name] for name in outputs])
    results = {name: value.detach() for name, value in outputs.items()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:  # The encoder's run does not reach the decoder, and the reverse.
            results["grad." + published_name(component, name)] = parameter.grad
    for name, leaf in leaves.items():
        if leaf.requires_grad:
            results["grad_input." + name] = leaf.grad
    return {"cotangent." + name: value for name, value in cotangents.items()}, results
