#!/usr/bin/env python3
"""Replays traced training steps (`darkroom train --trace`) with diffusers' UNet2DConditionModel in PyTorch.

  training_step_parity.py [--darkroom build/darkroom] [--model models/tiny] [--trace PATH.safetensors]

Without --trace it makes two, for epsilon and v: random pictures -> `process` -> five `train` steps. For each step it puts the weights before
the step into the PyTorch network and compares the loss (1e-6 relative), the gradient norm (1e-5 relative), and, through
`models forward --gradients`, every parameter's gradient: within 1e-4 * max(max|ref|, 1e-3 * the median over parameters of
max|ref|). Prints a line a step; exits 1 on the first kind of difference.
"""
import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from PIL import Image
from safetensors.torch import load_file, save_file

NUM_PICTURES = 48
SETTINGS = ["batch.global=16", "batch.micro=16", "schedule.max_steps=5", "schedule.warmup_steps=2", "samples.every_steps=0",
            "checkpoint.every_steps=0", "runtime.threads=1"]


def run(*arguments: object) -> None:
    command = [str(argument) for argument in arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"failed ({result.returncode}): {' '.join(command)}\n{result.stderr}")


def write_pictures(folder: Path) -> None:
    """An image dataset of smooth random pictures."""
    random = np.random.default_rng(1)
    rows = []
    for i in range(NUM_PICTURES):
        coarse = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((96, 80), Image.Resampling.BICUBIC).save(file, "PNG")
        rows.append({"key": f"{i:012d}", "url": "", "caption": f"picture number {i}", "image": file.getvalue(), "width": 96, "height": 80, "mime": "image/png"})
    folder.mkdir()
    fields = [("key", pa.string()), ("url", pa.string()), ("caption", pa.string()), ("image", pa.binary()),
              ("width", pa.int32()), ("height", pa.int32()), ("mime", pa.string())]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields)), folder / "part-000000.parquet")


def with_prediction(model: Path, prediction: str, folder: Path) -> Path:
    """A folder that shares the model's parts and whose scheduler names another prediction type."""
    folder.mkdir()
    for part in model.iterdir():
        if part.name != "scheduler":
            os.symlink(part.resolve(), folder / part.name)
    config = json.loads((model / "scheduler" / "scheduler_config.json").read_text()) | {"prediction_type": prediction}
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "scheduler_config.json").write_text(json.dumps(config))
    return folder


def make_trace(darkroom: Path, model: Path, prediction: str, folder: Path) -> Path:
    write_pictures(folder / "images")
    run(darkroom, "process", folder / "images", folder / "latents", "--model", model, "--resolution", 64, "--batch-size", 8)
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    run(darkroom, "train", "recipes/tiny.toml", "--data", folder / "latents", "--model", model, "--output", folder / "run",
        "--deterministic", "--trace", folder / "trace.safetensors", *settings, "--set", f"objective.prediction={prediction}")
    return folder / "trace.safetensors"


def weights_of(trace: dict, prefix: str) -> dict:
    return {name[len(prefix):]: tensor for name, tensor in trace.items() if name.startswith(prefix)}


def our_gradients(darkroom: Path, network: UNet2DConditionModel, inputs: dict, folder: Path) -> dict:
    network.save_pretrained(folder / "step" / "unet")
    save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, folder / "inputs.safetensors")
    output = folder / "gradients.safetensors"
    output.unlink(missing_ok=True)
    run(darkroom, "models", "forward", folder / "step", "--component", "unet", "--inputs", folder / "inputs.safetensors", "--output", output,
        "--gradients")
    return weights_of(load_file(output), "grad.")


def worst_gradient(network: UNet2DConditionModel, ours: dict) -> tuple[float, str]:
    """The largest difference as a multiple of its bound, and whose it is."""
    reference = {name: parameter.grad for name, parameter in network.named_parameters()}
    median = statistics.median(float(gradient.abs().max()) for gradient in reference.values())
    ratios = []
    for name, gradient in reference.items():
        bound = 1e-4 * max(float(gradient.abs().max()), 1e-3 * median)
        ratios.append((float((ours[name] - gradient).abs().max()) / bound, name))
    return max(ratios)


def replay_step(trace: dict, step: int, network: UNet2DConditionModel, scheduler: DDPMScheduler) -> tuple:
    """Loss and gradients of one traced step in PyTorch; returns what `models forward` needs to do the same."""
    get = lambda name: trace[f"step.{step}.{name}"]  # noqa: E731
    network.load_state_dict(weights_of(trace, "initial.weights." if step == 0 else f"step.{step - 1}.weights."))
    network.zero_grad()
    timesteps = get("timestep")
    noisy = scheduler.add_noise(get("latents"), get("noise"), timesteps)
    velocity = scheduler.config.prediction_type == "v_prediction"
    target = scheduler.get_velocity(get("latents"), get("noise"), timesteps) if velocity else get("noise")
    output = network(noisy, timesteps, get("caption_states")).sample
    output.retain_grad()
    loss = torch.nn.functional.mse_loss(output, target)
    loss.backward()
    inputs = {"sample": noisy, "timestep": timesteps, "encoder_hidden_states": get("caption_states"), "cotangent.output": output.grad}
    return loss.item(), inputs


def compare_steps(trace: dict, model: Path, darkroom: Path, folder: Path) -> bool:
    network = UNet2DConditionModel.from_config(json.loads((model / "unet" / "config.json").read_text()))
    scheduler = DDPMScheduler.from_config(json.loads((model / "scheduler" / "scheduler_config.json").read_text()))
    is_good = True
    step = 0
    while f"step.{step}.loss" in trace:
        loss, inputs = replay_step(trace, step, network, scheduler)
        norm = float(torch.sqrt(sum(p.grad.double().square().sum() for p in network.parameters())))
        loss_error = abs(float(trace[f"step.{step}.loss"]) - loss) / loss
        norm_error = abs(float(trace[f"step.{step}.grad_norm"]) - norm) / norm
        ratio, name = worst_gradient(network, our_gradients(darkroom, network, inputs, folder))
        print(f"  step {step}: loss {loss:.6f}, differs by {loss_error:.1e}; gradient norm {norm:.4f}, differs by {norm_error:.1e}; "
              f"worst gradient at {ratio:.3f} of its bound ({name})", flush=True)
        is_good = is_good and loss_error <= 1e-6 and norm_error <= 1e-5 and ratio <= 1
        step += 1
    print(f"training step parity: {'ok' if is_good and step > 0 else 'FAILED'}, {step} steps")
    return is_good and step > 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--darkroom", type=Path, default=Path("build/darkroom"))
    parser.add_argument("--model", type=Path, default=Path("models/tiny"))
    parser.add_argument("--trace", type=Path)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = flags.model
        if not list((model / "unet").glob("*.safetensors")):
            model = folder / "model"
            run(flags.darkroom, "models", "init", "--preset", "tiny", model, "--seed", 3)
        if flags.trace:
            return 0 if compare_steps(load_file(flags.trace), model, flags.darkroom, folder) else 1
        is_good = True
        for prediction in ("epsilon", "v_prediction"):
            work = folder / prediction
            work.mkdir()
            variant = with_prediction(model, prediction, work / "model")
            trace = load_file(make_trace(flags.darkroom, variant, prediction, work))
            print(f"  {prediction}:")
            is_good = compare_steps(trace, variant, flags.darkroom, work) and is_good
        return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
