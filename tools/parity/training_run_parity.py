#!/usr/bin/env python3
"""Trains a few steps with `darkroom train --trace`, then the same steps with diffusers' U-Net, torch's AdamW and clipping, and compares
losses and weights.

  training_run_parity.py [--darkroom build/darkroom] [--full]

Learning rate 1e-4 without warm-up, float32, one thread. A random small U-Net, five steps, for epsilon and v with and without min-SNR
weights: each loss within 1e-6 relative, and ||w - w_ref|| <= 1e-3 * ||w_ref - w_0|| after the last step. The EMA, recomputed from our own weights
after each step, must agree to 1e-6 of its largest weight. --full: one step of the full Stable Diffusion 2 U-Net (865,910,724 parameters, batch
1, 32x32 latents, EMA off) under the same bounds, the two programs one after the other, each within 20 GiB; needs 25 GB of disk. Exits 1 on a difference.
"""
import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from safetensors import safe_open
from training_step_parity import run, with_prediction, write_pictures

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "goldens"))
import training_reference as reference  # noqa: E402

LEARNING_RATE = 1e-4
LOSS_BOUND = 1e-6
DRIFT_BOUND = 1e-3
EMA_BOUND = 1e-6
MEMORY_BOUND_GIB = 20.0
EMA_DECAY = 0.999
NUM_SMALL_STEPS = 5
MIN_SNR_GAMMA = 5.0
TENSORS_A_MAPPING = 32  # Read through one mapping of a trace, so that its pages do not pile up in the resident set.
TRAINING = [f"optimizer.lr={LEARNING_RATE}", "optimizer.beta2=0.999", "optimizer.weight_decay=0.01", "optimizer.clip_norm=1.0", "schedule.kind=constant",
            "schedule.warmup_steps=0", "samples.every_steps=0", "checkpoint.every_steps=0", "runtime.threads=1"]


class Trace:
    """A trace file of which only the tensors asked for are in memory."""

    def __init__(self, path: Path):
        self.path = path
        with safe_open(path, "pt") as file:
            self.names = list(file.keys())

    def get(self, name: str) -> torch.Tensor:
        with safe_open(self.path, "pt") as file:
            return file.get_tensor(name).clone()

    def weights(self, prefix: str):
        """(name, values) of every weight under the prefix."""
        names = [name for name in self.names if name.startswith(prefix)]
        for first in range(0, len(names), TENSORS_A_MAPPING):
            with safe_open(self.path, "pt") as file:
                for name in names[first:first + TENSORS_A_MAPPING]:
                    yield name[len(prefix):], file.get_tensor(name)


def train(darkroom: Path, recipe: str, latents: Path, model: Path, folder: Path, settings: list) -> Path:
    words = [word for setting in TRAINING + settings for word in ("--set", setting)]
    run(darkroom, "train", recipe, "--data", latents, "--model", model, "--output", folder / "run", "--deterministic", "--trace",
        folder / "trace.safetensors", *words)
    return folder / "trace.safetensors"


def drift(network: UNet2DConditionModel, trace: Trace, last_step: int) -> float:
    """||w - w_ref|| / ||w_ref - w_0||."""
    theirs = dict(network.named_parameters())
    apart = sum(float((ours - theirs[name]).double().square().sum()) for name, ours in trace.weights(f"step.{last_step}.weights."))
    moved = sum(float((theirs[name] - start).double().square().sum()) for name, start in trace.weights("initial.weights."))
    return math.sqrt(apart / moved)


def replay(trace: Trace, model: Path, num_steps: int, gamma: float) -> bool:
    """Runs the traced batches through PyTorch's own training step from the same first weights."""
    network = UNet2DConditionModel.from_config(json.loads((model / "unet" / "config.json").read_text()))
    scheduler = DDPMScheduler.from_config(json.loads((model / "scheduler" / "scheduler_config.json").read_text()))
    with torch.no_grad():
        parameters = dict(network.named_parameters())
        for name, values in trace.weights("initial.weights."):
            parameters[name].copy_(values)
    optimizer = reference.make_optimizer(network, LEARNING_RATE)
    is_good = True
    for step in range(num_steps):
        batch = {name: trace.get(f"step.{step}.{name}") for name in ("latents", "noise", "timestep", "caption_states")}
        loss, _ = reference.train_step(network, optimizer, scheduler, batch, gamma)
        error = abs(float(trace.get(f"step.{step}.loss")) - loss) / loss
        print(f"    step {step}: loss {loss:.6f}, differs by {error:.1e} (bound {LOSS_BOUND:.0e})", flush=True)
        is_good = is_good and error <= LOSS_BOUND
    with torch.no_grad():
        distance = drift(network, trace, num_steps - 1)
    print(f"    weights after {num_steps}: ||w - w_ref|| = {distance:.1e} * ||w_ref - w_0|| (bound {DRIFT_BOUND:.0e})", flush=True)
    return is_good and distance <= DRIFT_BOUND


def ema_agrees(trace: Trace, run_folder: Path, num_steps: int) -> bool:
    averages = dict(trace.weights("initial.weights."))
    for update in range(num_steps):
        averages = reference.average(averages, trace.weights(f"step.{update}.weights."), update, EMA_DECAY)
    ours = Trace(next((run_folder / "checkpoints").glob("step-*/ema/*.safetensors")))
    error = max(float((values - averages[name]).abs().max() / averages[name].abs().max().clamp_min(1e-12)) for name, values in ours.weights(""))
    print(f"    EMA differs by {error:.1e} of a tensor's largest weight (bound {EMA_BOUND:.0e})", flush=True)
    return error <= EMA_BOUND


def compare_small(darkroom: Path, folder: Path) -> bool:
    run(darkroom, "models", "init", "--preset", "tiny", folder / "model", "--seed", 3)
    write_pictures(folder / "images")
    run(darkroom, "process", folder / "images", folder / "latents", "--model", folder / "model", "--resolution", 64, "--batch-size", 8)
    is_good = True
    for prediction in ("epsilon", "v_prediction"):
        variant = with_prediction(folder / "model", prediction, folder / prediction)
        for gamma in (0.0, MIN_SNR_GAMMA):
            print(f"  {prediction}, min-SNR gamma {gamma:g}:", flush=True)
            work = folder / f"{prediction}-{gamma:g}"
            work.mkdir()
            settings = ["batch.global=16", "batch.micro=16", f"schedule.max_steps={NUM_SMALL_STEPS}", f"objective.prediction={prediction}",
                        f"objective.min_snr_gamma={gamma}", "objective.caption_dropout=0.3", f"ema.decay={EMA_DECAY}"]
            trace = Trace(train(darkroom, "recipes/tiny.toml", folder / "latents", variant, work, settings))
            is_good = replay(trace, variant, NUM_SMALL_STEPS, gamma) and is_good
            is_good = ema_agrees(trace, work / "run", NUM_SMALL_STEPS) and is_good
    return is_good


def peak_gib(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 2**20


def compare_full(darkroom: Path, folder: Path) -> bool:
    """One step of the full network. The PyTorch side runs in a process of its own, so that its peak is its own."""
    print("  SD2, 865,910,724 parameters, one step, batch 1, 32x32 latents:", flush=True)
    run(darkroom, "models", "init", "--preset", "sd2-base", folder / "model", "--seed", 3)
    write_pictures(folder / "images")
    run(darkroom, "process", folder / "images", folder / "latents", "--model", folder / "model", "--resolution", 256, "--batch-size", 2, "--limit", 2)
    before = peak_gib(resource.RUSAGE_CHILDREN)
    train(darkroom, "recipes/sd2-256.toml", folder / "latents", folder / "model", folder,
          ["batch.global=1", "batch.micro=1", "schedule.max_steps=1", "ema.decay=0"])
    ours = max(before, peak_gib(resource.RUSAGE_CHILDREN))
    command = [sys.executable, __file__, "--replay", str(folder / "trace.safetensors"), "--model", str(folder / "model")]
    is_good = subprocess.run(command, check=False).returncode == 0
    print(f"    peak memory of darkroom {ours:.1f} GiB (bound {MEMORY_BOUND_GIB:g})", flush=True)
    return is_good and ours <= MEMORY_BOUND_GIB


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--darkroom", type=Path, default=Path("build/darkroom"))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--work", type=Path, help="existing folder for --full's files; default: a temporary one")
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    if flags.replay:
        is_good = replay(Trace(flags.replay), flags.model, 1, 0.0)
        peak = peak_gib(resource.RUSAGE_SELF)
        print(f"    peak memory of PyTorch {peak:.1f} GiB (bound {MEMORY_BOUND_GIB:g})", flush=True)
        return 0 if is_good and peak <= MEMORY_BOUND_GIB else 1
    with tempfile.TemporaryDirectory(dir=flags.work) as temporary:
        compare = compare_full if flags.full else compare_small
        is_good = compare(flags.darkroom, Path(temporary))
    print(f"training run parity: {'ok' if is_good else 'FAILED'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
