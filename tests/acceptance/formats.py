"""Acceptance 11: what the jobs write opens in pyarrow, pandas, DuckDB and Hugging Face datasets; what is not installed is skipped by name.

The packages are looked for in this environment, in those of `make parity` (.venv-readers, which pins all of them, and .venv-parity) and
in that of DARKROOM_PEERS (a Python program).
"""

import os
import pathlib
import random
import subprocess
import sys

import pyarrow.parquet as pq

from harness import ROOT, LoopbackWeb, Skipped, Trials, Workbench, darkroom, require, temporary_folder

READERS = {
    "pandas": "import pandas; print(len(pandas.read_parquet(sys.argv[1])))",
    "duckdb": "import duckdb; print(duckdb.connect().execute(f\"select count(*) from '{sys.argv[1]}/part-*.parquet'\").fetchone()[0])",
    "datasets": "import datasets, glob; print(len(datasets.load_dataset('parquet', data_files=sorted(glob.glob(sys.argv[1] + '/part-*.parquet')), split='train', cache_dir=sys.argv[2])))",
}


def pythons() -> list[str]:
    others = [os.environ.get("DARKROOM_PEERS", ""), *(str(ROOT / name / "bin" / "python") for name in (".venv-readers", ".venv-parity"))]
    return [sys.executable, *(path for path in others if path and pathlib.Path(path).exists())]


def python_with(package: str) -> str | None:
    for python in pythons():
        if subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0:
            return python
    return None


def download_flags(bench: Workbench, web: LoopbackWeb) -> list:
    return ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "16", "--allow-private", f"127.0.0.1/32:{web.port}"]


def process_flags(bench: Workbench, text: str = "both") -> list:
    return ["--model", bench.model, "--resolution", "64", "--rows-per-file", "16", "--text", text]


def make_datasets(bench: Workbench, web: LoopbackWeb, folder: pathlib.Path, dialect: str = "darkroom") -> dict[str, int]:
    darkroom("download", folder / "images", *download_flags(bench, web))
    darkroom("process", folder / "images", folder / "latents", *process_flags(bench), "--output-dialect", dialect)
    return {name: sum(pq.ParquetFile(path).metadata.num_rows for path in (folder / name).glob("part-*.parquet")) for name in ("images", "latents")}


def open_in_pyarrow(trials: Trials) -> None:
    with Workbench(48) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder:
        counts = make_datasets(bench, web, folder)
        for name, count in counts.items():
            table = pq.read_table(folder / name, page_checksum_verification=True)
            table.validate(full=True)
            require(table.num_rows == count == 48, "rows", name, table.num_rows)
        trials.figures.update(counts)


def open_in(trials: Trials, package: str) -> None:
    python = python_with(package)
    if python is None:
        raise Skipped(f"{package} is not installed in {', '.join(pythons())}")
    with Workbench(48) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder:
        dialect = "huggingface" if package == "datasets" else "darkroom"  # It knows no tensors of a fixed shape.
        for name, count in make_datasets(bench, web, folder, dialect).items():
            done = subprocess.run([python, "-c", "import sys\n" + READERS[package], str(folder / name), str(folder / "cache")], capture_output=True, text=True, timeout=300)
            require(done.returncode == 0 and done.stdout.split()[-1] == str(count), "rows read by", package, name, done.stdout[-300:], done.stderr[-800:])


def make_containers(bench: Workbench, web: LoopbackWeb, folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """The same rows in each container that the jobs write: the parts of images and latents, of Parquet and not."""
    make_datasets(bench, web, folder)
    darkroom("download", folder / "tars", *download_flags(bench, web), "--output-dialect", "img2dataset")
    darkroom("process", folder / "images", folder / "mds", *process_flags(bench, "embeddings"), "--output-dialect", "mosaicml")
    parts = {}
    for name, pattern in {"images": "part-*.parquet", "latents": "part-*.parquet", "tars": "*.tar", "mds": "*.mds"}.items():
        parts[name] = sorted((folder / name).glob(pattern))
        require(len(parts[name]) == 2, "parts", name, parts[name])
        darkroom("inspect", folder / name, "--verify")
    return parts


def flip_a_bit(folder: pathlib.Path, parts: list[pathlib.Path], generator: random.Random) -> str:
    """Where inspect --verify did not find a flipped bit of a part; "" where it did."""
    path = generator.choice(parts)
    data = bytearray(path.read_bytes())
    at, mask = generator.randrange(len(data)), 1 << generator.randrange(8)
    data[at] ^= mask
    path.write_bytes(data)
    is_missed = darkroom("inspect", folder, "--verify", expect=None).returncode == 0
    data[at] ^= mask
    path.write_bytes(data)
    return f"{path.parent.name}/{path.name} byte {at} ^ {mask}" if is_missed else ""


def flipped_bytes_are_found(trials: Trials) -> None:
    """inspect --verify finds any flipped byte of a part, whatever the container. Short: 40 flips, full: 10,000, a quarter of them in each."""
    with Workbench(24) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder:
        containers = make_containers(bench, web, folder)
        count, batch = trials.count(40, 10_000), 20

        def flip(first: int) -> list[str]:
            generator = random.Random(f"flips {first}")
            places = (list(containers)[number % len(containers)] for number in range(first, first + batch))
            return [missed for name in places if (missed := flip_a_bit(folder / name, containers[name], generator))]

        missed = [place for first in range(0, count, batch) for place in trials.trial(f"flips {first}", lambda: flip(first))]
        trials.figures.update(flips=count, containers=sorted(containers), missed=len(missed))
        require(not missed, "flipped bytes were not found", len(missed), missed[:10])


CHECKS = [("formats.pyarrow", open_in_pyarrow)] + [(f"formats.{package}", lambda trials, package=package: open_in(trials, package)) for package in READERS] + [("formats.flips", flipped_bytes_are_found)]
