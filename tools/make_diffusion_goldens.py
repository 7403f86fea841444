"""Writes tests/golden/diffusion/diffusers.json: schedules, timesteps and whole sampler runs of diffusers.

Run in an environment that has diffusers 0.42.1 and torch 2.11 (docs/diffusion.md says how):

    python tools/make_diffusion_goldens.py tests/golden/diffusion/diffusers.json

The network of every run is the one of diffusers' own scheduler tests: model(x, t) = x * t / (t + 1), started from
arange(768) / 768 viewed as (3, 8, 8, 4) and moved to (4, 3, 8, 8).
"""

import json
import sys

import diffusers
import numpy
import torch

SD2 = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "set_alpha_to_one": False,
    "clip_sample": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "trained_betas": None,
}
CLASSES = {"ddim": diffusers.DDIMScheduler, "pndm": diffusers.PNDMScheduler}


def start_sample() -> torch.Tensor:
    return (torch.arange(768).reshape(3, 8, 8, 4) / 768).permute(3, 0, 1, 2).contiguous()


def some_values(tensor: torch.Tensor) -> list:
    """Every 97th value, exactly."""
    return tensor.flatten()[::97].double().tolist()


def run(name: str, config: dict, num_steps: int, eta: float) -> dict:
    scheduler = CLASSES[name].from_config(config)
    scheduler.set_timesteps(num_steps)
    generator = torch.Generator("cpu").manual_seed(0)
    sample = start_sample()
    extra = {"eta": eta, "generator": generator} if name == "ddim" else {}
    for timestep in scheduler.timesteps:
        output = sample * timestep / (timestep + 1)
        sample = scheduler.step(output, timestep, sample, **extra).prev_sample
    return {
        "sampler": name,
        "config": config,
        "num_steps": num_steps,
        "eta": eta,
        "timesteps": scheduler.timesteps.tolist(),
        "sum_abs": float(sample.double().abs().sum()),
        "values": some_values(sample),
    }


def all_runs() -> list:
    runs = []
    for prediction in ("epsilon", "v_prediction"):
        for spacing in ("leading", "linspace", "trailing"):
            for name in CLASSES:
                for num_steps in (1, 7, 16, 50):
                    config = SD2 | {"prediction_type": prediction, "timestep_spacing": spacing}
                    runs.append(run(name, config, num_steps, 0.0))
            runs.append(run("ddim", SD2 | {"prediction_type": prediction, "timestep_spacing": spacing}, 13, 0.7))
        runs.append(run("pndm", SD2 | {"prediction_type": prediction, "skip_prk_steps": False}, 10, 0.0))
        runs.append(run("ddim", {"prediction_type": prediction}, 10, 0.0))
    return runs


def schedule(config: dict) -> dict:
    scheduler = diffusers.DDPMScheduler.from_config(config)
    clean = start_sample()
    noise = clean.flip(0) * 2 - 1
    timesteps = torch.tensor([0, 1, 500, 999])
    return {
        "config": config,
        "alphas_cumprod": some_values(scheduler.alphas_cumprod),
        "noisy": some_values(scheduler.add_noise(clean, noise, timesteps)),
        "velocity": some_values(scheduler.get_velocity(clean, noise, timesteps)),
    }


def main() -> None:
    torch.set_num_threads(1)
    versions = {"diffusers": diffusers.__version__, "torch": torch.__version__, "numpy": numpy.__version__}
    schedules = ",\n".join(json.dumps(schedule(config)) for config in (SD2, {}))
    runs = ",\n".join(json.dumps(run) for run in all_runs())
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write('{"made_by": "tools/make_diffusion_goldens.py",\n')
        file.write(f'"versions": {json.dumps(versions)},\n"schedules": [\n{schedules}],\n"runs": [\n{runs}]}}\n')


if __name__ == "__main__":
    main()
