#!/usr/bin/env python3
"""What training gains when somebody else encodes, in miniature: models/tiny on JPEGs of 600x825, a core for each process, each way in turn, a round
after the other.

usage: bench_offload.py [--rows N] [--resolution R] [--batch B] [--rounds N]     in .venv; wants two cores that do nothing else
  latents are there      train --data, on one core: nobody encodes, which is the most that offloading can give
  the trainer encodes    train --raw-data, on one core
  an encoder beside      train --raw-data --encoders on one core, darkroom encoder on the other
  two trainers encode    train --raw-data --nproc 2, a core a rank: the same two cores without offloading
First the answers: every step's loss and the last weights must be the same in all four ways and all rounds. A rate is that of the steps behind the
first ones, while which rows are made ahead; no row is seen twice. Wall-clock: what else runs on the machine changes it.
What it can show: what encoding costs a trainer on its own core, what asking for rows over sockets costs instead, and which side waits for which.
What it cannot: encoders of another kind than the trainers, which is why one offloads (cheaper machines), more than one of them, networks between
them, GPUs. One core that encodes is not as many encoders as the trainer wants: the last lines say how many would be.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

from alternating_times import spread
from bench_download import jpegs_of_600x825

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from workbench import PROGRAM, digests, read_losses  # noqa: E402

MODEL = ROOT / "models" / "tiny"
ROWS_PER_FILE = 250
WARM_UP = 4  # Steps: some batches are made ahead while the first ones are computed.
PATIENCE = 1800  # Seconds; a limit, no measure.
THERE, HERE, BESIDE, BOTH = "latents are there", "the trainer encodes", "an encoder beside", "two trainers encode"
RATIOS = ((BESIDE, HERE, "the trainer's gain; published: 1.3"), (THERE, HERE, "the most that it can be"), (BESIDE, THERE, "what is left of that"), (BESIDE, BOTH, "the same two cores"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=640)
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.rows // given.batch < 2 * WARM_UP or given.batch % 4:
        parser.error(f"--rows must be {2 * WARM_UP} batches at least, and --batch divide by 4")
    return given


def write_images(folder: pathlib.Path, num_rows: int) -> None:
    folder.mkdir()
    pictures = jpegs_of_600x825()
    for first in range(0, num_rows, ROWS_PER_FILE):
        numbers = range(first, min(first + ROWS_PER_FILE, num_rows))
        bodies = pa.array([pictures[i % len(pictures)] for i in numbers], pa.binary())
        pq.write_table(pa.table({"key": [f"{i:08}" for i in numbers], "caption": [f"picture {i}" for i in numbers], "image": bodies}), folder / f"part-{first // ROWS_PER_FILE:06}.parquet")


def on_cores(cores: set[int]):
    """Of a child, before its program is there."""
    return lambda: os.sched_setaffinity(0, cores)


class Bench:
    def __init__(self, given: argparse.Namespace, folder: pathlib.Path, cores: list[int]):
        self.given, self.folder, self.cores = given, folder, cores
        self.images, self.latents, self.run_folder = folder / "images", folder / "latents", folder / "run"
        self.steps = given.rows // given.batch  # One epoch: rows that were encoded once are kept.
        self.rates: dict[str, list[float]] = {}
        self.waits: dict[str, list[float]] = {}
        self.balances: list[dict] = []
        self.answer: tuple | None = None
        write_images(self.images, given.rows)
        self.call({*cores}, "process", self.images, self.latents, "--model", MODEL, "--resolution", given.resolution, "--rows-per-file", ROWS_PER_FILE)

    def call(self, cores: set[int], *words) -> None:
        done = subprocess.run([str(PROGRAM), *map(str, words)], capture_output=True, text=True, cwd=ROOT, preexec_fn=on_cores(cores), timeout=PATIENCE)
        if done.returncode != 0:
            sys.exit(f"bench_offload: darkroom {words[0]} ended with {done.returncode}: {done.stderr[-2000:]}")

    def train(self, cores: set[int], *words) -> None:
        settings = [f"data.resolution={self.given.resolution}", f"data.rows_per_file={ROWS_PER_FILE}", f"batch.global={self.given.batch}", f"batch.micro={self.given.batch // 4}", "runtime.gradient_groups=2", "runtime.threads=1",
                    "runtime.workers=1", "samples.every_steps=0", "checkpoint.every_steps=0", f"schedule.max_steps={self.steps}"]
        shutil.rmtree(self.run_folder, ignore_errors=True)
        self.call(cores, "train", "recipes/tiny.toml", "--model", MODEL, "--output", self.run_folder, "--json-summary", self.folder / "summary.json", *words, *(word for setting in settings for word in ("--set", setting)))

    @contextlib.contextmanager
    def encoder(self):
        """Its address. A new one each time: it keeps rows."""
        command = [PROGRAM, "encoder", "--raw-data", self.images, "--model", MODEL, "--resolution", self.given.resolution, "--rows-per-file", ROWS_PER_FILE, "--num-encoders", 1]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, preexec_fn=on_cores({self.cores[1]}))
        try:
            line = process.stdout.readline()
            if not line.startswith("encoder ready at "):
                sys.exit(f"bench_offload: the encoder does not start: {line}")
            yield line.split()[-1]
        finally:
            process.terminate()
            process.wait()

    def run(self, way: str) -> None:
        first = {self.cores[0]}
        if way == THERE:
            self.train(first, "--data", self.latents)
        elif way == HERE:
            self.train(first, "--raw-data", self.images)
        elif way == BOTH:
            self.train({*self.cores}, "--raw-data", self.images, "--nproc", 2)
        else:
            with self.encoder() as address:
                self.train(first, "--raw-data", self.images, "--encoders", address)
            self.balances.append(json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))["train"]["online"])
        self.check(way)
        self.note(way)

    def check(self, way: str) -> None:
        answer = (read_losses(str(self.run_folder)), digests(str(self.run_folder), f"checkpoints/step-{self.steps:08d}/**/*.safetensors"))
        if len(answer[0]) != self.steps or not answer[1]:
            sys.exit(f"bench_offload: {way}: {len(answer[0])} losses and {len(answer[1])} files of weights, want {self.steps} losses")
        if self.answer is None:
            self.answer = answer
        if answer != self.answer:
            sys.exit(f"bench_offload: {way}: other losses or weights than the first run's")

    def note(self, way: str) -> None:
        lines = [json.loads(line) for line in (self.run_folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        seconds, measured = lines[-1]["seconds"] - lines[WARM_UP - 1]["seconds"], lines[WARM_UP:]
        self.rates.setdefault(way, []).append(self.given.batch * len(measured) / seconds)
        self.waits.setdefault(way, []).append(sum(line["ms"]["data"] for line in measured) / (10 * seconds))

    def print(self) -> None:
        print(f"{self.steps} steps of {self.given.batch} rows, {self.given.resolution} px, {self.given.rounds} rounds; losses and weights are the same: min, median, max")
        for way, rates in self.rates.items():
            print(f"  {way:24} {spread(rates)} rows/s of the trainers  {spread(self.waits[way])} % of their time without a batch")
        for one, other, about in RATIOS:
            print(f"  {one + ' / ' + other:44} {spread([a / b for a, b in zip(self.rates[one], self.rates[other])])}  ({about})")
        busy = [100 * (1 - balance["encoder_idle_seconds"] / balance["encoder_seconds"]) for balance in self.balances]
        print(f"  {'the encoder is at work':44} {spread(busy)} %")
        print(f"  {'encoders that would match the trainer':44} {statistics.median(balance['encoders_to_match'] for balance in self.balances)}")


def main() -> None:
    given = parse_arguments()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("bench_offload: two cores are wanted, one for each side")
    with tempfile.TemporaryDirectory(prefix="darkroom-offload-") as folder:
        bench = Bench(given, pathlib.Path(folder), cores)
        for _ in range(given.rounds):
            for way in (THERE, HERE, BESIDE, BOTH):
                bench.run(way)
        bench.print()


if __name__ == "__main__":
    main()
