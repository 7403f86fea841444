#!/usr/bin/env python3
"""Times the transform and the resize against Pillow, torchvision, OpenCV and a bare libjpeg-turbo decode, in memory, one core.

  taskset -c 0 .venv-parity/bin/python benchmarks/bench_images.py --program build/release/image_bench [--rounds 15]

Checks every answer of ours against Pillow first. torchvision and OpenCV do not compute the same pixels: their lines are
for orientation. Prints min, median and max of each time and of each ratio, which is taken round by round.
DARKROOM_VECTOR_UNIT=AVX2 holds ours, not the peers, to that vector unit.
"""
import argparse
import io
import os
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms.v2 import functional

from alternating_times import TimedProgram, measure, print_ratio, print_times, python_task
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools/corpus"))
from photographs import originals  # noqa: E402

RESOLUTION = 256
SIZE = (600, 825)
NUM_PICTURES = 8
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}


def photographs() -> list[bytes]:
    """600x825 photographs at JPEG quality 85, 4:2:0."""
    files = []
    for image in list(originals().values())[:NUM_PICTURES]:
        scale = max(SIZE[0] / image.width, SIZE[1] / image.height)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
        left, top = (image.width - SIZE[0]) // 2, (image.height - SIZE[1]) // 2
        buffer = io.BytesIO()
        image.crop((left, top, left + SIZE[0], top + SIZE[1])).save(buffer, "JPEG", quality=85, subsampling=2)
        files.append(buffer.getvalue())
    return files


def new_size(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    return (RESOLUTION, RESOLUTION * height // width) if width <= height else (RESOLUTION * width // height, RESOLUTION)


def transform_with_pillow(data: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    size = new_size(image)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - RESOLUTION) // 2, (size[1] - RESOLUTION) // 2
    pixels = np.asarray(image.crop((left, top, left + RESOLUTION, top + RESOLUTION)), dtype=np.float32)
    return np.ascontiguousarray(((pixels / np.float32(255) - np.float32(0.5)) / np.float32(0.5)).transpose(2, 0, 1))


def transform_with_torchvision(data: bytes) -> torch.Tensor:
    image = torchvision.io.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode="RGB")
    image = functional.resize(image, [RESOLUTION], antialias=True)
    image = functional.center_crop(image, [RESOLUTION, RESOLUTION])
    return functional.normalize(functional.to_dtype(image, torch.float32, scale=True), [0.5] * 3, [0.5] * 3)


def transform_with_opencv(data: bytes) -> np.ndarray:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    height, width = image.shape[:2]
    image = cv2.resize(image, (RESOLUTION, RESOLUTION * height // width), interpolation=cv2.INTER_AREA)
    top = (image.shape[0] - RESOLUTION) // 2
    return cv2.dnn.blobFromImage(image[top : top + RESOLUTION], 2 / 255, mean=(127.5,) * 3, swapRB=True)


def check(results: Path, files: list[bytes], images: list[Image.Image]) -> None:
    for number, (data, image) in enumerate(zip(files, images)):
        if not np.array_equal(np.fromfile(results / f"{number}.transform", np.float32), transform_with_pillow(data).ravel()):
            sys.exit(f"transform differs from Pillow on picture {number}")
        for name, resampling in FILTERS.items():
            if (results / f"{number}.{name}").read_bytes() != image.resize(new_size(image), resampling).tobytes():
                sys.exit(f"resize {name} differs from Pillow on picture {number}")
    print(f"checked: {len(files)} transforms and {len(files) * len(FILTERS)} resizes equal Pillow {PIL.__version__}, bit for bit; "
          f"vector unit {os.environ.get('DARKROOM_VECTOR_UNIT', 'chosen by itself')}")


def each(task, items):
    return python_task(lambda: [task(item) for item in items])


def bench_transform(ours: TimedProgram, files: list[bytes], rounds: int) -> None:
    times = measure({
        "darkroom": ours.task("transform"),
        "libjpeg-turbo alone (decode, no more)": ours.task("libjpeg"),
        f"Pillow {PIL.__version__} + NumPy": each(transform_with_pillow, files),
        f"torchvision {torchvision.__version__} v2, not equal": each(transform_with_torchvision, files),
        f"OpenCV {cv2.__version__}, not equal": each(transform_with_opencv, files),
    }, rounds)
    decode, pillow, *others = list(times)[1:]
    print(f"transform, {SIZE[0]}x{SIZE[1]} JPEG to {RESOLUTION}: pictures a second (min, median, max of {rounds} rounds)")
    print_times(times, "img/s", lambda seconds: len(files) / seconds)
    print_ratio("Pillow + NumPy / darkroom", times[pillow], times["darkroom"], "wanted: at least 1.9")
    print_ratio("darkroom / libjpeg-turbo alone", times["darkroom"], times[decode], "wanted: at most 1.35")
    for name in others:
        print_ratio(f"{name.split()[0]} / darkroom", times[name], times["darkroom"], "for orientation")


def bench_resize(ours: TimedProgram, images: list[Image.Image], rounds: int) -> None:
    size = new_size(images[0])
    tensors = [torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()) for image in images]
    arrays = [np.asarray(image) for image in images]
    for name, resampling in FILTERS.items():
        timers = {
            "darkroom": ours.task(f"resize:{name}", 4),
            "Pillow": each(lambda image, resampling=resampling: image.resize(size, resampling), images),
        }
        if name == "bilinear":
            timers["torchvision"] = each(lambda tensor: functional.resize(tensor, [size[1], size[0]], antialias=True), tensors)
            timers["OpenCV INTER_AREA"] = each(lambda array: cv2.resize(array, size, interpolation=cv2.INTER_AREA), arrays)
            timers["OpenCV INTER_LINEAR (no antialiasing)"] = each(lambda array: cv2.resize(array, size, interpolation=cv2.INTER_LINEAR), arrays)
        times = measure(timers, rounds)
        print(f"resize {name}, {SIZE[0]}x{SIZE[1]} to {size[0]}x{size[1]} RGB: ms a picture (min, median, max of {rounds} rounds)")
        print_times(times, "ms", lambda seconds: seconds / len(images) * 1e3)
        print_ratio("Pillow / darkroom", times["Pillow"], times["darkroom"], "wanted: at least 6, target 8" if name == "bilinear" else "no bound")
        for peer in list(times)[2:]:
            print_ratio(f"{peer.split()[0]} / darkroom, not equal", times[peer], times["darkroom"], "for orientation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    files = photographs()
    images = [Image.open(io.BytesIO(data)).convert("RGB") for data in files]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.jpg") for number in range(len(files))]
        for path, data in zip(paths, files):
            path.write_bytes(data)
        ours = TimedProgram(arguments.program, str(RESOLUTION), folder, *map(str, paths))
        ours.task("decode")()
        check(Path(folder), files, images)
        bench_transform(ours, files, arguments.rounds)
        bench_resize(ours, images, arguments.rounds)


if __name__ == "__main__":
    main()
