#!/usr/bin/env python3
"""Times darkroom's `bench` and diffusers on one GPU, in turn, in processes of their own: a training step, a guided sampling step, pictures
into latents.

usage: gpu_peers.py PROGRAM [--preset sd2-base|tiny] [--device cuda] [--only NAME]...
PROGRAM is `darkroom` or gpu_check.sh's `gpu_bench`; the Python needs torch and diffusers.
The peer's step is what a careful user writes: float32 weights under bfloat16 autocast, channels last, scaled dot-product attention, mean
squared error, clip_grad_norm_, fused AdamW, EMA through torch._foreach_lerp_; once eager and once under torch.compile. Its sampling step runs
bfloat16 weights on a pair (with and without the prompt) and does DDIM's arithmetic; compiled in the mode reduce-overhead, which records CUDA
graphs. Its encoder has bfloat16 weights and no decoder. Both sides draw random weights and random inputs of the same shapes and must have equally many parameters; that darkroom computes what
diffusers does is what `gpu_parity` checks.
Times are medians between events of the device; the peer's first steps, in which it compiles, do not count. Prints a Markdown table.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

SIZES = {  # NAME: (bench of gpu_bench, resolution, batch, repeats)
    "train-256": ("train-step", 256, 128, 20),
    "train-512": ("train-step", 512, 32, 20),
    "sample-512": ("sample", 512, 1, 40),
    "sample-512x16": ("sample", 512, 16, 20),
    "encode-256": ("encode", 256, 128, 20),
    "encode-512": ("encode", 512, 32, 20),
}
UNETS = {
    "sd2-base": dict(sample_size=64, cross_attention_dim=1024, attention_head_dim=[5, 10, 20, 20], use_linear_projection=True),
    "tiny": dict(
        sample_size=8, block_out_channels=[64, 96], down_block_types=["CrossAttnDownBlock2D"] * 2, up_block_types=["CrossAttnUpBlock2D"] * 2,
        layers_per_block=1, cross_attention_dim=128, attention_head_dim=[2, 3], norm_num_groups=16, use_linear_projection=True,
    ),
}  # fmt: skip

VAES = {  # The decoder, which is not asked for, is left away.
    "sd2-base": dict(block_out_channels=[128, 256, 512, 512], layers_per_block=2, down_block_types=["DownEncoderBlock2D"] * 4, latent_channels=4, norm_num_groups=32),
    "tiny": dict(block_out_channels=[32, 64, 64, 64], layers_per_block=1, down_block_types=["DownEncoderBlock2D"] * 4, latent_channels=4, norm_num_groups=16),
}  # fmt: skip

PEER = r"""
import json, sys, time
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel

kind, side, batch, repeats, how, device, config = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6], json.loads(sys.argv[7])
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
on_gpu = device != "cpu"
training = kind == "train-step"
with torch.device(device):
    unet = (AutoencoderKL if kind == "encode" else UNet2DConditionModel)(**config).to(memory_format=torch.channels_last)
rows = batch if training else 2 * batch
latents = torch.randn((batch, 4, side, side), device=device)
states = torch.randn((rows, 77, config.get("cross_attention_dim", 1)), device=device)
alphas = torch.cumprod(1 - torch.linspace(0.00085**0.5, 0.012**0.5, 1000, device=device) ** 2, 0)
if training:
    network = torch.compile(unet) if how == "compiled" else unet
    parameters = list(unet.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    average = [p.detach().clone() for p in parameters]

    def step():
        optimizer.zero_grad()
        timesteps = torch.randint(0, 1000, (batch,), device=device)
        noise = torch.randn_like(latents)
        a = alphas[timesteps].view(-1, 1, 1, 1)
        noisy = a.sqrt() * latents + (1 - a).sqrt() * noise
        with torch.autocast(device, torch.bfloat16):
            out = network(noisy.contiguous(memory_format=torch.channels_last), timesteps, states).sample
        torch.nn.functional.mse_loss(out.float(), noise).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, parameters, 1e-4)
elif kind == "encode":
    unet = unet.to(torch.bfloat16).requires_grad_(False)
    del unet.decoder, unet.post_quant_conv
    encode = torch.compile(unet.encode, mode="reduce-overhead") if how == "compiled" else unet.encode
    pictures = torch.randn((batch, 3, 8 * side, 8 * side), device=device).to(torch.bfloat16, memory_format=torch.channels_last)

    @torch.no_grad()
    def step():
        return encode(pictures).latent_dist.mean
else:
    unet = unet.to(torch.bfloat16).requires_grad_(False)
    network = torch.compile(unet, mode="reduce-overhead") if how == "compiled" else unet
    states = states.to(torch.bfloat16)
    timestep = torch.full((rows,), 500, device=device)

    @torch.no_grad()
    def step():
        pair = latents.to(torch.bfloat16).repeat(2, 1, 1, 1).contiguous(memory_format=torch.channels_last)
        without, with_prompt = network(pair, timestep, states).sample.float().chunk(2)
        noise = without + 7.5 * (with_prompt - without)
        a, b = alphas[500], alphas[480]
        start = (latents - (1 - a).sqrt() * noise) / a.sqrt()
        return b.sqrt() * start + (1 - b).sqrt() * noise

times = []
for i in range(repeats + 6):
    if on_gpu:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    else:
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
peak = torch.cuda.max_memory_allocated() if on_gpu else 0
print(json.dumps({"ms": times[6:], "parameters": sum(p.numel() for p in unet.parameters()), "peak": peak}))
"""


def run(command: list) -> dict | str:
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if done.returncode != 0:
        return " ".join((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1].split())[:160]
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--preset", choices=UNETS, default="sd2-base")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", action="append", choices=SIZES)
    options = parser.parse_args()
    print("| step | px | batch | who | ms median | GiB | darkroom is faster by |\n|---|---|---|---|---|---|---|")
    failed = False
    for name in options.only or SIZES:
        bench, resolution, batch, repeats = SIZES[name]
        if options.preset == "tiny":
            resolution, batch, repeats = 64, 4, 5
        is_whole = pathlib.Path(options.program).name == "darkroom"
        ours = [options.program, *(["bench", "--json"] if is_whole else []), bench, "--preset", options.preset, "--device", options.device, "--resolution", resolution]
        ours += ["--batch-size", batch, "--repeats", repeats, "--dtype", "bfloat16", "--threads", 8, *([] if is_whole else ["--graph", "on" if options.device != "cpu" else "off"])]
        theirs = [sys.executable, "-c", PEER, bench, resolution // 8, batch, repeats]
        rest = [options.device, json.dumps((VAES if bench == "encode" else UNETS)[options.preset])]
        figures = run(ours)
        if isinstance(figures, str):
            print(f"| {bench} | {resolution} | {batch} | darkroom | failed: {figures} | | |", flush=True)
            failed = True
            continue
        mine = figures["ms"]["median"]
        print(f"| {bench} | {resolution} | {batch} | darkroom | {mine:.4g} | {figures.get('peak_device_memory_bytes', 0) / 2**30:.3g} | |", flush=True)
        for how in ("eager", "compiled"):
            peer = run([*theirs, how, *rest])
            if not isinstance(peer, str) and bench != "encode" and peer["parameters"] != figures["parameters"]:
                peer = f"another network: {peer['parameters']} parameters, ours has {figures['parameters']}"
            if isinstance(peer, str):
                print(f"| {bench} | {resolution} | {batch} | diffusers, {how} | failed: {peer} | | |", flush=True)
                failed = True
                continue
            median = statistics.median(peer["ms"])
            print(f"| {bench} | {resolution} | {batch} | diffusers, {how} | {median:.4g} | {peer['peak'] / 2**30:.3g} | {median / mine:.2f} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
