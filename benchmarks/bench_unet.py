#!/usr/bin/env python3
"""Times `darkroom bench forward` and `train-step` against diffusers' U-Net in PyTorch eager, in turn, one thread each.

usage: bench_unet.py PROGRAM WORK_FOLDER [PRESET]     (run it pinned to one core, with the packages of requirements/parity.txt)
Both run in processes of their own with the same weights and shapes; first the outputs of the forward pass, packed
as `bench forward` runs it and plain as `train-step` does, must agree to 1e-5 of their largest value. Prints min, median and max of both,
and of ours / eager round by round. The step's update is not compared here but in tools/parity/training_step_parity.py.
The eager step is what a careful user writes: mean squared error, clip_grad_norm_, fused AdamW, EMA
through torch._foreach_lerp_.
"""

import json
import pathlib
import statistics
import subprocess
import sys

ROUNDS = 5
REPEATS = 8
BATCH_SIZE = 16
MOST_DIFFERENCE = 1e-5
AGREED = {"forward": "the outputs agree", "step": "the outputs of its forward pass agree, its update is `make parity`'s to check"}

PEER = r"""
import json, sys, time
import torch
from diffusers import UNet2DConditionModel
from safetensors.torch import load_file

kind, folder, inputs, repeats = sys.argv[1], sys.argv[2], load_file(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
unet = UNet2DConditionModel.from_pretrained(folder)
sample, timestep, states = inputs["sample"], inputs["timestep"], inputs["encoder_hidden_states"]
noise = torch.randn_like(sample)
parameters = list(unet.parameters())
optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
average = [p.detach().clone() for p in parameters]

def forward():
    with torch.no_grad():
        unet(sample, timestep, states)

def step():
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(unet(sample, timestep, states).sample, noise).backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(average, parameters, 1e-4)

run = forward if kind == "forward" else step
times = []
for i in range(repeats + 2):
    start = time.perf_counter()
    run()
    times.append(1e3 * (time.perf_counter() - start))
times = sorted(times[2:])
print(json.dumps(times[len(times) // 2] if len(times) % 2 else 0.5 * (times[len(times) // 2 - 1] + times[len(times) // 2])))
"""


def output_of(command: list) -> str:
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def write_inputs(folder: pathlib.Path, path: pathlib.Path) -> None:
    import torch
    from safetensors.torch import save_file

    config = json.loads((folder / "config.json").read_text())
    generator = torch.Generator().manual_seed(1)
    side = config["sample_size"]
    save_file(
        {
            "sample": torch.randn((BATCH_SIZE, config["in_channels"], side, side), generator=generator),
            "timestep": torch.arange(BATCH_SIZE, dtype=torch.int64) * 37 % 1000,
            "encoder_hidden_states": torch.randn((BATCH_SIZE, 77, config["cross_attention_dim"]), generator=generator),
        },
        path,
    )


def check_same_answer(program: str, model: pathlib.Path, inputs: pathlib.Path) -> None:
    import torch
    from diffusers import UNet2DConditionModel
    from safetensors.torch import load_file

    given = load_file(inputs)
    with torch.no_grad():
        want = UNet2DConditionModel.from_pretrained(model / "unet")(given["sample"], given["timestep"], given["encoder_hidden_states"]).sample
    for flags in (["--packed"], []):
        result = inputs.with_name("ours.safetensors")
        output_of([program, "models", "forward", model, "--component", "unet", "--inputs", inputs, "--output", result, *flags])
        difference = ((load_file(result)["output"] - want).abs().max() / want.abs().max()).item()
        if not difference <= MOST_DIFFERENCE:
            sys.exit(f"bench: the forward passes {flags} differ by {difference:.2e} of the largest value")


def spread(values: list[float]) -> str:
    return f"{min(values):.3g} / {statistics.median(values):.3g} / {max(values):.3g}"


def main() -> None:
    program, work = sys.argv[1], pathlib.Path(sys.argv[2])
    preset = sys.argv[3] if len(sys.argv) > 3 else "tiny"
    model, inputs = work / f"unet-{preset}", work / "inputs.safetensors"
    output_of([program, "models", "init", "--preset", preset, model])
    write_inputs(model / "unet", inputs)
    check_same_answer(program, model, inputs)
    for kind, bench in (("forward", "forward"), ("step", "train-step")):
        ours, eager = [], []
        for _ in range(ROUNDS):
            figures = json.loads(output_of([program, "bench", bench, "--json", "--preset", preset, "--batch-size", BATCH_SIZE, "--repeats", REPEATS]))
            ours.append(figures["ms"]["median"])
            eager.append(json.loads(output_of([sys.executable, "-c", PEER, kind, model / "unet", inputs, REPEATS])))
        print(f"U-Net {bench}, preset {preset}, batch {BATCH_SIZE}, 1 thread (min / median / max of {ROUNDS} rounds); {AGREED[kind]}")
        print(f"  darkroom          {spread(ours)} ms")
        print(f"  PyTorch eager     {spread(eager)} ms")
        print(f"  darkroom / eager  {spread([a / b for a, b in zip(ours, eager)])}")


if __name__ == "__main__":
    main()
