#!/usr/bin/env python3
"""Paints the same prompts with `darkroom sample` and with diffusers' pipelines and compares the pictures.

  sampler_parity.py [--darkroom build/darkroom] [--model models/tiny] [--steps 25]

Without a complete --model folder it starts from `models init --preset tiny`. Every setting is painted in float32 from the
same seeds (once also from the same --latents file), through every sampler and both prediction types: ddim and pndm in three timestep
spacings, with and without guidance, the others in one; with guidance rescale, eta and zero terminal SNR; from an initial picture
(StableDiffusionImg2ImgPipeline). Prints a line a setting; exits 1 when a pixel differs by more than 1 of 255.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import diffusers
import numpy as np
import torch
import transformers
from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionPipeline
from PIL import Image
from safetensors.torch import load_file, save_file

PROMPTS = ["a red apple on a white table", "", "grinning face"]
NEGATIVE = "blurry"
SEED = 11
PREDICTIONS = ("epsilon", "v_prediction")


@dataclass(frozen=True)
class Setting:
    """One picture set: a scheduler_config.json's changes and flags."""

    class_name: str
    prediction: str = "epsilon"
    spacing: str | None = None  # None: the class's own.
    guidance: float = 7.5
    rescale: float = 0.0
    eta: float = 0.0
    from_file: bool = False  # Start noise from a file instead of the seeds.
    strength: float | None = None  # Start from a picture.
    steps: int | None = None  # None: --steps.
    extra: tuple = ()  # Further keys of the config.

    def config(self) -> dict:
        spacing = {"timestep_spacing": self.spacing} if self.spacing else {}
        return {"_class_name": self.class_name, "prediction_type": self.prediction, **spacing, **dict(self.extra)}

    def __str__(self) -> str:
        words = [self.class_name.removesuffix("Scheduler"), self.prediction, self.spacing or "own spacing", f"guidance {self.guidance}"]
        words += [f"rescale {self.rescale}"] if self.rescale else []
        words += [f"eta {self.eta}"] if self.eta else []
        words += [f"{key} {value}" for key, value in self.extra]
        words += ["from a latents file"] if self.from_file else []
        words += [f"from a picture, strength {self.strength}"] if self.strength else []
        return ", ".join(words)


def all_settings() -> list[Setting]:
    settings = []
    zero_snr = (("rescale_betas_zero_snr", True),)
    for prediction in PREDICTIONS:
        for name in ("DDIMScheduler", "PNDMScheduler"):
            settings += [Setting(name, prediction, "leading"), Setting(name, prediction, "leading", from_file=True),
                         Setting(name, prediction, "trailing", 3.0), Setting(name, prediction, "linspace", 1.0)]
        for name in ("EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "DPMSolverMultistepScheduler", "UniPCMultistepScheduler"):
            settings.append(Setting(name, prediction))
        settings.append(Setting("DPMSolverMultistepScheduler", prediction, extra=(("use_karras_sigmas", True),)))
        settings.append(Setting("LCMScheduler", prediction, guidance=1.5, steps=4))
        settings.append(Setting("DDIMScheduler", prediction, eta=1.0, rescale=0.7))
    settings.append(Setting("DDIMScheduler", "v_prediction", "trailing", rescale=0.7, extra=zero_snr))
    settings.append(Setting("EulerDiscreteScheduler", "v_prediction", "trailing", rescale=0.7, extra=zero_snr))
    for name in ("DDIMScheduler", "PNDMScheduler", "EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler",
                 "DPMSolverMultistepScheduler", "UniPCMultistepScheduler"):
        settings.append(Setting(name, strength=0.6))
    settings.append(Setting("DDIMScheduler", strength=1.0))
    settings.append(Setting("LCMScheduler", strength=0.5, guidance=1.5, steps=8))
    return settings


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


def initial_picture() -> Image.Image:
    """Of a size that no model has, so that it is resized."""
    pixels = np.random.default_rng(3).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((83, 70), Image.Resampling.BICUBIC)


def paint_reference(model: Path, setting: Setting, steps: int, noise: torch.Tensor | None) -> tuple[torch.Tensor, list]:
    pipeline_class = StableDiffusionImg2ImgPipeline if setting.strength else StableDiffusionPipeline
    pipeline = pipeline_class.from_pretrained(model, safety_checker=None, feature_extractor=None, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    if setting.strength:
        own = {"image": initial_picture(), "strength": setting.strength}
    else:
        own = {"latents": noise, "guidance_rescale": setting.rescale}
    latents = pipeline(
        PROMPTS,
        negative_prompt=[NEGATIVE] * len(PROMPTS),
        num_inference_steps=steps,
        guidance_scale=setting.guidance,
        eta=setting.eta,
        generator=[torch.Generator("cpu").manual_seed(SEED) for _ in PROMPTS],
        output_type="latent",
        **own,
    ).images
    with torch.no_grad():
        decoded = pipeline.vae.decode(latents / pipeline.vae.config.scaling_factor).sample
    return latents, [np.asarray(image) for image in pipeline.image_processor.postprocess(decoded, output_type="pil")]


def paint_ours(darkroom: Path, model: Path, folder: Path, setting: Setting, steps: int, noise: Path | None) -> tuple:
    prompts = folder / "prompts.txt"
    prompts.write_text("".join(prompt + "\n" for prompt in PROMPTS))
    command = [darkroom, "sample", "--model", model, "--prompts-file", prompts, "--negative", NEGATIVE]
    command += ["--output", folder / "ours.png", "--steps", steps, "--guidance", setting.guidance, "--seed", SEED]
    command += ["--guidance-rescale", setting.rescale, "--eta", setting.eta, "--save-latents", folder / "ours.safetensors"]
    if setting.strength:
        initial_picture().save(folder / "initial.png")
        command += ["--init-image", folder / "initial.png", "--strength", setting.strength]
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
        side = json.loads((model / "unet" / "config.json").read_text())["sample_size"]
        noise = torch.randn((len(PROMPTS), 4, side, side), generator=torch.Generator().manual_seed(5))
        save_file({"latents": noise}, folder / "noise.safetensors")
        for number, setting in enumerate(all_settings()):
            variant = with_scheduler(model, folder, f"variant-{number}", setting.config())
            steps = setting.steps or flags.steps
            want_latents, want = paint_reference(variant, setting, steps, noise if setting.from_file else None)
            noise_file = folder / "noise.safetensors" if setting.from_file else None
            got_latents, got = paint_ours(flags.darkroom, variant, folder, setting, steps, noise_file)
            pixels = max(int(np.abs(a.astype(int) - b.astype(int)).max()) for a, b in zip(want, got, strict=True))
            latents = float((want_latents - got_latents).abs().max() / want_latents.abs().max())
            if not is_telling(want_latents, want):
                sys.exit(f"the reference pictures of {setting} say nothing; the comparison would be empty")
            worst = max(worst, pixels)
            print(f"  {setting}: pixels differ by at most {pixels}/255, latents by {latents:.1e} relative", flush=True)
    print(f"sampler parity: {'ok' if worst <= 1 else 'FAILED'}, at most {worst}/255")
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
