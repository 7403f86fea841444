#!/usr/bin/env python3
"""Times the U-Net as `sample` runs it on the CPU (weights packed once) against itself unpacked, PyTorch eager and OpenVINO, in turn.

usage: bench_packed_unet.py PROGRAM WORK_FOLDER [--preset P] [--dtypes T...] [--threads N] [--rounds N] [--calls N] [--cpu-seconds]
Needs the packages of requirements/parity.txt; OpenVINO comes from a folder on PYTHONPATH (`pip install --target FOLDER --no-deps
openvino==2026.4.1 openvino-telemetry==2025.2.0`); without it the output says that this peer is missing.
One call is one guided picture: batch 2, latents of the preset's size, 77 tokens, random weights. First the answers are compared: in
float32 ours, packed and not, must be within 1e-5 of the largest value of diffusers', in bfloat16 the peers within 6.25 % in norm, and
`bench forward` compares packed with unpacked itself in either type; what OpenVINO gives is printed. bfloat16 is left out on a processor
without AVX512-BF16. Then every round asks each side for one call after another, ours in a fresh process, whose warm-up does not count;
wall-clock times, or with --cpu-seconds those of all threads of the process, which other programs on the machine change less.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from bench_unet import MOST_DIFFERENCE, output_of

MOST_DIFFERENCE_IN_NORM = 0.0625  # Of bfloat16, as gpu_parity bounds it.

PEER = r"""
import os, sys, time
import torch
from safetensors.torch import load_file, save_file

kind, folder, inputs, result, threads, dtype, clock = sys.argv[1:8]
given = load_file(inputs)
arguments = [given["sample"], given["timestep"], given["encoder_hidden_states"]]
seconds = time.process_time if clock == "cpu" else time.perf_counter

def open_eager():
    from diffusers import UNet2DConditionModel
    torch.set_num_threads(int(threads))
    unet = UNet2DConditionModel.from_pretrained(folder).to(getattr(torch, dtype)).eval()
    typed = [tensor.to(unet.dtype) if tensor.is_floating_point() else tensor for tensor in arguments]
    def run():
        with torch.inference_mode():
            return unet(*typed).sample.float()
    return run

def convert():
    import openvino
    from diffusers import UNet2DConditionModel
    class Prediction(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.unet = UNet2DConditionModel.from_pretrained(folder).eval()
        def forward(self, sample, timestep, states):
            return self.unet(sample, timestep, states, return_dict=False)[0]
    with torch.no_grad():
        model = openvino.convert_model(Prediction(), example_input=tuple(arguments), input=[tuple(x.shape) for x in arguments])
    openvino.save_model(model, result, compress_to_fp16=False)

def open_openvino():
    import openvino
    path = os.path.join(os.path.dirname(result), "openvino.xml")
    settings = {"INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[dtype], "INFERENCE_NUM_THREADS": int(threads)}
    compiled = openvino.Core().compile_model(path, "CPU", {**settings, "NUM_STREAMS": 1})
    arrays = [x.numpy() for x in arguments]
    return lambda: torch.from_numpy(compiled(arrays)[0].copy())

if kind == "convert":
    convert()
    sys.exit()
run = open_eager() if kind == "eager" else open_openvino()
save_file({"output": run()}, result)
print("ready", flush=True)
for line in sys.stdin:
    start = seconds()
    for _ in range(int(line)):
        run()
    print((seconds() - start) / int(line), flush=True)
"""


class Peer:
    def __init__(self, kind: str, options: argparse.Namespace, dtype: str, model: pathlib.Path, inputs: pathlib.Path):
        self.name, self.calls, self.result = kind, options.calls, options.work / f"{kind}-{dtype}.safetensors"
        clock = "cpu" if options.cpu_seconds else "wall"
        command = [sys.executable, "-c", PEER, kind, model / "unet", inputs, self.result, options.threads, dtype, clock]
        self.process = subprocess.Popen([str(x) for x in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the peer {self.name} ended; its words are above")
        return line

    def seconds(self) -> float:
        self.process.stdin.write(f"{self.calls}\n")
        self.process.stdin.flush()
        return float(self.answer())

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Ours:
    def __init__(self, name: str, options: argparse.Namespace, dtype: str, flags: list[str]):
        command = [options.program, "bench", "forward", "--json", "--preset", options.preset, "--batch-size", 2, "--dtype", dtype, *flags]
        self.name, self.calls, self.cpu_seconds = name, options.calls, options.cpu_seconds
        self.is_packed = "--no-packing" not in flags
        self.command = command + ["--threads", options.threads, "--repeats"]

    def run(self, repeats: int) -> tuple[float, float]:
        before = os.times()
        figures = json.loads(output_of(self.command + [repeats]))
        after = os.times()
        if figures["packed"] != self.is_packed:
            sys.exit(f"bench: {self.name} did not run as asked: packed is {figures['packed']}")
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return figures["ms"]["median"] / 1e3, used

    def seconds(self) -> float:
        # The process also draws weights and warms up: CPU seconds are the difference between two numbers of repeats.
        if not self.cpu_seconds:
            return self.run(self.calls)[0]
        return (self.run(1 + self.calls)[1] - self.run(1)[1]) / self.calls


def write_inputs(unet: pathlib.Path, path: pathlib.Path) -> None:
    import torch
    from safetensors.torch import save_file

    config = json.loads((unet / "config.json").read_text())
    generator = torch.Generator().manual_seed(1)
    side = config["sample_size"]
    tensors = {
        "sample": torch.randn((2, config["in_channels"], side, side), generator=generator),
        "timestep": torch.tensor([500, 500]),
        "encoder_hidden_states": torch.randn((2, 77, config["cross_attention_dim"]), generator=generator),
    }
    save_file(tensors, path)


def differences(path: pathlib.Path, reference: pathlib.Path) -> tuple[float, float]:
    """Of the largest value, and in norm."""
    from safetensors.torch import load_file

    want, got = load_file(reference)["output"], load_file(path)["output"]
    return ((got - want).abs().max() / want.abs().max()).item(), ((got - want).norm() / want.norm()).item()


def check_ours(options: argparse.Namespace, model: pathlib.Path, inputs: pathlib.Path, reference: pathlib.Path) -> None:
    for name, flags in (("packed", ["--packed"]), ("unpacked", [])):
        result = options.work / f"{name}.safetensors"
        command = [options.program, "models", "forward", model, "--component", "unet", "--inputs", inputs, "--output", result]
        output_of(command + ["--threads", options.threads, *flags])
        share, _ = differences(result, reference)
        if not share <= MOST_DIFFERENCE:
            sys.exit(f"bench: darkroom {name} differs from diffusers by {share:.2e} of the largest value")
        print(f"  darkroom {name} differs from diffusers in float32 by {share:.1e} of the largest value")


def check_peers(peers: list[Peer], dtype: str, reference: pathlib.Path) -> None:
    for peer in peers:
        if peer.result == reference:
            continue
        share, in_norm = differences(peer.result, reference)
        print(f"  {peer.name} in {dtype} differs from diffusers in float32 by {share:.1e} of the largest value, {in_norm:.1e} in norm")
        if not in_norm <= MOST_DIFFERENCE_IN_NORM:
            sys.exit(f"bench: {peer.name} computes something else")


def spread(values: list[float]) -> str:
    return f"{min(values):6.3f} {statistics.median(values):6.3f} {max(values):6.3f}"


def compare(options: argparse.Namespace, dtype: str, kinds: list[str], model: pathlib.Path, inputs: pathlib.Path) -> None:
    reference = options.work / "eager-float32.safetensors"
    peers = [Peer(kind, options, dtype, model, inputs) for kind in kinds]
    if dtype == "float32":
        check_ours(options, model, inputs, reference)
    if reference.exists():
        check_peers(peers, dtype, reference)
    sides = [Ours("packed", options, dtype, []), Ours("unpacked", options, dtype, ["--no-packing"]), *peers]
    times = {side.name: [] for side in sides}
    for _ in range(options.rounds):
        for side in sides:
            times[side.name].append(side.seconds())
    for peer in peers:
        peer.end()
    clock = "CPU seconds" if options.cpu_seconds else "seconds"
    load = "load at the end " + " ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"U-Net {options.preset}, batch 2, {dtype}, {options.threads} threads, {clock} a call: min / median / max of {options.rounds}; {load}")
    for name, values in times.items():
        ratios = [other / packed for other, packed in zip(values, times["packed"])]
        print(f"  {name:10} {spread(values)}   its time / packed {spread(ratios)}", flush=True)


def has_bfloat16() -> bool:
    return "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--preset", default="sd2-base")
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=2, help="of each side in one round")
    parser.add_argument("--cpu-seconds", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    model, inputs = options.work / f"packed-{options.preset}", options.work / "packed-inputs.safetensors"
    if not model.exists():
        output_of([options.program, "models", "init", "--preset", options.preset, model])
    write_inputs(model / "unet", inputs)
    converted = options.work / "openvino.xml"
    kinds = ["eager"]
    if subprocess.run([sys.executable, "-c", "import openvino"], capture_output=True).returncode == 0:
        kinds.append("openvino")
        if not converted.exists():  # In a process of its own, which takes several times the weights' size of memory.
            output_of([sys.executable, "-c", PEER, "convert", model / "unet", inputs, converted, options.threads, "float32", "wall"])
    else:
        print("openvino is not on PYTHONPATH: PyTorch eager is the only peer")
    for dtype in options.dtypes:
        if dtype == "bfloat16" and not has_bfloat16():
            print("this processor has no AVX512-BF16: bfloat16 is left out")
            continue
        compare(options, dtype, kinds, model, inputs)


if __name__ == "__main__":
    main()
