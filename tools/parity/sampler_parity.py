#!/usr/bin/env python3
"""Paints the same prompts with `darkroom sample` and with diffusers' StableDiffusionPipeline and compares the pictures.

  sampler_parity.py [--darkroom build/darkroom] [--model models/tiny] [--steps 25]

Without a complete --model folder it starts from `models init --preset tiny`. Every setting is painted in float32 from the
same seeds (once also from the same --latents file), through both schedulers, both prediction types, three timestep
spacings, with and without guidance. Prints a line a setting; exits 1 when a pixel differs by more than 1 of 255.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import diffusers
import numpy as np
import torch
import transformers
from diffusers import StableDiffusionPipeline
from PIL import Image
from safetensors.torch import load_file, save_file

PROMPTS = ["a red apple on a white table", "", "grinning face"]
NEGATIVE = "blurry"
SEED = 11
# Timestep spacing, guidance, whether the start noise comes from a file.
SETTINGS = [("leading", 7.5, False), ("leading", 7.5, True), ("trailing", 3.0, False), ("linspace", 1.0, False)]
PARTS = ["unet", "vae", "text_encoder", "tokenizer", "model_index.json"]


def run(*arguments: object) -> None:
    command = [str(argument) for argument in arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"failed ({result.returncode}): {' '.join(command)}\n{result.stderr}")


def complete_model(darkroom: Path, model: Path, folder: Path) -> Path:
    """`model` when it has every part, else a fresh one with random weights."""
    if all((model / part).exists() for part in PARTS) and list((model / "unet").glob("*.safetensors")):
        return model
    fresh = folder / "model"
    run(darkroom, "models", "init", "--preset", "tiny", fresh, "--seed", 3)
    return fresh


def with_scheduler(model: Path, folder: Path, name: str, changes: dict) -> Path:
    """A folder that shares the model's parts and has another scheduler config."""
    variant = folder / name
    (variant / "scheduler").mkdir(parents=True)
    for part in PARTS:
        os.symlink((model / part).resolve(), variant / part)
    index = json.loads((model / "model_index.json").read_text())
    config = json.loads((model / "scheduler" / "scheduler_config.json").read_text()) | changes
    index["scheduler"] = ["diffusers", config["_class_name"]]
    (variant / "model_index.json").unlink()
    (variant / "model_index.json").write_text(json.dumps(index))
    (variant / "scheduler" / "scheduler_config.json").write_text(json.dumps(config))
    return variant


def paint_reference(model: Path, steps: int, guidance: float, noise: torch.Tensor | None) -> tuple[torch.Tensor, list]:
    pipeline = StableDiffusionPipeline.from_pretrained(model, safety_checker=None, feature_extractor=None, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    latents = pipeline(
        PROMPTS,
        negative_prompt=[NEGATIVE] * len(PROMPTS),
        num_inference_steps=steps,
        guidance_scale=guidance,
        generator=[torch.Generator("cpu").manual_seed(SEED) for _ in PROMPTS],
        latents=noise,
        output_type="latent",
    ).images
    with torch.no_grad():
        decoded = pipeline.vae.decode(latents / pipeline.vae.config.scaling_factor).sample
    return latents, [np.asarray(image) for image in pipeline.image_processor.postprocess(decoded, output_type="pil")]


def paint_ours(darkroom: Path, model: Path, folder: Path, steps: int, guidance: float, noise: Path | None) -> tuple:
    prompts = folder / "prompts.txt"
    prompts.write_text("".join(prompt + "\n" for prompt in PROMPTS))
    command = [darkroom, "sample", "--model", model, "--prompts-file", prompts, "--negative", NEGATIVE]
    command += ["--output", folder / "ours.png", "--steps", steps, "--guidance", guidance, "--seed", SEED]
    command += ["--save-latents", folder / "ours.safetensors"]
    run(*command, *(["--latents", noise] if noise else []))
    pictures = [np.asarray(Image.open(folder / f"ours-{i:05}.png")) for i in range(len(PROMPTS))]
    return load_file(folder / "ours.safetensors")["latents"], pictures


def is_telling(latents: torch.Tensor, pictures: list) -> bool:
    """Whether the reference painted something: finite, not flat, and another picture for another prompt."""
    return bool(latents.isfinite().all()) and all(picture.std() > 5 for picture in pictures) and not torch.equal(latents[0], latents[2])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--darkroom", type=Path, default=Path("build/darkroom"))
    parser.add_argument("--model", type=Path, default=Path("models/tiny"))
    parser.add_argument("--steps", type=int, default=25)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    for library in (diffusers, transformers):
        library.utils.logging.disable_progress_bar()
    worst = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = complete_model(flags.darkroom, flags.model, folder)
        number = 0
        for class_name in ("DDIMScheduler", "PNDMScheduler"):
            for prediction in ("epsilon", "v_prediction"):
                for spacing, guidance, given in SETTINGS:
                    changes = {"_class_name": class_name, "prediction_type": prediction, "timestep_spacing": spacing}
                    number += 1
                    variant = with_scheduler(model, folder, f"variant-{number}", changes)
                    noise = None
                    if given:
                        side = json.loads((model / "unet" / "config.json").read_text())["sample_size"]
                        noise = torch.randn((len(PROMPTS), 4, side, side), generator=torch.Generator().manual_seed(5))
                        save_file({"latents": noise}, folder / "noise.safetensors")
                    noise_file = folder / "noise.safetensors" if given else None
                    want_latents, want = paint_reference(variant, flags.steps, guidance, noise)
                    got_latents, got = paint_ours(flags.darkroom, variant, folder, flags.steps, guidance, noise_file)
                    pixels = max(int(np.abs(a.astype(int) - b.astype(int)).max()) for a, b in zip(want, got, strict=True))
                    latents = float((want_latents - got_latents).abs().max() / want_latents.abs().max())
                    if not is_telling(want_latents, want):
                        sys.exit(f"the reference pictures of {changes} say nothing; the comparison would be empty")
                    worst = max(worst, pixels)
                    source = "latents file" if given else "seeds"
                    print(f"  {class_name[:4].lower()} {prediction} {spacing} guidance {guidance} from {source}: "
                          f"pixels differ by at most {pixels}/255, latents by {latents:.1e} relative", flush=True)
    print(f"sampler parity: {'ok' if worst <= 1 else 'FAILED'}, at most {worst}/255")
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
