#!/usr/bin/env python3
"""Image datasets of others: the same pictures as Parquet, webdataset tars, imagefolder, folder and MDS give the same latents (docs/formats/image_containers.md)."""

import json
import os
import pathlib

import pyarrow.parquet as pq

from workbench import Workbench, main, require, run, write_tars

CONTAINERS = ("tars", "imagefolder", "folder", "mds")


def write_folders(bench: Workbench, rows: list[dict]) -> None:
    write_tars(bench.path("tars"), rows, 10)
    for name in ("imagefolder/train", "folder"):
        os.makedirs(bench.path(name))
    metadata = pathlib.Path(bench.path("imagefolder/metadata.jsonl"))
    with metadata.open("w", encoding="utf-8") as lines:
        for row in rows:
            name = f"train/{row['key']}.png"
            metadata.with_name("train").joinpath(f"{row['key']}.png").write_bytes(row["image"])
            lines.write(json.dumps({"file_name": name, "text": row["caption"], "url": row["url"]}) + "\n")
            pathlib.Path(bench.path(f"folder/{row['key']}.png")).write_bytes(row["image"])
            pathlib.Path(bench.path(f"folder/{row['key']}.txt")).write_text(row["caption"] + "\n", encoding="utf-8")


def write_mds(folder: str, rows: list[dict]) -> None:
    """One shard of mosaicml-streaming's format, version 2."""
    names = ["caption", "image", "key"]
    about = {"column_encodings": ["str", "png", "str"], "column_names": names, "column_sizes": [None, None, None], "format": "mds", "version": 2}
    config = json.dumps(about, sort_keys=True).encode()
    samples = []
    for row in rows:
        values = [row["caption"].encode(), row["image"], row["key"].encode()]
        samples.append(b"".join(len(value).to_bytes(4, "little") for value in values) + b"".join(values))
    offsets = [4 * (len(rows) + 2) + len(config)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    os.makedirs(folder)
    head = b"".join(number.to_bytes(4, "little") for number in [len(rows), *offsets])
    pathlib.Path(folder, "shard.00000.mds").write_bytes(head + config + b"".join(samples))
    index = {"version": 2, "shards": [{"raw_data": {"basename": "shard.00000.mds"}, "zip_data": None, "samples": len(rows)}]}
    pathlib.Path(folder, "index.json").write_text(json.dumps(index))


def the_same_rows_give_the_same_latents() -> None:
    with Workbench(24) as bench:
        images = bench.write_image_dataset("images", 24)
        rows = pq.read_table(images).to_pylist()
        write_folders(bench, rows)
        write_mds(bench.path("mds"), rows)
        common = ["--model", bench.model, "--resolution", "64", "--rows-per-file", "10"]
        run("process", images, bench.path("latents"), *common)
        wanted = pq.read_table(bench.path("latents"))
        require(wanted.num_rows == 24, "rows of the reference", wanted.num_rows)
        for container in CONTAINERS:
            run("process", bench.path(container), bench.path(f"latents-{container}"), *common)
            found = pq.read_table(bench.path(f"latents-{container}"))
            require(found.column_names == wanted.column_names, "columns differ", container, found.column_names)
            for name in wanted.column_names:
                require(found[name].combine_chunks().equals(wanted[name].combine_chunks()), "a column differs", container, name)


def inspect_shows_them() -> None:
    with Workbench(12) as bench:
        rows = pq.read_table(bench.write_image_dataset("images", 12)).to_pylist()
        write_folders(bench, rows)
        write_mds(bench.path("mds"), rows)
        for container in CONTAINERS:
            sheet, page, summary = (bench.path(f"{container}.{ending}") for ending in ("png", "html", "json"))
            run("inspect", bench.path(container), "--verify", "--sheet", sheet, "--html", page, "--json-summary", summary)
            require(pathlib.Path(sheet).stat().st_size > 1000 and pathlib.Path(page).stat().st_size > 1000, "no sheet or page", container)
            require('"rows": 12' in pathlib.Path(summary).read_text(encoding="utf-8"), "the summary counts other rows", container)


def training_reads_them_online() -> None:
    with Workbench(40) as bench:
        rows = pq.read_table(bench.write_image_dataset("images", 40)).to_pylist()
        write_folders(bench, rows)
        settings = ["--deterministic", "--max-steps", "2", "--set", "batch.global=8", "--set", "samples.every_steps=0", "--set", "data.resolution=64"]
        losses = set()
        for container in ("images", "tars", "folder"):
            out = bench.path(f"run-{container}")
            run("train", "recipes/tiny.toml", "--raw-data", bench.path(container), "--model", bench.model, "--output", out, *settings)
            lines = pathlib.Path(out, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            losses.add(tuple(json.loads(line, parse_float=str)["loss"] for line in lines if '"loss"' in line))
        require(len(losses) == 2, "tars of ten rows have blocks of their own; the others are cut alike", losses)


def what_mixes_is_refused() -> None:
    with Workbench(4) as bench:
        images = bench.write_image_dataset("images", 4)
        write_tars(bench.path("tars"), pq.read_table(images).to_pylist(), 4)
        os.rename(bench.path("tars/00000.tar"), bench.path("images/x.tar"))
        process = ["--model", bench.model, "--resolution", "64"]
        refusal = run("process", images, bench.path("latents"), *process, expect=1).stderr
        require("part-000000.parquet" in refusal and "x.tar" in refusal, "both are named", refusal)
        run("process", bench.path("images/*.tar"), bench.path("latents"), *process)


if __name__ == "__main__":
    main([the_same_rows_give_the_same_latents, inspect_shows_them, training_reads_them_online, what_mixes_is_refused])
