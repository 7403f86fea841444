"""The names of an original Stable Diffusion checkpoint, built up as its published training code builds its networks.

Shared by tools/goldens/make_nn_goldens.py and tools/parity/nn_parity.py. `original_tensors` gives each stored tensor with the parameters
(diffusers' and transformers' names) of which it consists; `check_against_diffusers` has diffusers' own converters read it back.
"""

import torch
from diffusers.loaders import single_file_utils

UNET, VAE = "model.diffusion_model.", "first_stage_model."
TEXT = {"sd1": "cond_stage_model.transformer.", "sd2": "cond_stage_model.model."}
UNET_RESNET = {
    "norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0", "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection"}
VAE_RESNET = {"norm1": "norm1", "conv1": "conv1", "norm2": "norm2", "conv2": "conv2", "conv_shortcut": "nin_shortcut"}
VAE_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
OPEN_CLIP_LAYER = {
    "layer_norm1": "ln_1", "self_attn.out_proj": "attn.out_proj", "layer_norm2": "ln_2", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}


def nested(ours, original, table):
    return {f"{ours}.{a}": f"{original}.{b}" for a, b in table.items()}


def unet_modules(config):
    """Module of the published U-Net -> module of the original one."""
    modules = {
        "time_embedding.linear_1": "time_embed.0", "time_embedding.linear_2": "time_embed.2", "conv_in": "input_blocks.0.0",
        "conv_norm_out": "out.0", "conv_out": "out.2"}
    last, per_level = len(config["block_out_channels"]) - 1, config["layers_per_block"]
    number = 1
    for level, kind in enumerate(config["down_block_types"]):
        for block in range(per_level):
            modules |= nested(f"down_blocks.{level}.resnets.{block}", f"input_blocks.{number}.0", UNET_RESNET)
            if kind.startswith("CrossAttn"):
                modules[f"down_blocks.{level}.attentions.{block}"] = f"input_blocks.{number}.1"
            number += 1
        if level < last:
            modules[f"down_blocks.{level}.downsamplers.0.conv"] = f"input_blocks.{number}.0.op"
            number += 1
    for block in (0, 1):
        modules |= nested(f"mid_block.resnets.{block}", f"middle_block.{2 * block}", UNET_RESNET)
    modules["mid_block.attentions.0"] = "middle_block.1"
    number = 0
    for level, kind in enumerate(config["up_block_types"]):
        for block in range(per_level + 1):
            behind = 1
            modules |= nested(f"up_blocks.{level}.resnets.{block}", f"output_blocks.{number}.0", UNET_RESNET)
            if kind.startswith("CrossAttn"):
                modules[f"up_blocks.{level}.attentions.{block}"] = f"output_blocks.{number}.1"
                behind = 2
            if block == per_level and level < last:
                modules[f"up_blocks.{level}.upsamplers.0.conv"] = f"output_blocks.{number}.{behind}.conv"
            number += 1
    return modules


def vae_modules(config):
    modules = {"quant_conv": "quant_conv", "post_quant_conv": "post_quant_conv"}
    levels, per_level = len(config["block_out_channels"]), config["layers_per_block"]
    for half in ("encoder", "decoder"):
        modules |= {f"{half}.conv_in": f"{half}.conv_in", f"{half}.conv_norm_out": f"{half}.norm_out", f"{half}.conv_out": f"{half}.conv_out"}
        for block in (0, 1):
            modules |= nested(f"{half}.mid_block.resnets.{block}", f"{half}.mid.block_{block + 1}", VAE_RESNET)
        modules |= nested(f"{half}.mid_block.attentions.0", f"{half}.mid.attn_1", VAE_ATTENTION)
    for level in range(levels):
        for block in range(per_level):
            modules |= nested(f"encoder.down_blocks.{level}.resnets.{block}", f"encoder.down.{level}.block.{block}", VAE_RESNET)
        modules[f"encoder.down_blocks.{level}.downsamplers.0"] = f"encoder.down.{level}.downsample"
        original = levels - 1 - level
        for block in range(per_level + 1):
            modules |= nested(f"decoder.up_blocks.{level}.resnets.{block}", f"decoder.up.{original}.block.{block}", VAE_RESNET)
        modules[f"decoder.up_blocks.{level}.upsamplers.0"] = f"decoder.up.{original}.upsample"
    return modules


def open_clip_modules(config):
    modules = {"text_model.embeddings.token_embedding": "token_embedding", "text_model.final_layer_norm": "ln_final"}
    for layer in range(config["num_hidden_layers"]):
        modules |= nested(f"text_model.encoder.layers.{layer}", f"transformer.resblocks.{layer}", OPEN_CLIP_LAYER)
    return modules


def renamed(name, modules):
    """The longest module that the name starts with, replaced."""
    start = name
    while start not in modules:
        start = start.rpartition(".")[0]
        assert start, name
    return modules[start] + name[len(start):]


def open_clip_tensors(names, config):
    tensors = {}
    for name in names:
        if name == "text_model.embeddings.position_embedding.weight":
            tensors["positional_embedding"] = [name]
        elif ".q_proj." in name:
            layer, kind = name.split(".")[3], name.rpartition(".")[2]
            parts = [name.replace(".q_proj.", f".{part}_proj.") for part in "qkv"]
            tensors[f"transformer.resblocks.{layer}.attn.in_proj_{kind}"] = parts
        elif ".k_proj." not in name and ".v_proj." not in name:
            tensors[renamed(name, open_clip_modules(config))] = [name]
    return tensors


def original_tensors(part, config, names, generation):
    """Stored name -> the published names of the parameters whose rows it holds, in order."""
    if part == "text_encoder":
        tensors = {name: [name] for name in names} if generation == "sd1" else open_clip_tensors(names, config)
        return {TEXT[generation] + stored: parts for stored, parts in tensors.items()}
    prefix, modules = (UNET, unet_modules(config)) if part == "unet" else (VAE, vae_modules(config))
    return {prefix + renamed(name, modules): [name] for name in names}


def original_shape(stored, shape):
    """The original VAE's attention is written as 1x1 convolutions."""
    is_convolution = ".mid.attn_1." in stored and stored.endswith("weight") and ".norm." not in stored
    return [*shape, 1, 1] if is_convolution else list(shape)


def original_state(part, config, state, generation):
    """The tensors of one part as an original checkpoint stores them; `state` has the published names."""
    stored = {}
    for name, parts in original_tensors(part, config, list(state), generation).items():
        whole = torch.cat([state[part_name] for part_name in parts])
        stored[name] = whole.reshape(original_shape(name, whole.shape)).contiguous()
    return stored


def unused_tensors(config, generation):
    """What published files hold besides: the schedule, averaged weights, open_clip's last layer and projection."""
    tensors = {"betas": torch.ones(4), "model_ema.decay": torch.ones(()), "model_ema.diffusion_modelinput_blocks00weight": torch.ones(2)}
    if generation == "sd1":
        tensors[TEXT["sd1"] + "text_model.embeddings.position_ids"] = torch.arange(config["max_position_embeddings"]).unsqueeze(0)
        return tensors
    prefix, width = TEXT["sd2"], config["hidden_size"]
    last = f"{prefix}transformer.resblocks.{config['num_hidden_layers']}."
    return tensors | {
        prefix + "text_projection": torch.ones(width, width), prefix + "logit_scale": torch.ones(()),
        last + "mlp.c_fc.weight": torch.ones(config["intermediate_size"], width), last + "ln_1.bias": torch.ones(width)}


def check_against_diffusers(part, config, stored, state, model=None):
    """diffusers' converters must give back exactly `state`."""
    stored = {name: value.clone() for name, value in stored.items()}
    if part == "unet":
        back = single_file_utils.convert_ldm_unet_checkpoint(stored, config)
    elif part == "vae":
        back = single_file_utils.convert_ldm_vae_checkpoint(stored, config)
    elif any(name.startswith(TEXT["sd2"]) for name in stored):
        back = single_file_utils.convert_open_clip_checkpoint(model, stored, prefix=TEXT["sd2"])
    else:
        back = single_file_utils.convert_ldm_clip_checkpoint(stored)
    bare = {name.removeprefix("text_model."): value for name, value in back.items()}
    for name, value in state.items():
        assert torch.equal(bare[name.removeprefix("text_model.")], value), (part, name)
