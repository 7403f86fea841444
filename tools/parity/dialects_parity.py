#!/usr/bin/env python3
"""Opens datasets of every output dialect with the packages that they are for, and compares every value with our own dialect's.

  dialects_parity.py --darkroom build/darkroom --model models/tiny --images CORPUS/pictures --torch .venv-parity/lib/python3.11/site-packages

Runs in .venv-readers (requirements/readers.txt); mosaicml-streaming imports torch, which is in .venv-parity. A reader that is not installed
is named and counts as a difference. Exits 1 on a difference.
"""
import argparse
import functools
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as pq

NUM_PICTURES = 20
ROWS_PER_FILE = 8
RESOLUTION = 64
TEXT_LENGTH = 77
HOSTILE = ["a \u20ac \U0001f600 caption", "quotes ' \" and \\ and\ttabs", "<html>&amp;</html>", "x" * 3000]


def captions(count: int) -> list[str]:
    return [HOSTILE[i] if i < len(HOSTILE) else f"picture number {i}" for i in range(count)]


def write_images(folder: Path, pictures: list[Path]) -> None:
    folder.mkdir()
    images = [path.read_bytes() for path in pictures]
    images[5] = b"no picture"  # A row that fails: its place must not show.
    keys = [f"{row:012}" for row in range(len(images))]
    pq.write_table(pyarrow.table({"key": keys, "caption": captions(len(images)), "image": pyarrow.array(images, pyarrow.binary())}), folder / "images.parquet")


class Darkroom:
    def __init__(self, program: str, model: str):
        self.program, self.model = program, model

    def __call__(self, *words: object) -> None:
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"dialects_parity: darkroom {words[0]}: {done.stderr}")

    def process(self, images: Path, output: Path, *flags: str) -> list[Path]:
        self("process", images, output, "--model", self.model, "--resolution", RESOLUTION, "--rows-per-file", ROWS_PER_FILE, *flags)
        return sorted(output.glob("part-*"))


Rows = dict[str, dict]  # By key: caption, latents, states.


def own_rows(parts: list[Path]) -> Rows:
    rows = {}
    for part in parts:
        table = pq.read_table(part)
        latents, states = (table[name].combine_chunks().to_numpy_ndarray() for name in (f"image_latents_{RESOLUTION}", "caption_embeddings"))
        for i, (key, caption) in enumerate(zip(table["key"].to_pylist(), table["caption"].to_pylist())):
            rows[key] = {"caption": caption, "latents": latents[i], "states": states[i]}
    return rows


def by_datasets(parts: list[Path], latents: str, states: str, cache: Path) -> Rows:
    import datasets

    files = [str(part) for part in parts]
    data = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(cache))
    assert isinstance(data.features[latents], datasets.Array3D), data.features
    assert isinstance(data.features[states], datasets.Array2D), data.features
    assert isinstance(data.features["image"], datasets.Image), data.features
    assert data[0]["image"].size[0] > 0
    again = datasets.Dataset.from_parquet(files, cache_dir=str(cache / "again"))
    assert again.features == data.features and len(again) == len(data)
    return {row["key"]: {"caption": row["caption"], "latents": row[latents], "states": row[states]} for row in data.remove_columns("image").with_format("numpy")}


def by_ray(parts: list[Path], latents: str, states: str, _cache: Path) -> Rows:
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().execution_options.preserve_order = True  # Else the parts come as their tasks end.
    rows = ray.data.read_parquet([str(part) for part in parts]).take_all()
    assert all(isinstance(row[latents], np.ndarray) and row[latents].ndim == 3 for row in rows)
    return {row["key"]: {"caption": row["caption"], "latents": row[latents], "states": row[states]} for row in rows}


def flat_rows(records: list[tuple], latents_shape: tuple) -> Rows:
    def plain(value: object) -> object:
        nested = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object)
        return [plain(inner) for inner in value] if nested else value

    def floats(value: object, shape: tuple) -> np.ndarray:
        return np.asarray(plain(value), dtype=np.float32).reshape(shape)

    return {key: {"caption": caption, "latents": floats(a, latents_shape), "states": floats(b, (TEXT_LENGTH, -1))} for key, caption, a, b in records}


def by_pandas(parts: list[Path], latents: str, states: str, shape: tuple) -> Rows:
    import pandas

    frame = pandas.concat([pandas.read_parquet(part) for part in parts])
    return flat_rows(list(frame[["key", "caption", latents, states]].itertuples(index=False)), shape)


def by_duckdb(parts: list[Path], latents: str, states: str, shape: tuple) -> Rows:
    import duckdb

    files = ", ".join(f"'{part}'" for part in parts)
    return flat_rows(duckdb.sql(f'SELECT "key", caption, "{latents}", "{states}" FROM read_parquet([{files}])').fetchall(), shape)


def by_pyarrow(parts: list[Path], latents: str, states: str, shape: tuple) -> Rows:
    table = pyarrow.concat_tables(pq.read_table(part, page_checksum_verification=True) for part in parts)
    return flat_rows(list(zip(*(table[name].to_pylist() for name in ("key", "caption", latents, states)))), shape)


def by_streaming(folder: Path, latents: str, states: str, shape: tuple) -> Rows:
    import streaming

    streaming.base.util.clean_stale_shared_memory()
    data = streaming.StreamingDataset(local=str(folder), shuffle=False, batch_size=1)
    half = lambda value, shape: np.frombuffer(value, np.float16).reshape(shape)
    rows = [data[i] for i in range(len(data))]
    return {row["key"]: {"caption": row["caption"], "latents": half(row[latents], shape), "states": half(row[states], (TEXT_LENGTH, -1))} for row in rows}


class Comparison:
    def __init__(self) -> None:
        self.num_different = 0

    def check(self, name: str, dialect: str, read, want: Rows) -> None:
        try:
            got = read()
        except Exception as failure:  # Whatever a reader says of a file that it cannot open is the finding.
            print(f"{name}: {dialect}: CANNOT READ: {type(failure).__name__}: {failure}")
            self.num_different += 1
            return
        equal = lambda a, b: a["caption"] == b["caption"] and all(np.array_equal(np.asarray(a[part]), np.asarray(b[part])) for part in ("latents", "states"))
        different = len(set(got) ^ set(want)) + sum(not equal(got[key], want[key]) for key in set(got) & set(want))
        is_reordered = list(got) != list(want) and different == 0
        print(f"{name}: {dialect}: {len(got)} rows, {different} differ{', in ANOTHER ORDER' if is_reordered else ''}")
        self.num_different += different + is_reordered


def compare_latents(darkroom: Darkroom, images: Path, folder: Path, comparison: Comparison) -> None:
    own = {dtype: own_rows(darkroom.process(images, folder / dtype, "--dtype", dtype)) for dtype in ("float16", "float32")}
    shape = next(iter(own["float32"].values()))["latents"].shape
    print(f"darkroom: {len(own['float32'])} rows of {NUM_PICTURES}, latents {shape}")
    for dialect, latents, states in (("anyscale", f"latents_{RESOLUTION}_bytes", "caption_latents"), ("ray-summit", f"image_latents_{RESOLUTION}", "caption_latents")):
        parts = darkroom.process(images, folder / dialect, "--output-dialect", dialect)
        for name, read in (("pyarrow", by_pyarrow), ("pandas", by_pandas), ("duckdb", by_duckdb)):
            comparison.check(name, dialect, lambda: read(parts, latents, states, shape), own["float32"])
        comparison.check("ray", dialect, lambda: by_ray(parts, latents, states, folder), own["float32"])
    latents, states = f"image_latents_{RESOLUTION}", "caption_embeddings"
    parts = darkroom.process(images, folder / "huggingface", "--output-dialect", "huggingface", "--keep-columns", "image")
    for name, read in (("pyarrow", by_pyarrow), ("pandas", by_pandas), ("duckdb", by_duckdb)):
        comparison.check(name, "huggingface", lambda: read(parts, latents, states, shape), own["float16"])
    # After pandas, whose reading of Array3D breaks in a process that has imported datasets 5.0.1.
    comparison.check("datasets", "huggingface", lambda: by_datasets(parts, latents, states, folder / "cache"), own["float16"])
    darkroom.process(images, folder / "mosaicml", "--output-dialect", "mosaicml")
    comparison.check("mosaicml-streaming", "mosaicml", lambda: by_streaming(folder / "mosaicml", f"latents_{RESOLUTION}", "caption_latents", shape), own["float16"])


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_words: object) -> None:
        pass


def download_tars(darkroom: Darkroom, pictures: list[Path], folder: Path) -> list[Path]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=pictures[0].parent))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    with open(folder / "urls.jsonl", "w", encoding="utf-8") as urls:
        for path, caption in zip(pictures, captions(len(pictures))):
            urls.write(json.dumps({"url": f"http://127.0.0.1:{port}/{path.name}", "caption": caption, "punsafe": 0.5}) + "\n")
        urls.write(json.dumps({"url": f"http://127.0.0.1:{port}/missing.png", "caption": "not there", "punsafe": 0.5}) + "\n")
    darkroom("download", folder / "tars", "--metadata", folder / "urls.jsonl", "--rows-per-file", ROWS_PER_FILE, "--output-dialect", "img2dataset", "--allow-private", f"127.0.0.1/32:{port}")
    server.shutdown()
    return sorted((folder / "tars").glob("part-*.tar"))


def compare_tars(darkroom: Darkroom, pictures: list[Path], folder: Path, comparison: Comparison) -> None:
    import datasets
    import webdataset

    tars = [str(path) for path in download_tars(darkroom, pictures, folder)]
    want = [(f"{row:012}", path.read_bytes(), caption) for row, (path, caption) in enumerate(zip(pictures, captions(len(pictures))))]
    picture_of = lambda sample: next(sample[name] for name in ("jpg", "png", "webp") if name in sample)
    samples = list(webdataset.WebDataset(tars, shardshuffle=False))
    rows = [(sample["__key__"], picture_of(sample), sample["txt"].decode()) for sample in samples]
    fields = [json.loads(sample["json"]) for sample in samples]
    wrong = sum(field["key"] != key or field["caption"] != caption or field["status"] != "success" for field, (key, _, caption) in zip(fields, want))
    different = abs(len(rows) - len(want)) + sum(a != b for a, b in zip(rows, want)) + wrong
    print(f"webdataset: img2dataset: {len(rows)} samples in {len(tars)} tars, {different} differ")
    data = datasets.load_dataset("webdataset", data_files=tars, split="train", cache_dir=str(folder / "cache"))
    names = [name for name in ("jpg", "png", "webp") if name in data.features]
    data = data.cast_column(names[0], datasets.Image(decode=False))
    got = [(row["__key__"], row[names[0]]["bytes"], row["txt"]) for row in data]
    different_again = abs(len(got) - len(want)) + sum(a != b for a, b in zip(got, want))
    print(f"datasets: img2dataset: {len(got)} samples, {different_again} differ")
    comparison.num_different += different + different_again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darkroom", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--images", required=True, type=Path)
    parser.add_argument("--torch", help="folder of packages that has torch, searched last")
    flags = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["HF_HUB_OFFLINE"] = "1"
    if flags.torch:
        sys.path.append(os.path.abspath(flags.torch))
    pictures = sorted(path for path in flags.images.iterdir() if path.suffix in (".png", ".jpg", ".webp"))
    suffix = pictures[0].suffix
    pictures = [path for path in pictures if path.suffix == suffix][:NUM_PICTURES]
    assert len(pictures) == NUM_PICTURES, f"too few pictures of one kind in {flags.images}"
    comparison = Comparison()
    darkroom = Darkroom(flags.darkroom, flags.model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images", pictures)
        compare_latents(darkroom, folder / "images", folder, comparison)
        compare_tars(darkroom, pictures, folder, comparison)
    print(f"pyarrow {pyarrow.__version__}: {comparison.num_different} differences")
    sys.exit(1 if comparison.num_different else 0)


if __name__ == "__main__":
    main()
