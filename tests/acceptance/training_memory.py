"""A rank's memory is what `train --dry-run` prints: real buffers and passes, one at a time, of one rank of eight in float32, part by part within 5 %, as
torch's allocator counts them. Not measured: batches, samples, passes side by side, bfloat16, libraries' own copies (resident_growth is told, not judged)."""

import json
import pathlib
import subprocess

from harness import ROOT, Skipped, Trials, build, darkroom, judges, require, temporary_folder

BOUND = 0.05
RANKS = 8
# Losses, norms, the optimizer's scalars: not of the network's size.
SMALL = 64 << 10
CHUNK = 1 << 14  # Elements: kNormChunk.
MARGIN = 1.25  # Of a machine's memory over the plan, before anything is tried.


def available_bytes() -> int:
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def planned(preset: str, resolution: int, micro: int, precision: str) -> dict:
    """The estimate of a rank of eight, each with one group of one micro-batch."""
    fields = {"data.resolution": resolution, "batch.global": RANKS * micro, "batch.micro": micro, "runtime.gradient_groups": RANKS, "runtime.precision": precision}
    fields |= {"runtime.threads": 2, "runtime.workers": 1}
    settings = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    with temporary_folder() as folder:
        darkroom("train", "recipes/sd2-256.toml", "--dry-run", "--model", preset, "--ranks", RANKS, "--device", "cpu", *settings, "--json-summary", folder / "summary.json")
        return json.loads((folder / "summary.json").read_text())["train"]["estimate"]


def measured(preset: str, latents_side: int, micro: int, precision: str) -> dict:
    words = [preset, latents_side, RANKS, RANKS // 2, RANKS, micro, precision]
    done = subprocess.run([build("rank_memory"), *map(str, words)], capture_output=True, text=True, timeout=1800, cwd=ROOT, check=False)
    require(done.returncode == 0, "rank_memory ended with", done.returncode, done.stdout[-1000:], done.stderr[-1000:])
    return json.loads(done.stdout)


@judges(lambda: build("rank_memory"))
def a_rank_takes_what_its_plan_says(trials: Trials) -> None:
    """The U-Net of Stable Diffusion 2 base at 256 px; in the short form that of models/tiny."""
    preset = "sd2-base" if trials.is_full else "tiny"
    plan = trials.trial(f"{preset}: plan", lambda: planned(preset, 256, 1, "float32"))
    sizes = plan["bytes"]
    need = int(MARGIN * sizes["peak_on_device"])
    if available_bytes() < need:
        raise Skipped(f"needs {need / 1e9:.1f} GB of memory that nobody uses, there are {available_bytes() / 1e9:.1f}")
    got = trials.trial(f"{preset}: rank", lambda: measured(preset, 32, 1, "float32"))
    want = {"weights": sizes["compute_weights"] + sizes["master_weights"], "peak": sizes["peak_on_device"]}
    want |= {name: sizes[name] for name in ("moments", "average", "gradients", "partial_sums", "received_sums", "activations")}
    trials.figures.update(parameters=plan["parameters"], resident_growth=got["resident_growth"], passes_at_a_time=plan["batch"]["passes_at_a_time"])
    wrong = []
    for name, size in want.items():
        trials.figures[name] = {"planned": size, "measured": got[name], "off_percent": round(100 * (got[name] - size) / max(size, 1), 2)}
        if abs(got[name] - size) > BOUND * size + SMALL:
            wrong.append(name)
    require(not wrong, f"not within {BOUND:.0%} of the plan:", wrong, trials.figures)
    # Moments and average; the float32 weights of the slice, 4 P / N more, are the compute weights here. Slices are cut at whole chunks.
    state, share = got["moments"] + got["average"], 12 * plan["parameters"] / RANKS
    require(state <= share + 12 * CHUNK, "state of the rank's own slice, measured and 12 P / N", state, share)


CHECKS = [("training_memory.plan", a_rank_takes_what_its_plan_says)]
