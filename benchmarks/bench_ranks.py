#!/usr/bin/env python3
"""Times what several ranks, and a run's checkpoints, cost a step: each way of `train` against the other, in turn.

usage: bench_ranks.py PROGRAM LATENTS MODEL WORK_FOLDER [--recipe R] [--nproc N...] [--steps S] [--rounds R] [--set F=V...]
For each number of ranks: gradients sent after the backward pass, while it goes on, and in bfloat16; then, with one rank, a checkpoint every
fifth step, written at once and in the background. First the answers: the ways that change no bit must leave the same checkpoints, byte for
byte, in every round; those in bfloat16 the same among themselves. Milliseconds are the medians of a run's steps without its first three;
saving is the share of the run's time that its ledger (goodput.jsonl) counts as that. Wall-clock: other programs on the machine change it.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

from alternating_times import spread

WARM_UP = 3
EVERY = 5
FLOAT32, BFLOAT16, SAVED = "float32", "bfloat16", "saved"  # Runs of one kind have the same bits.
WAYS = {
    "sent after the backward pass": (FLOAT32, ["runtime.overlap=false"]),
    "sent while it goes on": (FLOAT32, ["runtime.overlap=true"]),
    "the same in bfloat16": (BFLOAT16, ["runtime.overlap=true", "runtime.gradient_wire=bfloat16"]),
}
SAVES = {
    "written at once": (SAVED, [f"checkpoint.every_steps={EVERY}", "runtime.background_saves=false"]),
    "written in the background": (SAVED, [f"checkpoint.every_steps={EVERY}", "runtime.background_saves=true"]),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("latents")
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--recipe", default="recipes/tiny.toml")
    parser.add_argument("--nproc", type=int, nargs="+", default=[2])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    return parser.parse_args()


def train(given: argparse.Namespace, output: pathlib.Path, num_ranks: int, settings: list[str]) -> None:
    common = [f"runtime.gradient_groups={max(given.nproc)}", "runtime.workers=1", "samples.every_steps=0", "checkpoint.every_steps=0", f"schedule.max_steps={given.steps}"]
    sets = [word for setting in [*common, *given.settings, *settings] for word in ("--set", setting)]
    command = [given.program, "train", given.recipe, "--data", given.latents, "--model", given.model, "--output", output, "--nproc", num_ranks, *sets]
    shutil.rmtree(output, ignore_errors=True)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"train ended with {done.returncode}: {done.stderr[-2000:]}")


def digest_of(run: pathlib.Path) -> str:
    newest = max(run.glob("checkpoints/step-*"))
    digest = hashlib.sha256()
    for path in sorted(newest.glob("**/*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def step_milliseconds(run: pathlib.Path) -> float:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(sum(line["ms"].values()) for line in lines[WARM_UP:])


def share_of_saving(run: pathlib.Path) -> float:
    last = json.loads((run / "goodput.jsonl").read_text().splitlines()[-1])
    return 100 * last["saving"] / (last["time"] - last["began"])


def compare(given: argparse.Namespace, num_ranks: int, ways: dict[str, tuple[str, list[str]]]) -> None:
    times: dict[str, list[float]] = {name: [] for name in ways}
    savings: dict[str, list[float]] = {name: [] for name in ways}
    digests: dict[str, str] = {}
    for _ in range(given.rounds):
        for name, (kind, settings) in ways.items():
            run = given.folder / "run"
            train(given, run, num_ranks, settings)
            if digests.setdefault(kind, digest_of(run)) != digest_of(run):
                sys.exit(f"{name}: the checkpoint differs from that of another run in {kind}")
            times[name].append(step_milliseconds(run))
            savings[name].append(share_of_saving(run))
    print(f"{num_ranks} rank{'s' if num_ranks > 1 else ''}, {given.rounds} rounds of {given.steps} steps; same bits within {', '.join(digests)}: min, median, max")
    first = next(iter(ways))
    for name in ways:
        ratios = [own / other for own, other in zip(times[name], times[first])]
        print(f"  {name:32} {spread(times[name])} ms a step   {spread(ratios)} of the first   {spread(savings[name])} % saving", flush=True)


if __name__ == "__main__":
    arguments = parse_arguments()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for count in arguments.nproc:
        compare(arguments, count, WAYS)
    compare(arguments, 1, SAVES)
