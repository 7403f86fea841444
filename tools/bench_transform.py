#!/usr/bin/env python3
"""Times `darkroom transform` against Pillow and NumPy on the same pictures, in turn, as whole processes' CPU seconds.

usage: bench_transform.py PROGRAM PICTURES WORK_FOLDER     (run it pinned to one core)
Checks first that every float is equal. Prints min, median and max of both and of the ratio, round by round.
"""

import json
import pathlib
import resource
import statistics
import subprocess
import sys

ROUNDS = 5
RESOLUTION = 256
NUM_PICTURES = 400

# The peer as a program of its own, so that both pay their start-up.
PILLOW_PROGRAM = """
import sys
import numpy as np
from PIL import Image
out, size, *paths = sys.argv[1:]
size = int(size)
pictures = []
for path in paths:
    image = Image.open(path).convert("RGB")
    width, height = image.size
    new = (size, int(size * height / width)) if width < height else (int(size * width / height), size)
    image = image.resize(new, Image.Resampling.BILINEAR)
    left, top = (new[0] - size) // 2, (new[1] - size) // 2
    pixels = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float32)
    pictures.append(np.ascontiguousarray(((pixels / np.float32(255)) - np.float32(0.5)) / np.float32(0.5)).transpose(2, 0, 1))
np.save(out, np.stack(pictures))
"""


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def read_safetensors(path: pathlib.Path) -> dict:
    import numpy as np

    raw = path.read_bytes()
    header_bytes = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + header_bytes])
    data = memoryview(raw)[8 + header_bytes :]
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def main() -> None:
    import numpy as np

    program, pictures, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    paths = [str(path) for path in sorted(pictures.glob("*.jpg"))[:NUM_PICTURES]]
    good = []
    for path in paths:
        if subprocess.run([sys.executable, "-c", PILLOW_PROGRAM, str(work / "one.npy"), "32", path], capture_output=True).returncode == 0:
            good.append(path)
        if len(good) == NUM_PICTURES // 2:
            break
    ours_out, pillow_out = work / "ours.safetensors", work / "pillow.npy"
    ours = [program, "transform", "--resolution", str(RESOLUTION), "--output", str(ours_out), *good]
    pillow = [sys.executable, "-c", PILLOW_PROGRAM, str(pillow_out), str(RESOLUTION), *good]
    times = []
    for _ in range(ROUNDS + 1):
        times.append((cpu_seconds(ours), cpu_seconds(pillow)))
    tensors = read_safetensors(ours_out)
    reference = np.load(pillow_out)
    for path, want in zip(good, reference):
        if not np.array_equal(tensors[pathlib.Path(path).name], want):
            sys.exit(f"transform differs from Pillow: {path}")
    times = times[1:]  # The first round warmed up.
    print(f"transform, {len(good)} JPEG files to {RESOLUTION} px, whole process, CPU seconds (min / median / max of {ROUNDS}); every float equal")
    for name, column in (("darkroom", [a for a, _ in times]), ("Pillow + NumPy", [b for _, b in times]), ("ratio", [b / a for a, b in times])):
        print(f"  {name:15} {min(column):7.3f} {statistics.median(column):7.3f} {max(column):7.3f}")


if __name__ == "__main__":
    main()
