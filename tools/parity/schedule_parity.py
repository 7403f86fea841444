#!/usr/bin/env python3
"""Runs every sampler and diffusers' scheduler of the same config over the same random network and compares all latents.

  schedule_parity.py [--program build/release/sampler_runs] [--seed 0] [--sampler NAME ...]

Every sampler x prediction type x timestep spacing x number of steps that diffusers takes (also Karras sigmas, zero terminal SNR,
eta, final sigma_min, linear betas, starts in the middle for image to image): the timesteps must be equal, and each latent on the
way within 1e-5 of the trajectory's largest value. The program and this script share weights, and noise through torch's CPU
generator, one a picture. Cases that diffusers refuses or that end in infinities are counted apart. Prints a line a sampler;
exits 1 at a difference.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import diffusers
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "goldens"))
from scheduler_reference import CLASSES, SD2  # noqa: E402

BOUND = 1e-5
# 4 ulp of a float32 logarithm up to 8.4 (zero terminal SNR), where a timestep is at least 0.003 of a logarithm.
FRACTION_BOUND = 4 * 2**-23 * 8.4 / 0.003
STEPS = (1, 2, 4, 7, 16, 20, 28, 50, 61)
PREDICTIONS = ("epsilon", "v_prediction", "sample")
SPACINGS = ("leading", "linspace", "trailing")
SEEDS = (7, 11)
SHAPE = (len(SEEDS), 4, 8, 8)
ZERO_SNR = {"rescale_betas_zero_snr": True}
LINEAR = {"beta_schedule": "linear", "beta_start": 0.0001, "beta_end": 0.02}
KARRAS = {"use_karras_sigmas": True}
SIGMA_MIN = {"final_sigmas_type": "sigma_min"}
# What a sampler reads beyond prediction type, spacing and steps: each set is one more round.
VARIANTS = {
    "ddim": [{}, ZERO_SNR, LINEAR, {"clip_sample": True}, {"set_alpha_to_one": True}, {"eta": 0.6}, ZERO_SNR | {"eta": 1.0}],
    "pndm": [{}, LINEAR, {"skip_prk_steps": False}, {"set_alpha_to_one": True}],
    "euler": [{}, ZERO_SNR, LINEAR, KARRAS, SIGMA_MIN, KARRAS | SIGMA_MIN, KARRAS | ZERO_SNR],
    "euler_a": [{}, ZERO_SNR, LINEAR],
    "dpmpp_2m": [{}, ZERO_SNR, LINEAR, SIGMA_MIN, SIGMA_MIN | {"lower_order_final": False}, SIGMA_MIN | {"euler_at_final": True}],
    "dpmpp_2m_karras": [{}, ZERO_SNR, LINEAR, SIGMA_MIN],
    "unipc": [{}, ZERO_SNR, LINEAR, KARRAS, KARRAS | ZERO_SNR, SIGMA_MIN, KARRAS | SIGMA_MIN, SIGMA_MIN | {"lower_order_final": False}],
    "lcm": [{}, ZERO_SNR, LINEAR, {"clip_sample": True}, {"original_inference_steps": 100, "timestep_scaling": 5.0}],
}


class Network:
    """The same random network that tests/parity/sampler_runs.cpp computes."""

    def __init__(self, seed: int):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
        hidden, channels = 16, SHAPE[1]
        self.tensors = {
            "in.weight": draw(hidden, channels, 3, 3) / (9 * channels) ** 0.5,
            "out.weight": draw(channels, hidden, 3, 3) / (9 * hidden) ** 0.5 * 1.5,
            "frequencies": torch.exp(draw(hidden) - 4),
            "clean": draw(*SHAPE) * 0.8,
        }

    def predict(self, noisy: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        phase = torch.sin(timestep.to(torch.float32) * self.tensors["frequencies"]).view(1, -1, 1, 1)
        hidden = torch.tanh(torch.conv2d(noisy, self.tensors["in.weight"], padding=1) + phase)
        return torch.conv2d(hidden, self.tensors["out.weight"], padding=1)


def all_cases() -> list[dict]:
    cases = []
    for sampler, variants in VARIANTS.items():
        for changes in variants:
            for prediction in PREDICTIONS:
                for spacing in SPACINGS:
                    config = SD2 | {key: value for key, value in changes.items() if key != "eta"}
                    config |= {"prediction_type": prediction, "timestep_spacing": spacing}
                    config["use_karras_sigmas"] = sampler == "dpmpp_2m_karras" or config.get("use_karras_sigmas", False)
                    case = {"sampler": sampler, "config": config, "eta": changes.get("eta", 0.0), "seeds": SEEDS}
                    cases += [case | {"num_steps": steps} for steps in STEPS]
                    if not changes or changes == KARRAS:
                        cases += [case | {"num_steps": steps, "first_call": first} for steps, first in ((20, 5), (20, 19), (7, 3))]
    return cases


def reference_run(case: dict, network: Network) -> tuple[list, torch.Tensor]:
    """Timesteps and latents (calls + 1, N, C, h, w); an exception where diffusers takes no such case."""
    scheduler = CLASSES[case["sampler"]].from_config(case["config"])
    scheduler.set_timesteps(case["num_steps"])
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    latents = torch.cat([torch.randn((1, *SHAPE[1:]), generator=generator) for generator in generators])
    first = case.get("first_call", 0)
    timesteps = scheduler.timesteps[first:]
    if "first_call" in case:
        if hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(first)
        latents = scheduler.add_noise(network.tensors["clean"], latents, timesteps[:1].repeat(SHAPE[0]))
    else:
        latents = latents * scheduler.init_noise_sigma
    extra = {"generator": generators} if case["sampler"] in ("ddim", "euler_a", "lcm") else {}
    if case["sampler"] == "ddim":
        extra["eta"] = case["eta"]
    path = [latents]
    for timestep in timesteps:
        output = network.predict(scheduler.scale_model_input(latents, timestep), timestep)
        latents = scheduler.step(output, timestep, latents, **extra).prev_sample
        path.append(latents)
    return scheduler.timesteps.double().tolist(), torch.stack(path)


def same_timesteps(ours: list, timesteps: list) -> bool:
    """Whole ones are equal; fractions come from NumPy's float32 logarithms, whose last bits depend on the processor."""
    return len(ours) == len(timesteps) and all(abs(a - b) <= (0 if b.is_integer() else FRACTION_BOUND)
                                               for a, b in zip(ours, timesteps, strict=True))


def compare(case: dict, ours: dict, prefix: str, network: Network) -> tuple[str, float]:
    """What came of a case (compared, refused by diffusers, not finite, a difference), and how far apart the latents are."""
    try:
        timesteps, want = reference_run(case, network)
    except (ValueError, IndexError, NotImplementedError, AssertionError) as error:
        return f"not taken by diffusers ({type(error).__name__})", 0.0
    if not want.isfinite().all():
        return "not finite in diffusers", 0.0
    if f"{prefix}refused" in ours:
        return "REFUSED", 0.0
    got = ours[f"{prefix}latents"]
    if got.shape != want.shape or not same_timesteps(ours[f"{prefix}timesteps"].tolist(), timesteps):
        return "OTHER TIMESTEPS", 0.0
    difference = float((got - want).abs().max() / want.abs().max())
    return ("compared" if difference <= BOUND else "DIFFERENT"), difference


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=Path, default=Path("build/release/sampler_runs"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sampler", choices=CLASSES, nargs="*", default=list(CLASSES))
    flags = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    warnings.filterwarnings("ignore")
    diffusers.utils.logging.set_verbosity_error()
    network, cases = Network(flags.seed), [case for case in all_cases() if case["sampler"] in flags.sampler]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "cases.json").write_text(json.dumps(cases))
        save_file(network.tensors, folder / "network.safetensors")
        subprocess.run([flags.program, folder / "cases.json", folder / "network.safetensors", folder / "ours.safetensors"],
                       check=True, stderr=subprocess.DEVNULL)
        ours = load_file(folder / "ours.safetensors")
    outcomes: dict = defaultdict(Counter)
    worst: dict = defaultdict(float)
    failed = 0
    for number, case in enumerate(cases):
        outcome, difference = compare(case, ours, f"case.{number}.", network)
        outcomes[case["sampler"]][outcome] += 1
        worst[case["sampler"]] = max(worst[case["sampler"]], difference)
        if outcome.isupper():
            failed += 1
            changes = {key: value for key, value in case["config"].items() if SD2.get(key, None) != value}
            print(f"  {outcome}: {case['sampler']}, {case['num_steps']} steps, from call {case.get('first_call', 0)}, "
                  f"eta {case['eta']}, {changes}: {difference:.1e}")
    for sampler, counts in outcomes.items():
        print(f"  {sampler}: worst {worst[sampler]:.1e} of the largest value; "
              + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    total = sum(counts["compared"] for counts in outcomes.values())
    print(f"schedule parity: {'ok' if failed == 0 else 'FAILED'}, {total} trajectories within {BOUND:g}, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
