#!/usr/bin/env python3
"""Records tests/golden/nn/*.safetensors: outputs and gradients of small networks by diffusers and transformers; and
original_names.json: the tensors of original checkpoints of Stable Diffusion 1 and 2, as diffusers' converters read them.

Needs torch 2.11.0, diffusers 0.42.1, transformers 5.23.0. Usage: tools/goldens/make_nn_goldens.py [OUT=tests/golden/nn]
Weights are not stored: the test draws them as nn_reference.fill_parameters does. Of gradients with more than 32 elements
every sixteenth is stored. make_spread.py adds how far the reference strays from these values on other processors.
"""

import json
import os
import pathlib
import sys

import diffusers
import torch
import transformers
from safetensors.torch import save_file

import nn_reference as reference
import original_names

SEED = 1
STRIDE = 16
STRIDE_FROM = 32

UNET_LINEAR = dict(
    sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=(2, 4),
    down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=12, use_linear_projection=True, transformer_layers_per_block=(2, 1))
UNET_CONV = dict(
    sample_size=8, block_out_channels=(8, 16), layers_per_block=2, norm_num_groups=4, attention_head_dim=2,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=12, in_channels=5, flip_sin_to_cos=False, freq_shift=1, center_input_sample=True, norm_eps=1e-6)
VAE = dict(
    block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    layers_per_block=1, norm_num_groups=4, latent_channels=4, sample_size=8)
SDXL_UNET = dict(
    sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=(1, 2),
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=12, use_linear_projection=True, transformer_layers_per_block=(1, 2), addition_embed_type="text_time",
    addition_time_embed_dim=4, projection_class_embeddings_input_dim=34)
ORIGINAL = {
    "sd1": {
        "unet": dict(
            sample_size=64, block_out_channels=[32, 64], layers_per_block=2, attention_head_dim=8, cross_attention_dim=64,
            down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"], up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"]),
        "vae": dict(
            sample_size=512, block_out_channels=[32, 64], layers_per_block=1, down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=4),
        "text_encoder": dict(
            vocab_size=40, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=1, projection_dim=768,
            max_position_embeddings=9, hidden_act="quick_gelu", bos_token_id=0, eos_token_id=2, pad_token_id=1)}}
ORIGINAL["sd2"] = {
    "unet": ORIGINAL["sd1"]["unet"] | dict(
        block_out_channels=[64, 128], attention_head_dim=[1, 2], use_linear_projection=True, layers_per_block=1),
    "vae": ORIGINAL["sd1"]["vae"] | dict(sample_size=768),
    "text_encoder": ORIGINAL["sd1"]["text_encoder"] | dict(hidden_size=128, num_attention_heads=2, hidden_act="gelu", projection_dim=512)}
TEXT = dict(
    vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=11,
    bos_token_id=38, eos_token_id=39, pad_token_id=0)

CLIP_VISION = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=12, patch_size=4)
CLIP = {
    "clip_quick_gelu": dict(text_config=TEXT | dict(hidden_act="quick_gelu"), vision_config=CLIP_VISION | dict(hidden_act="quick_gelu"), projection_dim=10),
    "clip_gelu": dict(
        text_config=TEXT | dict(hidden_act="gelu"), projection_dim=6,
        vision_config=CLIP_VISION | dict(hidden_act="gelu", num_attention_heads=1, patch_size=6, layer_norm_eps=1e-6))}


def inputs_of(component, config):
    if component.startswith("text_encoder"):
        ids = torch.tensor([[38, 3, 7, 1, 39, 0, 0, 0, 0], [38, 5, 5, 20, 30, 2, 9, 39, 0]], dtype=torch.int64)
        return {"input_ids": ids}
    if component == "unet":
        channels = config.get("in_channels", 4)
        added = {
            "text_embeds": reference.draw(SEED, "text_embeds", (2, 10), 2.0),
            "time_ids": torch.tensor([[1024.0, 768, 0, 16, 512, 512], [96, 64, 1, 0, 8, 8]])}
        return (added if "addition_embed_type" in config else {}) | {
            "sample": reference.draw(SEED, "sample", (2, channels, 7, 5), 2.0),  # Odd sizes: the way up follows the skips.
            "timestep": torch.tensor([1, 981], dtype=torch.int64),
            "encoder_hidden_states": reference.draw(SEED, "encoder_hidden_states", (2, 3, config["cross_attention_dim"]), 2.0),
        }
    shape = (2, 3, 8, 12) if component == "vae_encoder" else (2, 4, 3, 4)
    return {"sample": reference.draw(SEED, "sample", shape, 2.0)}


def thin(tensor):
    """Every sixteenth element of what has more than 32."""
    whole = tensor.detach().contiguous()
    return whole.reshape(-1)[::STRIDE].clone() if whole.numel() > STRIDE_FROM else whole


def record(folder, name, component, config):
    model = reference.build(component, config)
    reference.fill_parameters(model, component, SEED)
    inputs = inputs_of(component, config)
    cotangents, results = reference.run_with_gradients(model, component, inputs, SEED)
    results = {key: thin(value) if key.startswith("grad.") else value.detach().contiguous() for key, value in results.items()}
    tensors = {**inputs, **cotangents, **results}
    made_by = f"make_nn_goldens.py, torch {torch.__version__}, diffusers {diffusers.__version__}, transformers {transformers.__version__}"
    save_file(tensors, folder / f"{name}.safetensors", {"component": component, "config": json.dumps(config), "made_by": made_by})


def record_clip(folder):
    """Both towers' embeddings; `pixel_values` are normalised already."""
    for name, config in CLIP.items():
        model = transformers.CLIPModel(transformers.CLIPConfig(**config)).eval()
        reference.fill_parameters(model, "clip", SEED)
        side = config["vision_config"]["image_size"]
        inputs = {"pixel_values": reference.draw(SEED, "pixel_values", (3, 3, side, side), 2.0), "input_ids": inputs_of("text_encoder", {})["input_ids"]}
        with torch.no_grad():
            # As the towers give them: the model's own output has unit length.
            images = model.visual_projection(model.vision_model(pixel_values=inputs["pixel_values"]).pooler_output)
            texts = model.text_projection(model.text_model(input_ids=inputs["input_ids"]).pooler_output)
        tensors = {**inputs, "image_embeds": images.contiguous(), "text_embeds": texts.contiguous()}
        made_by = f"make_nn_goldens.py, torch {torch.__version__}, transformers {transformers.__version__}"
        names = json.dumps(sorted(model.state_dict()))
        save_file(tensors, folder / f"{name}.safetensors", {"component": "clip", "config": json.dumps(config), "names": names, "made_by": made_by})


def record_original_names(folder):
    table = {}
    for generation, parts in ORIGINAL.items():
        for part, config in parts.items():
            model = reference.build("vae_encoder" if part == "vae" else part, config)
            state = {reference.published_name(part, name): value for name, value in model.state_dict().items()}
            stored = original_names.original_state(part, config, state, generation)
            original_names.check_against_diffusers(part, config, stored, state, model)
            origins = original_names.original_tensors(part, config, list(state), generation)
            convolutions = [name for name, value in stored.items() if value.dim() > state[origins[name][0]].dim()]
            prefix = os.path.commonprefix(list(stored))
            tensors = {name.removeprefix(prefix): parts for name, parts in origins.items()}
            table.setdefault(generation, {})[part] = {
                "config": config, "prefix": prefix, "tensors": tensors, "as_1x1_convolution": convolutions}
        unused = original_names.unused_tensors(parts["text_encoder"], generation)
        table[generation]["unused"] = {name: list(value.shape) for name, value in unused.items()}
    table["made_by"] = f"make_nn_goldens.py, checked by the converters of diffusers {diffusers.__version__}"
    (folder / "original_names.json").write_text(json.dumps(table, separators=(",", ":")) + "\n")


def record_networks(folder):
    record(folder, "unet_linear", "unet", UNET_LINEAR)
    record(folder, "unet_conv", "unet", UNET_CONV)
    record(folder, "vae_encoder", "vae_encoder", VAE)
    record(folder, "vae_decoder", "vae_decoder", dict(VAE, use_post_quant_conv=False, mid_block_add_attention=False))
    record(folder, "unet_sdxl", "unet", SDXL_UNET)
    record(folder, "text_projection", "text_encoder_2", dict(TEXT, hidden_act="gelu", projection_dim=10))
    record(folder, "text_gelu", "text_encoder", dict(TEXT, hidden_act="gelu"))
    record(folder, "text_quick_gelu", "text_encoder", dict(TEXT, hidden_act="quick_gelu"))


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent / "tests/golden/nn")
    folder.mkdir(parents=True, exist_ok=True)
    record_networks(folder)
    record_clip(folder)
    record_original_names(folder)
    for path in sorted(folder.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
