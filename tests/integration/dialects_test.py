#!/usr/bin/env python3
"""Output dialects: the same samples in every one, read without our readers; training and inspect take them; a killed job gives the same bytes.

The packages that the dialects are for open them in `make parity` (tools/parity/dialects_parity.py).
"""

import json
import pathlib
import random
import struct
import tarfile

import numpy as np
import pyarrow.parquet as pq

from workbench import LoopbackWeb, Workbench, digests, main, require, run, run_killed, timed_run

SEED = 20261123
PROCESS = ["--resolution", "64", "--rows-per-file", "20", "--batch-size", "8"]
COLUMNS = {
    "anyscale": ("latents_64_bytes", "caption_latents"),
    "ray-summit": ("image_latents_64", "caption_latents"),
    "huggingface": ("image_latents_64", "caption_embeddings"),
    "mosaicml": ("latents_64", "caption_latents"),
}


def floats(value: object) -> np.ndarray:
    return np.asarray(value, dtype=np.float32).reshape(-1)


def own_rows(folder: str) -> dict[str, tuple]:
    table = pq.read_table(folder)
    columns = (table[name].combine_chunks() for name in ("key", "caption", "image_latents_64", "caption_embeddings"))
    keys, captions, latents, states = columns
    values = zip(keys.to_pylist(), captions.to_pylist(), latents.to_numpy_ndarray(), states.to_numpy_ndarray())
    return {key: (caption, floats(a), floats(b)) for key, caption, a, b in values}


def parquet_rows(folder: str, latents: str, states: str) -> dict[str, tuple]:
    rows = {}
    for part in sorted(pathlib.Path(folder).glob("part-*.parquet")):
        for row in pq.read_table(part).to_pylist():
            rows[row["key"]] = (row["caption"], floats(row[latents]), floats(row[states]))
    return rows


def mds_samples(shard: dict, folder: str) -> list[dict]:
    """As mosaicml-streaming reads a shard: by index.json and the offsets at the beginning of the file."""
    data = pathlib.Path(folder, shard["raw_data"]["basename"]).read_bytes()
    require(len(data) == shard["raw_data"]["bytes"], "another size than index.json says", shard)
    samples = []
    for number in range(shard["samples"]):
        begin, end = struct.unpack_from("<II", data, 4 * (1 + number))
        sample, sizes, place = data[begin:end], [], 0
        for size in shard["column_sizes"]:
            if size is None:
                (size,) = struct.unpack_from("<I", sample, place)
                place += 4
            sizes.append(size)
        values = {}
        for name, size in zip(shard["column_names"], sizes):
            values[name] = sample[place : place + size]
            place += size
        require(place == len(sample), "a sample has bytes behind its values")
        samples.append(values)
    return samples


def mds_rows(folder: str, latents: str, states: str) -> dict[str, tuple]:
    rows = {}
    for shard in json.loads(pathlib.Path(folder, "index.json").read_text(encoding="utf-8"))["shards"]:
        for sample in mds_samples(shard, folder):
            half = lambda name: floats(np.frombuffer(sample[name], np.float16))
            rows[sample["key"].decode()] = (sample["caption"].decode(), half(latents), half(states))
    return rows


def require_same_rows(got: dict[str, tuple], want: dict[str, tuple], dialect: str) -> None:
    require(list(got) == list(want), "other rows", dialect, len(got), len(want))
    for key, (caption, latents, states) in want.items():
        same = got[key][0] == caption and np.array_equal(got[key][1], latents) and np.array_equal(got[key][2], states)
        require(same, "another row", dialect, key)


def every_dialect_holds_the_same_samples() -> None:
    with Workbench(48) as bench:
        images = bench.write_image_dataset("images", 48)
        want = {}
        for dtype in ("float16", "float32"):
            run("process", images, bench.path(dtype), "--model", bench.model, *PROCESS, "--dtype", dtype)
            want[dtype] = own_rows(bench.path(dtype))
        for dialect, (latents, states) in COLUMNS.items():
            folder = bench.path(dialect)
            run("process", images, folder, "--model", bench.model, *PROCESS, "--output-dialect", dialect)
            read = mds_rows if dialect == "mosaicml" else parquet_rows
            dtype = "float32" if dialect in ("anyscale", "ray-summit") else "float16"
            require_same_rows(read(folder, latents, states), want[dtype], dialect)
            run("inspect", folder, "--verify")
            run("train", "recipes/tiny.toml", "--data", folder, "--model", bench.model, "--output", bench.path(f"run-{dialect}"), "--max-steps", "1", "--set", "batch.global=8", "--set", "samples.every_steps=0")
        flip_a_byte(bench.path("mosaicml"))


def flip_a_byte(folder: str) -> None:
    path = sorted(pathlib.Path(folder).glob("part-*"))[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    run("inspect", folder, "--verify", expect=1)


def tars_hold_every_picture() -> None:
    with Workbench(48) as bench, LoopbackWeb(bench.path("corpus")) as web:
        flags = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "20", "--allow-private", f"127.0.0.1/32:{web.port}"]
        run("download", bench.path("images"), *flags)
        run("download", bench.path("tars"), *flags, "--output-dialect", "img2dataset")
        want = {row["key"]: (row["image"], row["caption"], row["url"]) for row in pq.read_table(bench.path("images")).to_pylist()}
        got = {}
        for path in sorted(pathlib.Path(bench.path("tars")).glob("part-*.tar")):
            with tarfile.open(path) as tar:
                members = {member.name: tar.extractfile(member).read() for member in tar}
            require(list(members)[-1] == "__darkroom_shard__", "the last member is not the record", path)
            for name in members:
                if name.endswith(".json"):
                    key, fields = name[:-5], json.loads(members[name])
                    picture = next(members[f"{key}.{kind}"] for kind in ("jpg", "png", "webp") if f"{key}.{kind}" in members)
                    got[key] = (picture, members[f"{key}.txt"].decode(), fields["url"])
        run("inspect", bench.path("tars"), "--verify")
        flip_a_byte(bench.path("tars"))
        require(got == want and len(want) == 48, "tars hold other rows than the Parquet parts", len(got), len(want))


def mds_survives_sigkill() -> None:
    generator = random.Random(SEED)
    with Workbench(160) as bench:
        images = bench.write_image_dataset("images", 80)
        common = ["--model", bench.model, *PROCESS, "--output-dialect", "mosaicml"]
        seconds = timed_run("process", images, bench.path("reference"), *common)
        hits = run_killed(["process", images, bench.path("killed"), *common], 3, seconds, generator)
        for pattern in ("part-*.mds", "index.json"):
            want = digests(bench.path("reference"), pattern)
            require(want and digests(bench.path("killed"), pattern) == want, "files differ from the undisturbed run", pattern)
        require(hits > 0, "no kill hit a running job; seed", SEED)


if __name__ == "__main__":
    main([every_dialect_holds_the_same_samples, tars_hold_every_picture, mds_survives_sigkill])
