#!/usr/bin/env python3
"""Writes tests/golden/tables/mds: shards that mosaicml-streaming wrote, and what was written.

    make_mds_goldens.py

plain/, zstd/                  an index.json and its shards of a few rows
rows.tsv                       a line a row: shard, then each column as NAME=VALUE, the bytes of pictures and captions in hexadecimal

Needs mosaicml-streaming 0.13.0 and what its writer imports: zstd, Brotli, python-snappy, xxhash, tqdm, filelock, numpy, Pillow, requests.
What the package imports besides (torch, cloud clients) is left out where it is not installed.
"""

import importlib.metadata
import importlib.util
import io
import json
import pathlib
import shutil
import sys
import types
from unittest import mock

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).parent.parent.parent / "tests/golden/tables/mds"
COLUMNS = {
    "caption": "str", "jpg": "jpeg", "png": "png", "raw": "bytes", "note": "json", "number": "int", "small": "uint8", "wide": "int16", "ratio": "float32",
    "half": "float16", "score": "float64", "digits": "str_int", "pixels": "pil", "object": "pkl", "tensor": "ndarray", "fixed": "ndarray:uint8:2,2",
}
READ = ["caption", "jpg", "png", "raw", "note", "number", "small", "wide", "ratio", "half", "score", "digits"]


def mds_writer() -> type:
    if importlib.util.find_spec("torch") is None:
        for name in ("torch", "torch.distributed", "torch.utils", "torch.utils.data"):
            sys.modules[name] = mock.MagicMock()
    root = importlib.util.find_spec("streaming").submodule_search_locations[0]
    for name in ("streaming", "streaming.base", "streaming.base.format", "streaming.base.format.mds", "streaming.base.format.base"):
        package = types.ModuleType(name)  # Without what its __init__ imports.
        package.__path__ = [str(pathlib.Path(root, *name.split(".")[1:]))]
        sys.modules[name] = package
    return importlib.import_module("streaming.base.format.mds.writer").MDSWriter


def picture(i: int, kind: str) -> bytes:
    pixels = np.fromfunction(lambda y, x, c: (37 * i + 5 * x + 11 * y + 60 * c) % 256, (8 + i, 9, 3)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def row(i: int) -> dict:
    return {
        "caption": ["a red house", "", "grün 猫\n", "x" * 300, "the last", "seven", "eight"][i], "jpg": picture(i, "JPEG"), "png": picture(i, "PNG"), "raw": bytes(range(i)),
        "note": {"n": i, "list": [1, None]}, "number": -(10**15) - i, "small": np.uint8(200 + i), "wide": np.int16(-300 * i), "ratio": np.float32(0.1 * i),
        "half": np.float16(0.5 * i), "score": np.float64(i / 3), "digits": 10**20 + i, "pixels": Image.new("RGB", (2, 3)), "object": {"never": "read"},
        "tensor": np.arange(4, dtype=np.int32), "fixed": np.full((2, 2), i, np.uint8),
    }


def text_of(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value) if isinstance(value, dict) else repr(value.item()) if isinstance(value, np.generic) else str(value)


def main() -> None:
    writer = mds_writer()
    shutil.rmtree(OUT, ignore_errors=True)
    rows = [row(i) for i in range(7)]
    for name, compression in (("plain", None), ("zstd", "zstd:3")):
        with writer(columns=COLUMNS, out=str(OUT / name), compression=compression, hashes=["sha1"], size_limit=5000) as out:
            for one in rows:
                out.write(one)
    lines = f"# tools/goldens/make_mds_goldens.py, mosaicml-streaming {importlib.metadata.version('mosaicml-streaming')}\n"
    number = 0
    for shard in json.loads((OUT / "plain" / "index.json").read_text())["shards"]:
        for one in rows[number : number + shard["samples"]]:
            values = {**one, "caption": one["caption"].encode()}
            lines += "\t".join([shard["raw_data"]["basename"], *(f"{name}={text_of(values[name])}" for name in READ)]) + "\n"
        number += shard["samples"]
    (OUT / "rows.tsv").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
