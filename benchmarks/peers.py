#!/usr/bin/env python3
"""The peers of `darkroom bench transform|resize|tokenize|fetch`, each on the very inputs that darkroom takes.

usage: peers.py NAME FOLDER RESOLUTION
FOLDER holds what darkroom wrote for this run: pictures.txt (paths of JPEG files), captions.txt and tokenizer.txt, or urls.txt.
First prints one line of JSON: {"peers": [{"name": ..., "version": ...}], "missing": {NAME: REASON}}. Then answers every line on stdin,
the number of a peer, with {"seconds": ..., "digest": ...}: the time of one run (CPU time of this process; for fetch the time on the
clock) and the SHA-256 of its result, which darkroom compares with its own.
"""
import concurrent.futures
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Callable, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
URLLIB_THREADS = 16  # As many as darkroom has requests in flight here.


class Peer(NamedTuple):
    name: str
    version: str
    run: Callable[[], object]
    digest: Callable[[object], str]


def sha256_of_arrays(arrays) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def shorter_side_to(width: int, height: int, side: int) -> tuple[int, int]:
    return (side, side * height // width) if width <= height else (side * width // height, side)


def transform_peer(folder: Path, side: int) -> Peer:
    import io

    import numpy as np
    import PIL
    from PIL import Image

    files = [Path(line).read_bytes() for line in (folder / "pictures.txt").read_text().splitlines()]

    def transform(data: bytes):
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        picture = picture.resize(shorter_side_to(*picture.size, side), Image.Resampling.BILINEAR)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        pixels = np.asarray(picture.crop((left, top, left + side, top + side)), dtype=np.float32)
        return np.ascontiguousarray(((pixels / np.float32(255) - np.float32(0.5)) / np.float32(0.5)).transpose(2, 0, 1))

    return Peer("Pillow and NumPy", f"{PIL.__version__}, {np.__version__}", lambda: [transform(data) for data in files], sha256_of_arrays)


def resize_peer(folder: Path, side: int) -> Peer:
    import PIL
    from PIL import Image

    pictures = [Image.open(line).convert("RGB") for line in (folder / "pictures.txt").read_text().splitlines()]
    for picture in pictures:
        picture.load()

    def run():
        return [picture.resize(shorter_side_to(*picture.size, side), Image.Resampling.BILINEAR) for picture in pictures]

    return Peer("Pillow", PIL.__version__, run, sha256_of_arrays)


def tokenize_peer(folder: Path, _side: int) -> Peer:
    import numpy as np
    import transformers

    captions = (folder / "captions.txt").read_text(encoding="utf-8").splitlines()
    tokenizer = transformers.CLIPTokenizer.from_pretrained((folder / "tokenizer.txt").read_text())

    def run():
        return tokenizer(captions, padding="max_length", truncation=True, max_length=77)["input_ids"]

    return Peer("transformers", transformers.__version__, run, lambda ids: sha256_of_arrays([np.asarray(ids, dtype=np.int32)]))


def fetch_peer(folder: Path, _side: int) -> Peer:
    import platform
    import urllib.request

    urls = (folder / "urls.txt").read_text().splitlines()

    def fetch(url: str) -> bytes:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read()

    def run():
        with concurrent.futures.ThreadPoolExecutor(URLLIB_THREADS) as pool:
            return list(pool.map(fetch, urls))

    def digest(bodies) -> str:
        state = hashlib.sha256()
        for body in bodies:
            state.update(body)
        return state.hexdigest()

    return Peer("urllib in threads, as img2dataset", platform.python_version(), run, digest)


MAKERS = {"transform": transform_peer, "resize": resize_peer, "tokenize": tokenize_peer, "fetch": fetch_peer}


def main() -> None:
    name, folder, side = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    peers, missing = [], {}
    try:
        peers.append(MAKERS[name](folder, side))
    except ImportError as error:
        missing[error.name or name] = str(error)
    print(json.dumps({"peers": [{"name": peer.name, "version": peer.version} for peer in peers], "missing": missing}), flush=True)
    clock = time.perf_counter if name == "fetch" else time.process_time
    for line in sys.stdin:
        peer = peers[int(line)]
        began = clock()
        result = peer.run()
        seconds = clock() - began
        print(json.dumps({"seconds": seconds, "digest": peer.digest(result)}), flush=True)


if __name__ == "__main__":
    main()
