#!/usr/bin/env python3
"""Training on a cluster whose nodes leave and come: 4 ranks on two nodes, 2 on the one that is left after the other was killed, 4 again once
another node has come. Losses, weights and averages must be the single program's to the byte, and growing must repeat no step. And two ranks
that Ray gives a GPU each, on the GPU that is not there (docs/testing.md): the bytes of one process on the CPU.

usage: ray_elastic.py [--full] [--results FILE] [KIND...]       kinds: nodes gpus; without one both
--full is 5 runs, each with its node killed at another seeded moment, otherwise 1. Results go to build/acceptance/ray_elastic_short.json or
ray_elastic_full.json; a run that was cut goes on where it was, trial by trial. Exits 1 when a check failed.
"""

import atexit
import functools
import json
import pathlib
import random
import re
import sys
import time

from harness import ROOT, Trials, Workbench, darkroom, digests, main_of_kinds, require

from ray_bench import RayCluster
from workbench import read_losses

SEED = 20261126
RUNS = (1, 5)
NUM_ROWS = 64
STEPS = 400
KILL_BEFORE = 60  # Steps.
RANKS = 4
SETTINGS = ["batch.global=4", "batch.micro=1", f"runtime.gradient_groups={RANKS}", "runtime.workers=1", "runtime.watchdog_seconds=60", "checkpoint.every_steps=10", "samples.every_steps=0",
            f"schedule.max_steps={STEPS}", "schedule.kind=constant", "schedule.warmup_steps=3"]
GPU_STEPS = 8
FAKE_DEVICE = ROOT / "build" / "release" / "tests" / "fake_device"


@functools.cache
def the_bench() -> Workbench:
    """With latents."""
    bench = Workbench(NUM_ROWS)
    atexit.register(bench.__exit__)
    darkroom("process", bench.write_image_dataset("images", NUM_ROWS), bench.path("small"), "--model", bench.model, "--resolution", "64")
    return bench


@functools.cache
def the_reference() -> str:
    """The run of one process."""
    darkroom(*command(the_bench(), the_bench().path("reference")))
    return the_bench().path("reference")


def command(bench: Workbench, output: str) -> list[str]:
    return ["train", "recipes/tiny.toml", "--data", bench.path("small"), "--model", bench.model, "--output", output, *(word for one in SETTINGS for word in ("--set", one))]


def steps_in(output: str) -> int:
    metrics = pathlib.Path(output, "metrics.jsonl")
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def starts_of(output: str) -> list[tuple[int, int]]:
    """(first step, last step or 0) of each start, as rank 0's program said."""
    found: list[list[int]] = []
    for line in pathlib.Path(output, "_ray", "logs", "rank-000.log").read_text(encoding="utf-8").splitlines():
        begun, stopped = re.search(r"steps (\d+) to \d+", line), re.search(r"stopped on request; .* step: (\d+)", line)
        if begun:
            found.append([int(begun[1]), 0])
        if stopped and found:
            found[-1][1] = int(stopped[1])
    return [(first, last) for first, last in found]


def leave_and_come(number: int) -> dict:
    """One run of a cluster of two nodes."""
    bench, moment = the_bench(), random.Random(SEED + number).randrange(12, KILL_BEFORE)
    output = bench.path(f"run-{number}")
    cluster = RayCluster({"DARKROOM_RAY_RESIZE_SECONDS": "1"}, ("cpu", "trainer"))
    try:
        begin = time.monotonic()
        driver = cluster.start(*command(bench, output), "--num-training-workers", RANKS, "--max-failures", "-1", "--json-summary", bench.path("summary.json"))
        driver.wait_for(lambda: steps_in(output) > moment, f"step {moment}")
        cluster.kill_node("trainer")
        driver.wait_for(lambda: "start 2: ranks" in driver.words(), "a second start")
        is_smaller, before = time.monotonic() - begin, steps_in(output)
        driver.wait_for(lambda: steps_in(output) > before + 1, "a step of the smaller group")
        cluster.add_node("trainer")
        driver.wait_for(lambda: "start 3: ranks" in driver.words(), "a third start")
        is_grown = time.monotonic() - begin
        said = driver.finish()
    finally:
        cluster.close()
    about = json.loads(pathlib.Path(bench.path("summary.json")).read_text(encoding="utf-8"))["train"]["cluster"]
    require(about["ranks"] == [RANKS, RANKS // 2, RANKS], "other groups than were meant", about, said[-4000:])
    require_same(output, the_reference(), STEPS)
    starts = starts_of(output)
    require(len(starts) == 3 and starts[2][0] == starts[1][1] + 1, "growing has repeated steps", starts)
    return {"killed_after_step": moment, "ranks": about["ranks"], "starts_at_step": [first for first, _ in starts], "seconds_to_2_ranks": round(is_smaller, 1),
            "seconds_to_4_again": round(is_grown, 1), "seconds": round(time.monotonic() - begin, 1)}


def require_same(output: str, reference: str, num_steps: int) -> None:
    got, want = read_losses(output), read_losses(reference)
    require([step for step, _ in got] == list(range(1, num_steps + 1)), "steps were lost or are there twice", len(got))
    require(got == want, "losses differ from those of one process")
    pattern = f"checkpoints/step-{num_steps:08d}/**/*.safetensors"
    weights = digests(reference, pattern)
    require(len(weights) >= 3 and digests(output, pattern) == weights, "weights differ from those of one process")


def nodes_leave_and_come(trials: Trials) -> None:
    found = [trials.trial(f"run {number}", lambda: leave_and_come(number)) for number in range(trials.count(*RUNS))]
    trials.figures.update(runs=len(found), steps=STEPS, found=found)


def train_on_gpus() -> dict:
    """Each rank's worker is shown one of the node's two GPUs, which are both the one that is not there."""
    require((FAKE_DEVICE / "libdarkroom_cuda.so").exists(), "the fake device is not built: tools/build/build.sh release darkroom_fake_cuda")
    bench = the_bench()
    output, reference = bench.path("gpus"), bench.path("gpus-reference")
    few = ["--set", f"schedule.max_steps={GPU_STEPS}"]
    darkroom(*command(bench, reference), *few)
    cluster = RayCluster({"LD_LIBRARY_PATH": str(FAKE_DEVICE), "DARKROOM_RANKS_SHARE_GPU": "1"}, ("gpu",))
    try:
        cluster.run(*command(bench, output), *few, "--device", "cuda", "--num-gpus-per-task", "1", "--num-training-workers", "4", "--json-summary", bench.path("summary.json"))
    finally:
        cluster.close()
    about = json.loads(pathlib.Path(bench.path("summary.json")).read_text(encoding="utf-8"))["train"]["cluster"]
    require(about["ranks"] == [2], "of four ranks not those that GPUs are there for", about)
    devices = [start["device"] for start in json.loads(pathlib.Path(output, "run.json").read_text(encoding="utf-8"))["starts"]]
    require(devices == ["cuda:0"], "other devices", devices)
    require_same(output, reference, GPU_STEPS)
    return {"ranks": about["ranks"], "steps": GPU_STEPS}


def ranks_take_a_gpu_each(trials: Trials) -> None:
    trials.figures.update(trials.trial("two GPUs", train_on_gpus))


CHECKS = [("ray_elastic.nodes", nodes_leave_and_come), ("ray_elastic.gpus", ranks_take_a_gpu_each)]


if __name__ == "__main__":
    sys.exit(main_of_kinds(__doc__, CHECKS, "ray_elastic", [*(ROOT / "python").glob("darkroom*/*.py")]))
