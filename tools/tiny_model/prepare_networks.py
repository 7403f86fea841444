#!/usr/bin/env python3
"""Makes of a fresh model folder of the preset tiny what the U-Net of models/tiny is trained with. docs/corpus.md says why.

The text encoder stays as it was drawn but for its scales: token embeddings 50 times, position embeddings 10 times, and what attention and
MLP add a fifth. The U-Net's config gets 64 and 128 channels and 4 and 8 heads of 16 channels; its weights do not fit it then, so train it
with model.start=random.

usage: prepare_networks.py MODEL_FOLDER (float32)
"""

import json
import pathlib
import struct
import sys

import numpy as np

SCALES = {"token_embedding": 50.0, "position_embedding": 10.0, "out_proj.weight": 0.2, "fc2.weight": 0.2}
UNET = {"block_out_channels": [64, 128], "attention_head_dim": [4, 8]}  # diffusers' name for the number of heads


def scale_text_encoder(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    (header_bytes,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + header_bytes])
    for part, scale in SCALES.items():
        named = {name: tensor for name, tensor in header.items() if part in name}
        if not named:
            sys.exit(f"{path}: no tensor is named {part}")
        for name, tensor in named.items():
            if tensor["dtype"] != "F32":
                sys.exit(f"{path}: {name} must be F32, got: {tensor['dtype']}")
            begin, end = (8 + header_bytes + offset for offset in tensor["data_offsets"])
            values = np.frombuffer(content[begin:end], np.float32) * np.float32(scale)
            content[begin:end] = values.astype(np.float16).astype(np.float32).tobytes()  # As they will be shipped.
    path.write_bytes(content)


def main() -> None:
    (folder,) = map(pathlib.Path, sys.argv[1:])
    scale_text_encoder(folder / "text_encoder/model.safetensors")
    config = folder / "unet/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | UNET, indent=2) + "\n")


if __name__ == "__main__":
    main()
