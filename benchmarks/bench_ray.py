#!/usr/bin/env python3
"""Rows a second of `process` through Ray against the single program, against the reference template's preprocessing (ray_data_jobs.py) and
against Ray Data with our operators: the same JPEGs of 600x825, model, number of rows a file and CPUs, in turn, a round after the other.

usage: bench_ray.py [--packages FOLDER] [--rows N] [--resolution R] [--rounds N] [--judge]     in .venv; wants .venv-ray, `make python`, .venv-parity
First the answers: the parts of the cluster must be the single program's to the byte, the operators' rows equal to them, the template's keys the
same and its caption states equal to 1e-4 (its latents are drawn by another generator). Each side does an eighth of the rows, then all of them: a
rate is that of the rows that the second run has more, in the time that it takes longer, so no start and no end counts. Wall-clock: what else runs
on the machine changes it, and where it made the second run the shorter one there is no rate (nan). CPU milliseconds a row, of all processes of a
side, are had in the same way and change less. The last table sets the ratios of rates, each the median of its rounds, beside the goals; with --judge
the exit code is 1 when one of them was not reached, or not measured.
"""

import argparse
import contextlib
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from alternating_times import spread
from bench_download import jpegs_of_600x825

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from ray_bench import RAY_PYTHON, RayCluster  # noqa: E402
from workbench import PROGRAM, Skipped, digests  # noqa: E402

ROWS_PER_FILE = 10
SMALL = 8  # Parts of the rows, one of which the first run does.
LOOK_SECONDS = 0.1
PATIENCE = 1800  # Seconds; a limit, no measure.
TOLERANCE = 1e-4  # Of caption states, of which two implementations in float32 differ by rounding.
STORE_BYTES = 512 << 20  # Of Ray's objects: squares of pixels in float32 pass through it.
TICKS = os.sysconf("SC_CLK_TCK")
MODEL = ROOT / "models" / "tiny"
STAGED = ROOT / "build" / "release" / "python"
SINGLE, ON_RAY, OPERATORS, TEMPLATE = "darkroom process", "darkroom-ray process", "ray.data, darkroom.Encode", "ray.data, the template"
PROMISES = ((ON_RAY, SINGLE, 0.9), (ON_RAY, TEMPLATE, 2.0), (OPERATORS, TEMPLATE, 1.5))


class CpuClock:
    """CPU seconds that some processes, and all that they start, spend during its life; of one that has ended as it was last seen."""

    def __init__(self, roots: list[int]) -> None:
        self.roots = roots
        self.spent: dict[tuple[int, int], float] = {}  # By process and its start.
        self.before = 0.0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> "CpuClock":
        self.look()
        self.before = sum(self.spent.values())
        self.thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.is_over.set()
        self.thread.join()
        self.look()

    @property
    def seconds(self) -> float:
        return sum(self.spent.values()) - self.before

    def watch(self) -> None:
        while not self.is_over.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        found: dict[int, tuple[int, int, float]] = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
                found[int(folder.name)] = int(fields[1]), int(fields[19]), (int(fields[11]) + int(fields[12])) / TICKS
        ours = set(self.roots)
        while more := {pid for pid, (parent, _, _) in found.items() if parent in ours} - ours:
            ours |= more
        self.spent |= {(pid, found[pid][1]): found[pid][2] for pid in ours & found.keys()}


def rows_of(output: pathlib.Path, pattern: str = "*.parquet") -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(output.glob(pattern))]).sort_by("key").combine_chunks()


def floats_of(column: pa.ChunkedArray, num_rows: int) -> np.ndarray:
    """Whatever list or tensor type it has."""
    values = column.combine_chunks()
    values = getattr(values, "storage", values)
    while hasattr(values, "flatten") and pa.types.is_nested(values.type):
        values = values.flatten()
    return np.asarray(values, dtype=np.float32).reshape(num_rows, -1)


def ratios_of(rates: dict[str, list[float]], ours: str, theirs: str) -> list[float]:
    """Of the rounds in which both have a rate."""
    return [ratio for a, b in zip(rates[ours], rates[theirs]) if not math.isnan(ratio := a / b)]


def judge(rates: dict[str, list[float]]) -> bool:
    """Prints goal, figure and whether it was reached; whether all were."""
    rows = []
    for ours, theirs, promise in PROMISES:
        ratios = ratios_of(rates, ours, theirs)
        figure = statistics.median(ratios) if ratios else math.nan
        rows.append((f"{ours}: >= {promise}x {theirs}", figure, "not measured" if not ratios else "yes" if figure >= promise else "NO"))
    width = max(len(words) for words, _, _ in rows)
    print(f"\n{'goal, rows a second':{width}}  {'measured':>10}  reached")
    for words, figure, reached in rows:
        print(f"{words:{width}}  {figure:10.2f}  {reached}")
    return all(reached == "yes" for _, _, reached in rows)


class Bench:
    def __init__(self, given: argparse.Namespace, folder: pathlib.Path) -> None:
        self.given, self.folder = given, folder
        self.sizes = given.rows // SMALL, given.rows
        self.rates: dict[str, list[float]] = {}
        self.costs: dict[str, list[float]] = {}  # CPU milliseconds a row.
        self.process = ["--model", MODEL, "--resolution", given.resolution, "--rows-per-file", ROWS_PER_FILE, "--dtype", "float32"]
        (folder / "packages").mkdir()
        (folder / "packages" / "torch").symlink_to(given.packages / "torch")
        for size in self.sizes:
            self.write_images(size)

    def images(self, size: int) -> pathlib.Path:
        return self.folder / f"images-{size}"

    def write_images(self, size: int) -> None:
        self.images(size).mkdir()
        pictures = jpegs_of_600x825()
        for first in range(0, size, ROWS_PER_FILE):
            numbers = range(first, first + ROWS_PER_FILE)
            bodies = pa.array([pictures[i % len(pictures)] for i in numbers], pa.binary())
            table = pa.table({"key": [f"{i:08}" for i in numbers], "caption": [f"picture {i}" for i in numbers], "image": bodies})
            pq.write_table(table, self.images(size) / f"part-{first // ROWS_PER_FILE:06}.parquet")

    def run(self, name: str, output: pathlib.Path, command, cluster: RayCluster | None, more: dict[str, str]) -> None:
        """command(IMAGES): what does them into `output`."""
        (fewer_seconds, fewer_cpu), (seconds, cpu) = (self.run_once(name, output, command(self.images(size)), cluster, more) for size in self.sizes)
        rows = self.sizes[1] - self.sizes[0]
        if cpu <= fewer_cpu:
            sys.exit(f"bench_ray: {name}: more rows took no more CPU time; --rows is too few (seconds): {cpu} {fewer_cpu}")
        self.rates.setdefault(name, []).append(rows / (seconds - fewer_seconds) if seconds > fewer_seconds else math.nan)
        self.costs.setdefault(name, []).append(1000 * (cpu - fewer_cpu) / rows)
        print(f"{name}: {self.sizes[0]} rows in {fewer_seconds:.1f} s, {self.sizes[1]} in {seconds:.1f} s", file=sys.stderr, flush=True)

    def run_once(self, name: str, output: pathlib.Path, command: list, cluster: RayCluster | None, more: dict[str, str]) -> tuple[float, float]:
        """Seconds on the wall and of the CPUs."""
        shutil.rmtree(output, ignore_errors=True)
        begin = time.monotonic()
        with open(self.folder / "said", "w+", encoding="utf-8") as said:
            job = subprocess.Popen([str(word) for word in command], stdout=said, stderr=said, env={**(cluster.environment() if cluster else os.environ), **more})
            with CpuClock([job.pid, *([cluster.process.pid] if cluster else [])]) as clock:
                code = job.wait(PATIENCE)
            if code != 0:
                said.seek(0)
                sys.exit(f"bench_ray: {name} ended with {code}: {said.read()[-4000:]}")
        return time.monotonic() - begin, clock.seconds

    def round(self) -> None:
        """The single program before there is a cluster, which takes a little of the machine even when it has nothing to do."""
        single, on_ray, operators, template = (self.folder / name for name in ("single", "on-ray", "operators", "template"))
        self.run(SINGLE, single, lambda images: [PROGRAM, "process", images, single, *self.process, "--quiet"], None, {})
        cluster = RayCluster({"DARKROOM_TEST_STORE_BYTES": str(STORE_BYTES), "RAY_DATA_USE_DATASOURCE_V2": "0", "HF_HUB_OFFLINE": "1"}, kinds=("cpu",))
        try:
            words = [*self.process, "--num-encoders", 1, "--num-cpus-per-task", self.given.cpus]
            self.run(ON_RAY, on_ray, lambda images: [RAY_PYTHON, "-m", "darkroom_ray", "process", images, on_ray, *words], cluster, {})
            job = [RAY_PYTHON, pathlib.Path(__file__).with_name("ray_data_jobs.py")]
            about = [MODEL, self.given.resolution, self.given.packages]
            path = {"PYTHONPATH": f"{STAGED}:{self.folder / 'packages'}"}
            self.run(OPERATORS, operators, lambda images: [*job, "operators", images, operators, *about], cluster, path)
            self.run(TEMPLATE, template, lambda images: [*job, "template", images, template, *about], cluster, {"PYTHONPATH": ""})
        finally:
            cluster.close()
        self.check(single, on_ray, operators, template)

    def check(self, single: pathlib.Path, on_ray: pathlib.Path, operators: pathlib.Path, template: pathlib.Path) -> None:
        parts = digests(str(single), "part-*.parquet")
        if len(parts) != self.given.rows // ROWS_PER_FILE or digests(str(on_ray), "part-*.parquet") != parts:
            sys.exit("bench_ray: the cluster's parts are not the single program's")
        want, theirs = rows_of(single, "part-*.parquet"), rows_of(template)
        if want.num_rows != self.given.rows or not rows_of(operators).equals(want):
            sys.exit("bench_ray: the operators' rows are not the single program's")
        if theirs["key"].to_pylist() != want["key"].to_pylist():
            sys.exit("bench_ray: the template has other rows")
        states = [floats_of(column, want.num_rows) for column in (want["caption_embeddings"], theirs["caption_latents"])]
        worst = float(np.abs(states[0] - states[1]).max())
        if not worst <= TOLERANCE * float(np.abs(states[0]).max()):
            sys.exit(f"bench_ray: the template's caption states differ by {worst}")

    def report(self) -> None:
        given = self.given
        print(f"{given.rows} JPEGs of 600x825 to {given.resolution} px, models/tiny, float32, {given.cpus} CPUs, {given.rounds} rounds; min, median, max")
        for name, rates in self.rates.items():
            print(f"  {name:28} {spread(rates)} rows/s   {spread(self.costs[name])} CPU ms a row", flush=True)
        for ours, theirs, _ in PROMISES:
            costs = statistics.median(b / a for a, b in zip(self.costs[ours], self.costs[theirs]))
            print(f"  {ours} / {theirs}: {spread(ratios_of(self.rates, ours, theirs) or [math.nan])}; by CPU time {costs:.2f}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--packages", type=pathlib.Path, default=ROOT / ".venv-parity" / "lib" / version / "site-packages", help="with torch, torchvision, diffusers and transformers")
    parser.add_argument("--rows", type=int, default=2560)
    parser.add_argument("--resolution", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--judge", action="store_true", help="exit with 1 when a goal was not reached or not measured")
    given = parser.parse_args()
    given.cpus = 2  # Of a node of RayCluster.
    if given.rows < 1 or given.rows % (SMALL * ROWS_PER_FILE):
        sys.exit(f"bench_ray: --rows is a multiple of {SMALL * ROWS_PER_FILE}: {given.rows}")
    if not (given.packages / "diffusers").is_dir():
        sys.exit(f"bench_ray: there is no diffusers in {given.packages}; tools/build/setup.sh parity installs it, or --packages names another folder")
    if not any((STAGED / "darkroom").glob("_native.*.so")):
        sys.exit("bench_ray: build/release/python has no extension module: run `make python`")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cpus])
    return given


def main() -> int:
    given = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="darkroom-bench-") as folder:
        bench = Bench(given, pathlib.Path(folder))
        try:
            for _ in range(given.rounds):
                bench.round()
        except Skipped as skip:
            sys.exit(f"bench_ray: {skip}")
        bench.report()
    return 0 if judge(bench.rates) or not given.judge else 1


if __name__ == "__main__":
    sys.exit(main())
