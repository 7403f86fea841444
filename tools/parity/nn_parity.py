#!/usr/bin/env python3
"""Compares darkroom's networks with diffusers and transformers, live, on random configs.

Usage: tools/parity/nn_parity.py [--darkroom build/darkroom] [--rounds 6] [--seed 0] [--threads 1]
       tools/parity/nn_parity.py --full [--work FOLDER]
Needs torch 2.11.0, diffusers 0.42.1, transformers 5.23.0 (requirements/parity.txt). Exits 1 at the first difference.

For every network and round: draws a config, fills the reference's network, saves it with save_pretrained, and runs
`darkroom models forward --gradients` on that folder. Outputs must agree within 1e-5 of the largest value, gradients within
1e-4 * max(max|ref|, 1e-3 * the median over parameters of max|ref|). Original checkpoints (one file) of both versions must give the same
outputs. `models init` must open in diffusers and transformers with every tensor bit-equal, and come back through save_pretrained,
as one file, in shards and as fp16 variant, with the same fingerprints.

--full does the same once with the U-Net of SD2-base at full size (random weights, 64x64 latents): outputs, every gradient and the round
trip. It needs 13 GB of disk in FOLDER and less than 20 GiB of memory, and takes minutes; the two programs run one after the other.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "goldens"))
import nn_reference as reference  # noqa: E402
import original_names  # noqa: E402

FORWARD_BOUND = 1e-5
GRADIENT_BOUND = 1e-4
FOLDERS = {
    "unet": "unet", "vae_encoder": "vae", "vae_decoder": "vae", "text_encoder": "text_encoder", "text_encoder_2": "text_encoder_2"}


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


def draw_sdxl_unet(rng):
    time_channels = rng.choice([4, 6])
    return draw_unet(rng) | dict(
        addition_embed_type="text_time", addition_time_embed_dim=time_channels, projection_class_embeddings_input_dim=10 + 6 * time_channels)


def draw_sdxl_text(rng):
    return draw_text(rng) | dict(projection_dim=rng.choice([8, 24]), eos_token_id=rng.choice([2, 59]))


# Network -> (component of `darkroom models forward`, its config).
NETWORKS = {
    "unet": ("unet", draw_unet), "vae encoder": ("vae_encoder", draw_vae), "vae decoder": ("vae_decoder", draw_vae),
    "text": ("text_encoder", draw_text), "sdxl unet": ("unet", draw_sdxl_unet), "sdxl text": ("text_encoder_2", draw_sdxl_text)}


def draw_inputs(component, config, rng, seed):
    batch = rng.choice([1, 2, 3])
    if component.startswith("text_encoder"):
        length = rng.choice([2, 7, 77])  # At 1, queries and keys have no gradient but noise.
        ids = torch.tensor([[rng.randrange(59) for _ in range(length)] for _ in range(batch)])
        ids[:, rng.randrange(length)] = 59
        return {"input_ids": ids}
    if component == "unet":
        size = (rng.choice([8, 9, 11]), rng.choice([8, 10, 13]))
        added = {
            "text_embeds": reference.draw(seed, "text_embeds", (batch, 10), 2.0),
            "time_ids": torch.tensor([[rng.randrange(1024) for _ in range(6)] for _ in range(batch)], dtype=torch.float32)}
        return (added if "addition_embed_type" in config else {}) | {
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
    # The bound's median is over parameters, so without the inputs' gradients.
    maxima = [value.abs().max().item() for name, value in gradients.items() if name.startswith("grad.")]
    median = statistics.median(maxima) if maxima else 0
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


def run_darkroom(program, folder, component, inputs, options=(), threads=1):
    """Returns (path of the outputs, peak resident bytes, seconds)."""
    save_file(inputs, folder / "in.safetensors")
    start = time.monotonic()
    child = subprocess.Popen(
        [program, "models", "forward", folder / "model", "--component", component, "--inputs", folder / "in.safetensors",
         "--output", folder / "out.safetensors", "--threads", str(threads), *options])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"darkroom models forward failed on {component}")
    return folder / "out.safetensors", usage.ru_maxrss * 1024, time.monotonic() - start


def judge(what, forward, gradient, config):
    is_equal = forward <= FORWARD_BOUND and gradient <= GRADIENT_BOUND
    print(f"{what:24}forward {forward:.1e}  gradients {gradient:.1e}  {'ok' if is_equal else 'DIFFERS'}", flush=True)
    if not is_equal:
        sys.exit(f"{what} differs from the reference with config {json.dumps(config)}")


def check_network(program, network, round_number, seed):
    component, draw_config = NETWORKS[network]
    rng = random.Random(f"{network} {round_number} {seed}")
    config = draw_config(rng)
    model = reference.build(component, config)
    reference.fill_parameters(model, component, round_number)
    inputs = draw_inputs(component, config, rng, round_number)
    cotangents, want = reference.run_with_gradients(model, component, inputs, round_number)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder / "model" / FOLDERS[component])
        out, _, _ = run_darkroom(program, folder, component, {**inputs, **cotangents}, ["--gradients"])
        results = load_file(out)
    judge(f"{network}, round {round_number}", *compare(results, want), config)


ORIGINAL_UNET = dict(
    sample_size=64, in_channels=9, layers_per_block=2, block_out_channels=[64, 128, 128],
    down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"], cross_attention_dim=64)
ORIGINAL_TEXT = dict(
    vocab_size=60, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=1, max_position_embeddings=77,
    bos_token_id=0, eos_token_id=2, pad_token_id=1)
ORIGINAL_VAE = dict(
    sample_size=512, block_out_channels=[32, 64, 64], layers_per_block=2, down_block_types=["DownEncoderBlock2D"] * 3,
    up_block_types=["UpDecoderBlock2D"] * 3, latent_channels=4)
ORIGINAL = {
    "sd1": {"unet": ORIGINAL_UNET | dict(attention_head_dim=8), "vae": ORIGINAL_VAE,
            "text_encoder": ORIGINAL_TEXT | dict(hidden_act="quick_gelu")},
    "sd2": {"unet": ORIGINAL_UNET | dict(attention_head_dim=[1, 2, 2], use_linear_projection=True), "vae": ORIGINAL_VAE,
            "text_encoder": ORIGINAL_TEXT | dict(hidden_act="gelu")}}


def check_original_checkpoint(program, generation):
    """One file under the original names: diffusers' converters give the model back, and darkroom computes the same from it."""
    rng = random.Random(generation)
    stored, models = original_names.unused_tensors(ORIGINAL[generation]["text_encoder"], generation), {}
    for part, config in ORIGINAL[generation].items():
        models[part] = reference.build(part, config)
        reference.fill_parameters(models[part], part, 1, scale=0.1)
        state = {reference.published_name(part, name): value for name, value in models[part].state_dict().items()}
        original = original_names.original_state(part, config, state, generation)
        original_names.check_against_diffusers(part, config, original, state, models[part])
        stored |= original
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        save_file(stored, folder / "model")
        for component in ("unet", "vae_encoder", "vae_decoder", "text_encoder"):
            part = FOLDERS[component]
            config = ORIGINAL[generation][part]
            inputs = draw_inputs(component, config, rng, 1)
            with torch.no_grad():
                want = reference.run(models[part], component, inputs)
            results = load_file(run_darkroom(program, folder, component, inputs)[0])
            judge(f"{generation} file, {component}", *compare(results, want), config)


def summary_of(program, folder):
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "summary.json"
        subprocess.run([program, "models", "check", folder, "--json-summary", path], check=True, stdout=subprocess.DEVNULL)
        return json.loads(path.read_text())


PARTS = {"unet": UNet2DConditionModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModel}
WAYS_TO_SAVE = {"one file": {}, "shards": dict(max_shard_size="1MB"), "fp16 variant": dict(variant="fp16")}


def open_bit_equal(part, folder):
    """The reference's model of a folder that darkroom wrote; every tensor must be as stored."""
    model, info = PARTS[part].from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), (part, info)
    with safe_open(next(folder.glob("*.safetensors")), "pt") as stored:
        left = set(stored.keys())
        for key, value in model.state_dict().items():
            key = reference.published_name(part, key)
            assert torch.equal(value.float(), stored.get_tensor(key).float()), (part, key)
            left.remove(key)
    assert not left, (part, left)
    return model


def check_round_trip(program, preset, dtype):
    """darkroom -> diffusers and transformers -> darkroom."""
    with tempfile.TemporaryDirectory() as name:
        ours = pathlib.Path(name) / "ours"
        subprocess.run([program, "models", "init", "--preset", preset, ours, "--seed", "3", "--dtype", dtype], check=True)
        before = summary_of(program, ours)
        for way, options in WAYS_TO_SAVE.items():
            if way == "fp16 variant" and dtype == "float32":
                continue  # Rounds, so there is nothing to come back to.
            theirs = pathlib.Path(name) / way
            for part in PARTS:
                model = open_bit_equal(part, ours / part)
                (model.half() if way == "fp16 variant" else model.float()).save_pretrained(theirs / part, **options)
            after = summary_of(program, theirs)
            for part in PARTS:
                assert before[part]["fingerprint"] == after[part]["fingerprint"], (way, part)
            print(f"folder round trip ({preset}, {dtype}, {way}): every tensor bit-equal, fingerprints equal", flush=True)


def print_cost(what, peak_bytes, seconds):
    print(f"{what}: {seconds:.0f} s, peak {peak_bytes / 2**30:.2f} GiB resident", flush=True)


def full_inputs():
    return {
        "sample": reference.draw(1, "sample", (1, 4, 64, 64), 2.0), "timestep": torch.tensor([500]),
        "encoder_hidden_states": reference.draw(1, "states", (1, 77, 1024), 2.0)}


def check_full_size(program, folder, threads):
    """SD2-base: our run first, its results in a file, then the reference in a process of its own."""
    subprocess.run([program, "models", "init", "--preset", "sd2-base", folder / "model", "--seed", "1"], check=True)
    weights = folder / "model" / "unet" / "diffusion_pytorch_model.safetensors"
    inputs = full_inputs()
    cotangent = {"cotangent.output": reference.draw(1, "cotangent.output", (1, 4, 64, 64), 1.0)}
    _, peak, seconds = run_darkroom(program, folder, "unet", inputs, threads=threads)
    print_cost(f"darkroom forward ({weights.stat().st_size / 2**30:.2f} GiB of weights)", peak, seconds)
    _, peak, seconds = run_darkroom(program, folder, "unet", inputs | cotangent, ["--gradients"], threads)
    print_cost("darkroom forward and backward", peak, seconds)
    start = time.monotonic()
    child = subprocess.Popen([sys.executable, __file__, "--full-reference", str(folder), "--threads", str(threads)])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    print_cost("reference and comparison", usage.ru_maxrss * 1024, time.monotonic() - start)
    if child.returncode != 0:
        sys.exit("the full-size U-Net differs")
    os.remove(folder / "out.safetensors")
    check_full_round_trip(program, folder)


def compare_full_size(folder):
    model = open_bit_equal("unet", folder / "model" / "unet")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 865_910_724, count
    cotangents, want = reference.run_with_gradients(model.eval(), "unet", full_inputs(), 1)
    with safe_open(folder / "in.safetensors", "pt") as given:
        assert torch.equal(given.get_tensor("cotangent.output"), cotangents["cotangent.output"])
    with safe_open(folder / "out.safetensors", "pt") as ours:
        judge("SD2-base at full size", *compare(LazyTensors(ours), want), dict(model.config))


class LazyTensors:
    """A dict of a file's tensors that are read when they are asked for."""

    def __init__(self, file):
        self.file = file

    def __getitem__(self, name):
        return self.file.get_tensor(name)


def check_full_round_trip(program, folder):
    before = summary_of(program, folder / "model")
    UNet2DConditionModel.from_pretrained(folder / "model" / "unet").save_pretrained(folder / "theirs" / "unet")
    assert summary_of(program, folder / "theirs")["unet"]["fingerprint"] == before["unet"]["fingerprint"]
    print("folder round trip (sd2-base U-Net at full size): fingerprints equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darkroom", default="build/darkroom")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="SD2-base's U-Net at full size instead of the random configs")
    parser.add_argument("--work", default=tempfile.gettempdir(), help="where --full puts its files")
    parser.add_argument("--full-reference", type=pathlib.Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    if flags.full_reference:
        compare_full_size(flags.full_reference)
        return
    if flags.full:
        with tempfile.TemporaryDirectory(dir=flags.work) as name:
            check_full_size(flags.darkroom, pathlib.Path(name), flags.threads)
        return
    for network in NETWORKS:
        for round_number in range(flags.rounds):
            check_network(flags.darkroom, network, round_number, flags.seed)
    for generation in ORIGINAL:
        check_original_checkpoint(flags.darkroom, generation)
    for dtype in ("float32", "float16"):
        check_round_trip(flags.darkroom, "tiny", dtype)


if __name__ == "__main__":
    main()
