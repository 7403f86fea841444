"""A model folder around a wider U-Net with random weights, and what a U-Net's call computes: both from the names and shapes of its weights."""
import json
import math
import pathlib
import re
import shutil
import struct
from collections.abc import Iterator

import numpy as np

UNET = "unet/diffusion_pytorch_model.safetensors"
NUM_TOKENS = 77


def shapes_of(model: pathlib.Path) -> dict[str, list[int]]:
    """The shapes of the U-Net's weights by name."""
    with open(model / UNET, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}


def num_parameters(shapes: dict[str, list[int]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def is_of_text(name: str) -> bool:
    return name.endswith(("attn2.to_k.weight", "attn2.to_v.weight"))


def widened_shape(name: str, shape: list[int], times: int) -> list[int]:
    """Every number of channels grows but those of latents, of texts and a kernel's sides."""
    keeps = {"conv_in.weight": 1, "conv_out.weight": 0, "conv_out.bias": 0}
    kept = 1 if is_of_text(name) else keeps.get(name)
    return [side if index > 1 or index == kept else side * times for index, side in enumerate(shape)]


def weight_of(name: str, shape: list[int], generator: np.random.Generator) -> np.ndarray:
    """As large as keeps what goes through the network at its size."""
    if len(shape) == 1:
        return np.full(shape, 1 if "norm" in name and name.endswith("weight") else 0, np.float16)
    return (generator.standard_normal(shape, np.float32) / math.sqrt(math.prod(shape[1:]))).astype(np.float16)


def write_weights(path: pathlib.Path, shapes: dict[str, list[int]], seed: int) -> None:
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = np.random.default_rng(seed)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            file.write(weight_of(name, shape, generator).tobytes())


def widen_model(model: pathlib.Path, out: pathlib.Path, times: int, seed: int = 0) -> None:
    """Writes a folder with the model's own texts, VAE and scheduler, and its U-Net `times` as wide, with heads of 64 channels."""
    shutil.copytree(model, out)
    shapes = {name: widened_shape(name, shape, times) for name, shape in shapes_of(model).items()}
    config = json.loads((model / "unet" / "config.json").read_text())
    config["block_out_channels"] = [times * channels for channels in config["block_out_channels"]]
    config["attention_head_dim"] = [max(channels // 64, 1) for channels in config["block_out_channels"]]  # In fact the heads' number.
    (out / "unet" / "config.json").write_text(json.dumps(config, indent=2))
    write_weights(out / UNET, shapes, seed)


def places(name: str, side: int, num_levels: int) -> int:
    """Of how many places a weight makes an output of, in a network whose latents have `side` x `side`."""
    if "time_emb" in name:
        return 1
    if is_of_text(name):
        return NUM_TOKENS
    found = re.match(r"(down|up)_blocks\.(\d+)\.", name)
    level = int(found[2]) if found else num_levels - 1 if name.startswith("mid_block") else 0
    if found and found[1] == "up":
        level = num_levels - 1 - level - ("upsamplers" in name)
    return (side // 2 ** (level + ("downsamplers" in name))) ** 2


def products(shapes: dict[str, list[int]], side: int) -> Iterator[int]:
    num_levels = 1 + max(int(found[1]) for name in shapes if (found := re.match(r"down_blocks\.(\d+)\.", name)))
    for name, shape in shapes.items():
        of_here = places(name, side, num_levels)
        if len(shape) > 1:
            yield of_here * math.prod(shape)
        if found := re.search(r"attn([12])\.to_q\.weight$", name):  # Scores, and the sum that they weigh.
            yield 2 * of_here * shape[0] * (of_here if found[1] == "1" else NUM_TOKENS)


def forward_flops(shapes: dict[str, list[int]], side: int) -> int:
    """Of one row of a call: matrix products, convolutions and attentions; a multiply-add is two."""
    return 2 * sum(products(shapes, side))
