"""safetensors files made by hand: small original checkpoints of Stable Diffusion 1 and 2, models of any size that take no disk."""

import json
import math
import pathlib
import random
import struct

DTYPE_BYTES = {"F16": 2, "F32": 4}


def write_header(file, tensors: dict[str, list[int]], dtype: str) -> int:
    """Writes where each tensor lies; returns how many bytes of tensors have to follow."""
    header, end = {}, 0
    for name, shape in tensors.items():
        begin, end = end, end + DTYPE_BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    return end


def write_random(path: str, tensors: dict[str, list[int]], seed: int) -> None:
    """Weights in float16, each a finite number below 1."""
    with open(path, "wb") as file:
        values = bytearray(random.Random(seed).randbytes(write_header(file, tensors, "F16")))
        values[1::2] = bytes(values[1::2]).translate(bytes(byte & 0xBB for byte in range(256)))
        file.write(values)


def write_zeros(path: str, tensors: dict[str, list[int]]) -> None:
    """Zeros in float32, as a hole in the file."""
    with open(path, "wb") as file:
        num_bytes = write_header(file, tensors, "F32")
        file.truncate(file.tell() + num_bytes)


def set_to_nan(path: pathlib.Path, tensor: str) -> None:
    """Makes every value of a tensor of a file, of float16 or float32, no number."""
    data = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:begin])[tensor]
    first, last = (begin + offset for offset in entry["data_offsets"])
    data[first:last] = struct.pack({"F16": "<e", "F32": "<f"}[entry["dtype"]], math.nan) * math.prod(entry["shape"])
    path.write_bytes(data)


def enlarge_vocabulary(model: pathlib.Path, num_ids: int) -> None:
    """Gives a model folder's text encoder that many ids and zeros for weights."""
    folder = model / "text_encoder"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": num_ids}))
    weights = folder / "model.safetensors"
    with open(weights, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    shapes["text_model.embeddings.token_embedding.weight"][0] = num_ids
    write_zeros(str(weights), shapes)


class Shapes(dict):
    """Tensors of the layers that the original checkpoints are made of, by name."""

    def layer(self, name: str, *shape: int) -> None:
        self[name + ".weight"] = list(shape)
        self[name + ".bias"] = [shape[0]]

    def norm(self, name: str, width: int) -> None:
        self.layer(name, width)

    def conv(self, name: str, out: int, into: int, side: int = 3) -> None:
        self.layer(name, out, into, side, side)

    def unet_resnet(self, name: str, into: int, out: int, time: int) -> None:
        self.norm(name + ".in_layers.0", into)
        self.conv(name + ".in_layers.2", out, into)
        self.layer(name + ".emb_layers.1", out, time)
        self.norm(name + ".out_layers.0", out)
        self.conv(name + ".out_layers.3", out, out)
        if into != out:
            self.conv(name + ".skip_connection", out, into, 1)

    def transformer(self, name: str, width: int, text_width: int, is_linear: bool) -> None:
        self.norm(name + ".norm", width)
        for projection in ("proj_in", "proj_out"):
            self.layer(f"{name}.{projection}", width, width) if is_linear else self.conv(f"{name}.{projection}", width, width, 1)
        block = name + ".transformer_blocks.0"
        for attention, states in (("attn1", width), ("attn2", text_width)):
            self[f"{block}.{attention}.to_q.weight"] = [width, width]
            self[f"{block}.{attention}.to_k.weight"] = [width, states]
            self[f"{block}.{attention}.to_v.weight"] = [width, states]
            self.layer(f"{block}.{attention}.to_out.0", width, width)
        for norm in ("norm1", "norm2", "norm3"):
            self.norm(f"{block}.{norm}", width)
        self.layer(block + ".ff.net.0.proj", 8 * width, width)
        self.layer(block + ".ff.net.2", width, 4 * width)

    def vae_resnet(self, name: str, into: int, out: int) -> None:
        self.norm(name + ".norm1", into)
        self.conv(name + ".conv1", out, into)
        self.norm(name + ".norm2", out)
        self.conv(name + ".conv2", out, out)
        if into != out:
            self.conv(name + ".nin_shortcut", out, into, 1)

    def vae_middle(self, name: str, width: int) -> None:
        self.vae_resnet(name + ".block_1", width, width)
        self.norm(name + ".attn_1.norm", width)
        for part in ("q", "k", "v", "proj_out"):
            self.conv(f"{name}.attn_1.{part}", width, width, 1)
        self.vae_resnet(name + ".block_2", width, width)


def unet_shapes(text_width: int, is_linear: bool) -> Shapes:
    """Two levels of 64 and 128 channels with one resnet each, attention in the first."""
    shapes, time = Shapes(), 256
    shapes.layer("time_embed.0", time, 64)
    shapes.layer("time_embed.2", time, time)
    shapes.conv("input_blocks.0.0", 64, 4)
    shapes.unet_resnet("input_blocks.1.0", 64, 64, time)
    shapes.transformer("input_blocks.1.1", 64, text_width, is_linear)
    shapes.conv("input_blocks.2.0.op", 64, 64)
    shapes.unet_resnet("input_blocks.3.0", 64, 128, time)
    shapes.unet_resnet("middle_block.0", 128, 128, time)
    shapes.transformer("middle_block.1", 128, text_width, is_linear)
    shapes.unet_resnet("middle_block.2", 128, 128, time)
    shapes.unet_resnet("output_blocks.0.0", 128 + 128, 128, time)
    shapes.unet_resnet("output_blocks.1.0", 128 + 64, 128, time)
    shapes.conv("output_blocks.1.1.conv", 128, 128)
    for number, into in ((2, 128 + 64), (3, 64 + 64)):
        shapes.unet_resnet(f"output_blocks.{number}.0", into, 64, time)
        shapes.transformer(f"output_blocks.{number}.1", 64, text_width, is_linear)
    shapes.norm("out.0", 64)
    shapes.conv("out.2", 4, 64)
    return shapes


def vae_shapes() -> Shapes:
    """Two levels of 32 and 64 channels."""
    shapes = Shapes()
    shapes.conv("encoder.conv_in", 32, 3)
    shapes.vae_resnet("encoder.down.0.block.0", 32, 32)
    shapes.conv("encoder.down.0.downsample.conv", 32, 32)
    shapes.vae_resnet("encoder.down.1.block.0", 32, 64)
    shapes.vae_middle("encoder.mid", 64)
    shapes.norm("encoder.norm_out", 64)
    shapes.conv("encoder.conv_out", 8, 64)
    shapes.conv("decoder.conv_in", 64, 4)
    shapes.vae_middle("decoder.mid", 64)
    for block in (0, 1):
        shapes.vae_resnet(f"decoder.up.1.block.{block}", 64, 64)
        shapes.vae_resnet(f"decoder.up.0.block.{block}", 32 if block else 64, 32)
    shapes.conv("decoder.up.1.upsample.conv", 64, 64)
    shapes.norm("decoder.norm_out", 32)
    shapes.conv("decoder.conv_out", 3, 32)
    shapes.conv("quant_conv", 8, 8, 1)
    shapes.conv("post_quant_conv", 4, 4, 1)
    return shapes


def openai_text_shapes(width: int, num_layers: int) -> Shapes:
    shapes = Shapes({"embeddings.token_embedding.weight": [49408, width], "embeddings.position_embedding.weight": [77, width]})
    for layer in (f"encoder.layers.{number}." for number in range(num_layers)):
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes.layer(f"{layer}self_attn.{part}", width, width)
        shapes.layer(layer + "mlp.fc1", 4 * width, width)
        shapes.layer(layer + "mlp.fc2", width, 4 * width)
        shapes.norm(layer + "layer_norm1", width)
        shapes.norm(layer + "layer_norm2", width)
    shapes.norm("final_layer_norm", width)
    return shapes


def open_clip_text_shapes(width: int, num_layers: int) -> Shapes:
    shapes = Shapes({"token_embedding.weight": [49408, width], "positional_embedding": [77, width]})
    for layer in (f"transformer.resblocks.{number}." for number in range(num_layers)):
        shapes[layer + "attn.in_proj_weight"] = [3 * width, width]
        shapes[layer + "attn.in_proj_bias"] = [3 * width]
        shapes.layer(layer + "attn.out_proj", width, width)
        shapes.layer(layer + "mlp.c_fc", 4 * width, width)
        shapes.layer(layer + "mlp.c_proj", width, 4 * width)
        shapes.norm(layer + "ln_1", width)
        shapes.norm(layer + "ln_2", width)
    shapes.norm("ln_final", width)
    return shapes


def original_checkpoint(version: int) -> tuple[dict[str, list[int]], dict[str, int]]:
    """The tensors of a small checkpoint in the layout of Stable Diffusion 1 or 2, and how many parameters each network has. Files of
    version 2 hold a layer of the text encoder that is never run, a projection and a temperature beside it."""
    width, num_layers = 64, 2
    text = openai_text_shapes(width, num_layers) if version == 1 else open_clip_text_shapes(width, num_layers)
    parts = {"unet": ("model.diffusion_model.", unet_shapes(width, is_linear=version == 2)), "vae": ("first_stage_model.", vae_shapes()),
             "text_encoder": ("cond_stage_model.transformer.text_model." if version == 1 else "cond_stage_model.model.", text)}
    tensors = {prefix + name: shape for prefix, shapes in parts.values() for name, shape in shapes.items()}
    if version == 2:
        unused = {name: shape for name, shape in open_clip_text_shapes(width, num_layers + 1).items() if name not in text}
        unused |= {"text_projection": [width, width], "logit_scale": []}
        tensors.update({parts["text_encoder"][0] + name: shape for name, shape in unused.items()})
    return tensors, {part: sum(map(math.prod, shapes.values())) for part, (_, shapes) in parts.items()}
