"""Writes tests/golden/diffusion/diffusers.json: schedules, timesteps and whole sampler runs of diffusers.

Run in an environment that has diffusers 0.42.1 and torch 2.11 (docs/diffusion.md says how):

    python tools/goldens/make_diffusion_goldens.py tests/golden/diffusion/diffusers.json

The network of every run is the one of diffusers' own scheduler tests: model(x, t) = x * t / (t + 1), started from
arange(768) / 768 viewed as (3, 8, 8, 4) and moved to (4, 3, 8, 8). make_spread.py adds how far the reference strays from these values on
other processors.
"""

import json
import sys

import diffusers
import numpy
import torch
from scheduler_reference import CLASSES, SD2

NOISY = ("ddim", "euler_a", "lcm")


def start_sample() -> torch.Tensor:
    return (torch.arange(768).reshape(3, 8, 8, 4) / 768).permute(3, 0, 1, 2).contiguous()


def some_values(tensor: torch.Tensor) -> list:
    """Every 97th value, exactly."""
    return tensor.flatten()[::97].double().tolist()


def run(name: str, config: dict, num_steps: int, eta: float = 0.0) -> dict:
    config = config | {"use_karras_sigmas": True} if name == "dpmpp_2m_karras" else config
    scheduler = CLASSES[name].from_config(config)
    scheduler.set_timesteps(num_steps)
    extra = {"generator": torch.Generator("cpu").manual_seed(0)} if name in NOISY else {}
    if name == "ddim":
        extra["eta"] = eta
    sample = start_sample() * scheduler.init_noise_sigma
    largest = float(sample.abs().max())
    for timestep in scheduler.timesteps:
        output = scheduler.scale_model_input(sample, timestep) * timestep / (timestep + 1)
        sample = scheduler.step(output, timestep, sample, **extra).prev_sample
        largest = max(largest, float(sample.abs().max()))
    return {
        "sampler": name,
        "config": config,
        "num_steps": num_steps,
        "eta": eta,
        "timesteps": scheduler.timesteps.tolist(),
        "largest": largest,
        "sum_abs": float(sample.double().abs().sum()),
        "values": some_values(sample),
    }


def sigma_runs(config: dict) -> list:
    """One round of the samplers that came after ddim and pndm."""
    v = config["prediction_type"] == "v_prediction"
    karras = config | {"use_karras_sigmas": True}
    runs = []
    for name in ("euler", "euler_a", "dpmpp_2m", "dpmpp_2m_karras", "unipc", "lcm"):
        runs += [run(name, config, num_steps) for num_steps in (1, 2, 7, 20)]
    runs += [run(name, karras, 16) for name in ("euler", "unipc")]
    runs += [run(name, config | {"final_sigmas_type": "sigma_min"}, 4) for name in ("euler", "dpmpp_2m", "unipc")]
    if v:
        zero = config | {"rescale_betas_zero_snr": True}
        runs += [run(name, zero, 7) for name in CLASSES if name != "pndm"]
    return runs


def all_runs() -> list:
    runs = []
    for prediction in ("epsilon", "v_prediction"):
        for spacing in ("leading", "linspace", "trailing"):
            config = SD2 | {"prediction_type": prediction, "timestep_spacing": spacing}
            for name in ("ddim", "pndm"):
                runs += [run(name, config, num_steps) for num_steps in (1, 7, 16, 50)]
            runs.append(run("ddim", config, 13, 0.7))
            runs += sigma_runs(config)
        runs.append(run("pndm", SD2 | {"prediction_type": prediction, "skip_prk_steps": False}, 10))
        runs += [run(name, {"prediction_type": prediction}, 10) for name in CLASSES if name not in ("pndm", "dpmpp_2m_karras")]
    return runs


def trailing_timesteps(name: str) -> list:
    """Of 61 steps: one too many, the last of them -1."""
    scheduler = CLASSES[name].from_config(SD2 | {"timestep_spacing": "trailing"})
    scheduler.set_timesteps(61)
    return scheduler.timesteps.tolist()


def schedule(config: dict) -> dict:
    scheduler = diffusers.DDIMScheduler.from_config(config)
    clean = start_sample()
    noise = clean.flip(0) * 2 - 1
    timesteps = torch.tensor([0, 1, 500, 999])
    return {
        "config": config,
        "alphas_cumprod": some_values(scheduler.alphas_cumprod),
        "noisy": some_values(scheduler.add_noise(clean, noise, timesteps)),
        "velocity": some_values(scheduler.get_velocity(clean, noise, timesteps)),
    }


def write(path) -> None:
    versions = {"diffusers": diffusers.__version__, "torch": torch.__version__, "numpy": numpy.__version__}
    schedules = ",\n".join(json.dumps(schedule(config)) for config in (SD2, {}, SD2 | {"rescale_betas_zero_snr": True}))
    runs = ",\n".join(json.dumps(run) for run in all_runs())
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"made_by": "tools/goldens/make_diffusion_goldens.py",\n')
        file.write(f'"versions": {json.dumps(versions)},\n"schedules": [\n{schedules}],\n"runs": [\n{runs}],\n')
        trailing = {name: trailing_timesteps(name) for name in ("ddim", "pndm", "euler", "dpmpp_2m", "unipc")}
        file.write(f'"trailing_61": {json.dumps(trailing)}}}\n')


def main() -> None:
    torch.set_num_threads(1)
    write(sys.argv[1])


if __name__ == "__main__":
    main()
