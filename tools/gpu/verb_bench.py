"""What the stages of gpu_verbs.py share: the packed program, pictures to work on, tables of checks, readers of what verbs write."""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import importlib.util
import io
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "models/tiny"
ROUNDINGS = 64  # On the way through a network, as gpu_parity counts them.
WORDS = ["apple", "boat", "castle", "dog", "elephant", "forest", "guitar", "house", "island", "jar"]
COLOURS = ["red", "green", "blue", "yellow", "black", "white", "violet"]


def narrow_bound(bits: int) -> float:
    """Largest relative error in norm of a network that computes with so many bits of fraction: roundings of random sign."""
    return 2 * 2.0**-bits * math.sqrt(ROUNDINGS)


BOUNDS_OF_NORM = {"bfloat16": narrow_bound(8), "float16": narrow_bound(11)}


class VerbFailed(Exception):
    """A verb ended otherwise than it should."""


@dataclasses.dataclass
class Done:
    name: str
    code: int
    said: str
    seconds: float
    summary: dict


class Table:
    """Checks as rows of Markdown; each is printed when it is known, because a stage may be stopped before its end."""

    def __init__(self, *columns: str):
        self.failed = 0
        self.line(columns)
        self.line(["---"] * len(columns))

    @staticmethod
    def line(cells) -> None:
        print("| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |", flush=True)

    def note(self, what: str, *cells) -> None:
        self.line([what, *cells])

    def check(self, what: str, is_good: bool, figure: object = "") -> None:
        self.failed += not is_good
        self.line([what, figure, "holds" if is_good else "FAILS"])

    def bound(self, what: str, figure: float, bound: float) -> None:
        self.check(what, figure <= bound, f"{figure:.3g} of {bound:.3g}")  # A NaN is not below it.

    def report(self, what: str, figure: object) -> None:
        self.line([what, figure, "no promise"])


@dataclasses.dataclass
class Bench:
    tree: pathlib.Path
    device: str
    out: pathlib.Path
    scratch: pathlib.Path
    is_small: bool = False

    def __post_init__(self):
        self.is_cpu = self.device == "cpu"
        self.is_small = self.is_small or self.is_cpu
        self.program = self.tree / "bin/darkroom"
        self.jobs = 1 if self.is_small else 5  # Starts of the program side by side: one takes seconds to load CUDA's libraries.
        torch = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
        paths = [str(torch / "lib"), *sorted(map(str, torch.parent.glob("nvidia/*/lib"))), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths)), "DARKROOM_SHARE": str(ROOT)}
        self.scratch.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> pathlib.Path:
        return self.scratch / name

    def start(self, *arguments, environment: dict[str, str] | None = None, log=subprocess.PIPE) -> subprocess.Popen:
        command = [str(self.program), *map(str, arguments)]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env={**self.environment, **(environment or {})})

    def attempt(self, name: str, *arguments, environment: dict[str, str] | None = None, limit: float = 240) -> Done:
        """A verb to its end, whatever that is; what it says stays in the output folder."""
        begin = time.monotonic()
        summary = self.path(f"{name}.json")
        log = self.out / f"{name}.log"
        with open(log, "w", encoding="utf-8") as file:
            process = self.start(*arguments, "--json-summary", summary, environment=environment, log=file)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        figures = json.loads(summary.read_text()) if summary.exists() else {}
        said = log.read_text(errors="replace") + ("" if code >= 0 else f"\nended by signal {-code} (limit {limit} s)")
        return Done(name, code, said, time.monotonic() - begin, next(iter(figures.values()), {}))

    def run(self, name: str, *arguments, environment: dict[str, str] | None = None, limit: float = 240) -> Done:
        return self.require_done(self.attempt(name, *arguments, environment=environment, limit=limit))

    @staticmethod
    def require_done(done: Done) -> Done:
        if done.code != 0:
            raise VerbFailed(f"{done.name}: exit code {done.code}: {last_words(done.said)}")
        return done

    def process(self, name: str, *arguments, limit: float = 100) -> Done:
        """Where the kernel refuses the sandbox, pictures are decoded without it, with the same bits."""
        done = self.attempt(name, "process", *arguments, limit=limit)
        if done.code != 0 and "--no-sandbox" in done.said:
            print(f"{name}: again with --no-sandbox: {last_words(done.said)}", file=sys.stderr)
            return self.run(name, "process", *arguments, "--no-sandbox", limit=limit)
        return self.require_done(done)

    def said_by(self, name: str, command: list, limit: float = 100) -> tuple[int, str]:
        """Of another program of the tree: exit code and words, which stay in the output folder."""
        log = self.out / f"{name}.log"
        with open(log, "w", encoding="utf-8") as file, contextlib.suppress(subprocess.TimeoutExpired):
            code = subprocess.run(list(map(str, command)), stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=self.environment, timeout=limit, check=False).returncode
            return code, log.read_text(errors="replace")
        return -1, f"{log.read_text(errors='replace')}\nended after {limit} s"

    def together(self, works: list) -> list:
        """Functions without arguments, some at a time; the first failure is raised when all have ended."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return [future.result() for future in [pool.submit(work) for work in works]]

    def new_folder(self, name: str) -> pathlib.Path:
        shutil.rmtree(self.path(name), ignore_errors=True)
        return self.path(name)


def last_words(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return " / ".join(lines[-2:])[-400:] or "it said nothing"


# -- pictures ---------------------------------------------------------------------------------------------------------


def picture(number: int, width: int, height: int) -> bytes:
    """A JPEG of smooth colours with some grain: about as many bytes as a photograph."""
    draw = np.random.default_rng(number)
    coarse = Image.fromarray(draw.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    grain = draw.normal(0, 9, (height, width, 1))
    pixels = np.clip(np.asarray(coarse, np.float64) + grain, 0, 255).astype(np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG", quality=85)
    return data.getvalue()


def caption(number: int) -> str:
    return f"a {COLOURS[number % len(COLOURS)]} {WORDS[number % len(WORDS)]} beside a {WORDS[number // 7 % len(WORDS)]}, number {number}"


def write_pictures(folder: pathlib.Path, keys: list[int], width: int, height: int, num_different: int, rows_per_file: int) -> pathlib.Path:
    """An image dataset as `download` writes it; row k has picture k modulo `num_different`."""
    with concurrent.futures.ProcessPoolExecutor() as pool:
        images = list(pool.map(picture, range(num_different), [width] * num_different, [height] * num_different, chunksize=16))
    folder.mkdir(parents=True)
    for first in range(0, len(keys), rows_per_file):
        part = keys[first : first + rows_per_file]
        columns = {"key": [f"{key:012d}" for key in part], "url": [f"https://pictures.invalid/{key}.jpg" for key in part],
                   "caption": [caption(key) for key in part], "image": pa.array([images[key % num_different] for key in part], pa.binary()),
                   "width": pa.array([width] * len(part), pa.int32()), "height": pa.array([height] * len(part), pa.int32()),
                   "mime": ["image/jpeg"] * len(part)}  # fmt: skip
        pq.write_table(pa.table(columns), folder / f"part-{first // rows_per_file:06d}.parquet")
    return folder


# -- what verbs write -------------------------------------------------------------------------------------------------


def read_latents(folder: pathlib.Path, column: str) -> dict[str, np.ndarray]:
    """{key: values in float64} of a tensor column."""
    rows = {}
    for part in sorted(folder.glob("part-*.parquet")):
        table = pq.read_table(part, columns=["key", column])
        values = table[column].combine_chunks()
        values = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
        rows.update(zip(table["key"].to_pylist(), values.to_numpy_ndarray().astype(np.float64)))
    return rows


def stacked(rows: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack([rows[key] for key in sorted(rows)])


def of_largest(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max()) if got.shape == want.shape else math.nan


def of_norm(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm((got - want).ravel()) / np.linalg.norm(want.ravel())) if got.shape == want.shape else math.nan


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Tensors of float32, as checkpoints have them, and of float16."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "F16": np.float16}
    return {name: np.frombuffer(data[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]], kinds[entry["dtype"]])
            for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__"}  # fmt: skip


def read_metrics(run: pathlib.Path) -> list[dict]:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def losses(run: pathlib.Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in read_metrics(run) if "loss" in line}


def weights(run: pathlib.Path, steps: int) -> np.ndarray:
    tensors = read_safetensors(run / f"checkpoints/step-{steps:08d}/unet/diffusion_pytorch_model.safetensors")
    return np.concatenate([tensors[name].astype(np.float64) for name in sorted(tensors)])


def digests(run: pathlib.Path, steps: int) -> dict[str, str]:
    """Of weights, average and moments."""
    folder = run / f"checkpoints/step-{steps:08d}"
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.safetensors"))}


def pixels(path: pathlib.Path | bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(path) if isinstance(path, bytes) else path).convert("RGB")).astype(np.int32)


# -- memory -----------------------------------------------------------------------------------------------------------


class Watch(contextlib.AbstractContextManager):
    """Looks at a figure again and again, in a thread of its own, and keeps the largest."""

    def __init__(self, look, seconds: float = 0.2):
        self.look, self.seconds, self.largest = look, seconds, 0.0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self) -> None:
        while not self.ended.wait(self.seconds):
            with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
                self.largest = max(self.largest, self.look())

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *unused) -> None:
        self.ended.set()
        self.thread.join()

    def gigabytes(self) -> str:
        return f"{self.largest / 1e9:.1f}" if self.largest else "-"


def memory_of_gpu() -> float:
    """Bytes of the first GPU that are in use by anyone."""
    asked = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10, check=True)
    return float(asked.stdout.splitlines()[0]) * 2**20


def metric_at(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        lines = reply.read().decode().splitlines()
    return max((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{"))), default=0.0)
