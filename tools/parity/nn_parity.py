#!/usr/bin/env python3
"""Compares darkroom's networks with diffusers and transformers, live, on random configs.

Usage: tools/parity/nn_parity.py [--darkroom build/darkroom] [--rounds 4] [--seed 0]
Needs torch 2.11.0, diffusers 0.42.1, transformers 5.23.0 (requirements/parity.txt). Exits 1 at the first difference.

For every component and round: draws a config, fills diffusers' network, saves it with save_pretrained, and runs
`darkroom models forward --gradients` on that folder. Outputs must agree within 1e-5 of the largest value, gradients within
1e-4 * max(max|ref|, 1e-3 * the median over parameters of max|ref|). Then `models init` must open in diffusers and transformers
with every tensor bit-equal, and come back through save_pretrained with the same fingerprints.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import nn_reference as reference  # noqa: E402

FORWARD_BOUND = 1e-5
GRADIENT_BOUND = 1e-4
FOLDERS = {"unet": "unet", "vae_encoder": "vae", "vae_decoder": "vae", "text_encoder": "text_encoder"}


def draw_unet(rng):
    levels = rng.choice([1, 2, 3])
    heads = [rng.choice([1, 2, 4]) for _ in range(levels)]
    attends = [rng.random() < 0.7 for _ in range(levels)]
    return dict(
        sample_size=8, in_channels=rng.choice([3, 4, 9]), out_channels=4, norm_num_groups=4, norm_eps=rng.choice([1e-5, 1e-6]),
        block_out_channels=[rng.choice([16, 32, 48]) for _ in range(levels)], layers_per_block=rng.choice([1, 2]),
        down_block_types=["CrossAttnDownBlock2D" if on else "DownBlock2D" for on in attends],
        up_block_types=["CrossAttnUpBlock2D" if on else "UpBlock2D" for on in reversed(attends)],
        attention_head_dim=rng.choice([heads, heads[0]]), cross_attention_dim=rng.choice([8, 20]),
        use_linear_projection=rng.random() < 0.5, upcast_attention=rng.random() < 0.5,
        transformer_layers_per_block=rng.choice([1, [rng.choice([1, 2]) for _ in range(levels)]]),
        center_input_sample=rng.random() < 0.3, flip_sin_to_cos=rng.random() < 0.7, freq_shift=rng.choice([0, 1]),
        downsample_padding=rng.choice([0, 1]))


def draw_vae(rng):
    levels = rng.choice([1, 2, 3])
    return dict(
        block_out_channels=[rng.choice([8, 16, 24]) for _ in range(levels)], layers_per_block=rng.choice([1, 2]), norm_num_groups=4,
        down_block_types=["DownEncoderBlock2D"] * levels, up_block_types=["UpDecoderBlock2D"] * levels,
        latent_channels=rng.choice([3, 4]), sample_size=16, use_quant_conv=rng.random() < 0.7, use_post_quant_conv=rng.random() < 0.7,
        mid_block_add_attention=rng.random() < 0.8)


def draw_text(rng):
    heads = rng.choice([1, 2, 4])
    return dict(
        vocab_size=60, hidden_size=heads * rng.choice([8, 16]), intermediate_size=rng.choice([24, 64]),
        num_hidden_layers=rng.choice([1, 2, 3]), num_attention_heads=heads, max_position_embeddings=77,
        hidden_act=rng.choice(["gelu", "quick_gelu"]), bos_token_id=58, eos_token_id=59, pad_token_id=0)


DRAW = {"unet": draw_unet, "vae_encoder": draw_vae, "vae_decoder": draw_vae, "text_encoder": draw_text}


def draw_inputs(component, config, rng, seed):
    batch = rng.choice([1, 2, 3])
    if component == "text_encoder":
        length = rng.choice([2, 7, 77])  # At 1, queries and keys have no gradient but noise.
        return {"input_ids": torch.tensor([[rng.randrange(60) for _ in range(length)] for _ in range(batch)])}
    if component == "unet":
        size = (rng.choice([8, 9, 11]), rng.choice([8, 10, 13]))
        return {
            "sample": reference.draw(seed, "sample", (batch, config["in_channels"], *size), 2.0),
            "timestep": torch.tensor([rng.randrange(1000) for _ in range(batch)]),
            # From two tokens on: with one, queries and keys have no gradient but noise.
            "encoder_hidden_states": reference.draw(seed, "states", (batch, rng.choice([2, 5, 77]), config["cross_attention_dim"]), 2.0),
        }
    factor = 2 ** (len(config["block_out_channels"]) - 1)
    shape = (3, 4 * factor, 6 * factor) if component == "vae_encoder" else (config["latent_channels"], 4, 6)
    return {"sample": reference.draw(seed, "sample", (batch, *shape), 1.0)}


def compare(results, want):
    """Returns the largest forward error over its bound's unit and the largest gradient error over its bound."""
    gradients = {name: value for name, value in want.items() if name.startswith("grad")}
    median = statistics.median(value.abs().max().item() for value in gradients.values())
    forward, gradient = 0.0, 0.0
    for name, value in want.items():
        got = results[name]
        assert got.shape == value.shape, (name, got.shape, value.shape)
        largest, error = value.abs().max().item(), (got - value).abs().max().item()
        if name in gradients:
            gradient = max(gradient, error / max(largest, 1e-3 * median))
        else:
            forward = max(forward, error / largest)
    return forward, gradient


def check_component(program, component, round_number, seed):
    rng = random.Random(f"{component} {round_number} {seed}")
    config = DRAW[component](rng)
    model = reference.build(component, config)
    reference.fill_parameters(model, component, round_number)
    inputs = draw_inputs(component, config, rng, round_number)
    cotangents, want = reference.run_with_gradients(model, component, inputs, round_number)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder / FOLDERS[component])
        save_file({**inputs, **cotangents}, folder / "in.safetensors")
        subprocess.run([program, "models", "forward", folder, "--component", component, "--inputs", folder / "in.safetensors",
                        "--output", folder / "out.safetensors", "--gradients"], check=True)
        results = load_file(folder / "out.safetensors")
    forward, gradient = compare(results, want)
    verdict = "ok" if forward <= FORWARD_BOUND and gradient <= GRADIENT_BOUND else "DIFFERS"
    print(f"{component:14}round {round_number}  forward {forward:.1e}  gradients {gradient:.1e}  {verdict}", flush=True)
    if verdict != "ok":
        sys.exit(f"{component} differs from the reference with config {json.dumps(config)}")


def summary_of(program, folder):
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "summary.json"
        subprocess.run([program, "models", "check", folder, "--json-summary", path], check=True, stdout=subprocess.DEVNULL)
        return json.loads(path.read_text())


def check_round_trip(program, dtype):
    """darkroom -> diffusers and transformers -> darkroom."""
    parts = {"unet": UNet2DConditionModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModel}
    with tempfile.TemporaryDirectory() as name:
        ours, theirs = pathlib.Path(name) / "ours", pathlib.Path(name) / "theirs"
        subprocess.run([program, "models", "init", "--preset", "tiny", ours, "--seed", "3", "--dtype", dtype], check=True)
        for part, kind in parts.items():
            model, info = kind.from_pretrained(ours / part, output_loading_info=True)
            assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), (part, info)
            stored = load_file(next((ours / part).glob("*.safetensors")))
            for key, value in model.state_dict().items():
                key = reference.published_name(part, key)
                assert torch.equal(value.float(), stored.pop(key).float()), (part, key)
            assert not stored, (part, list(stored))
            model.float().save_pretrained(theirs / part)
        before, after = summary_of(program, ours), summary_of(program, theirs)
        for part in parts:
            assert before[part]["fingerprint"] == after[part]["fingerprint"], part
    print(f"folder round trip ({dtype}): every tensor bit-equal, fingerprints equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darkroom", default="build/darkroom")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    for component in DRAW:
        for round_number in range(flags.rounds):
            check_component(flags.darkroom, component, round_number, flags.seed)
    for dtype in ("float32", "float16"):
        check_round_trip(flags.darkroom, dtype)


if __name__ == "__main__":
    main()
