"""A rank's memory is what `train --dry-run` prints: real buffers and passes, one at a time, of one rank of eight in float32 and in bfloat16, part by part
within 5 %, as torch's allocator counts them. Not measured: batches, samples, passes side by side, libraries' own copies (resident_growth is told, not judged)."""

import json
import pathlib
import subprocess

from harness import ROOT, Skipped, Trials, build, darkroom, judges, require, temporary_folder

BOUND = 0.05
RANKS = 8
THREADS = 2
BYTES = {"float32": 4, "bfloat16": 2}  # Of a weight in a pass.
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
    fields |= {"runtime.threads": THREADS, "runtime.workers": 1}
    settings = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    with temporary_folder() as folder:
        darkroom("train", "recipes/sd2-256.toml", "--dry-run", "--model", preset, "--ranks", RANKS, "--device", "cpu", *settings, "--json-summary", folder / "summary.json")
        return json.loads((folder / "summary.json").read_text())["train"]["estimate"]


def measured(preset: str, latents_side: int, micro: int, precision: str) -> dict:
    words = [preset, latents_side, RANKS, RANKS // 2, RANKS, micro, precision]
    done = subprocess.run([build("rank_memory"), *map(str, words)], capture_output=True, text=True, timeout=1800, cwd=ROOT, check=False)
    require(done.returncode == 0, "rank_memory ended with", done.returncode, done.stdout[-1000:], done.stderr[-1000:])
    return json.loads(done.stdout)


def judge_precision(trials: Trials, preset: str, precision: str) -> list[str]:
    """The parts of a rank that are not within the bound of its plan."""
    plan = trials.trial(f"{preset}, {precision}: plan", lambda: planned(preset, 256, 1, precision))
    sizes, parameters = plan["bytes"], plan["parameters"]
    need = int(MARGIN * sizes["peak_on_device"])
    if available_bytes() < need:
        raise Skipped(f"needs {need / 1e9:.1f} GB of memory that nobody uses, there are {available_bytes() / 1e9:.1f}")
    got = trials.trial(f"{preset}, {precision}: rank", lambda: measured(preset, 32, 1, precision))
    want = {"weights": sizes["compute_weights"] + sizes["master_weights"], "peak": sizes["peak_on_device"]}
    want |= {name: sizes[name] for name in ("moments", "average", "gradients", "partial_sums", "received_sums", "activations")}
    figures = trials.figures[precision] = {"parameters": parameters, "resident_growth": got["resident_growth"], "passes_at_a_time": plan["batch"]["passes_at_a_time"]}
    figures["largest_kernel"] = got["largest_kernel"]
    for name, size in want.items():
        figures[name] = {"planned": size, "measured": got[name], "off_percent": round(100 * (got[name] - size) / max(size, 1), 2)}
    # Weights that passes read, float32 ones of the slice beside narrow ones, and gradients that are summed in float32. Slices are cut at whole chunks.
    weights, own = BYTES[precision] * parameters, 0 if precision == "float32" else 4 * parameters / RANKS
    require(abs(got["weights"] - weights - own) <= BOUND * (weights + own) + SMALL, "the weights of a rank are others than the type asks for", precision, figures)
    require(abs(got["gradients"] - 4 * parameters) <= BOUND * 4 * parameters + SMALL, "gradients are not summed in float32", precision, figures)
    state, share = got["moments"] + got["average"], 12 * parameters / RANKS
    require(state <= share + 12 * CHUNK, "state of the rank's own slice, measured and 12 P / N", precision, state, share)
    # A CPU's oneDNN sums the gradient of narrow convolutions' weights in float32, a sum a thread on some processors, in memory that it takes
    # of torch's allocator.
    scratch = {"activations": 0 if precision == "float32" else THREADS * got["largest_kernel"]}
    slack = {name: BOUND * size + SMALL for name, size in want.items()}
    return [f"{name} in {precision}" for name, size in want.items() if not -slack[name] <= got[name] - size <= slack[name] + scratch.get(name, 0)]


@judges(lambda: build("rank_memory"))
def a_rank_takes_what_its_plan_says(trials: Trials) -> None:
    """The U-Net of Stable Diffusion 2 base at 256 px; in the short form that of models/tiny."""
    preset = "sd2-base" if trials.is_full else "tiny"
    wrong = [name for precision in BYTES for name in judge_precision(trials, preset, precision)]
    require(not wrong, f"not within {BOUND:.0%} of the plan:", wrong, trials.figures)


CHECKS = [("training_memory.plan", a_rank_takes_what_its_plan_says)]
