#!/usr/bin/env python3
"""Pictures into latents with ray.data, on the cluster of RAY_ADDRESS: a side of bench_ray.py, which runs it in .venv-ray.

    ray_data_jobs.py template|operators IMAGES OUTPUT MODEL SIDE PACKAGES

`template`: the reference template's preprocessing as it is written, Pillow and torchvision in one pool of actors, diffusers and transformers in
another. `operators`: darkroom.Encode in actors. PACKAGES: a folder with torch and, for the template, its other packages.
"""

import io
import os
import sys

import ray

JOB, IMAGES, OUTPUT, MODEL, SIDE, PACKAGES = *sys.argv[1:5], int(sys.argv[5]), sys.argv[6]
BATCH_ROWS = 10
SCALING = 0.18215
MOST_IDS = 77


class Transform:
    def __init__(self) -> None:
        sys.path.append(PACKAGES)  # Behind Ray's own.
        from torchvision import transforms
        from transformers import CLIPTokenizer

        resize = transforms.Resize(SIDE, interpolation=transforms.InterpolationMode.BILINEAR)
        self.pixels = transforms.Compose([resize, transforms.CenterCrop(SIDE), transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)])
        self.tokenizer = CLIPTokenizer.from_pretrained(MODEL, subfolder="tokenizer")

    def __call__(self, batch: dict) -> dict:
        import numpy as np
        from PIL import Image

        images = [self.pixels(Image.open(io.BytesIO(data)).convert("RGB")).numpy() for data in batch["image"]]
        ids = self.tokenizer(list(batch["caption"]), padding="max_length", max_length=MOST_IDS, truncation=True, return_tensors="np").input_ids
        return {"key": batch["key"], "image": np.stack(images), "caption_ids": ids}


class Encode:
    def __init__(self) -> None:
        sys.path.append(PACKAGES)
        import torch
        from diffusers import AutoencoderKL
        from transformers import CLIPTextModel

        torch.set_num_threads(1)
        self.vae = AutoencoderKL.from_pretrained(MODEL, subfolder="vae").eval()
        self.text_encoder = CLIPTextModel.from_pretrained(MODEL, subfolder="text_encoder").eval()

    def __call__(self, batch: dict) -> dict:
        import torch

        with torch.inference_mode():
            latents = self.vae.encode(torch.from_numpy(batch["image"])).latent_dist.sample() * SCALING
            states = self.text_encoder(torch.from_numpy(batch["caption_ids"]))[0]
        return {"key": batch["key"], "latents": latents.numpy(), "caption_latents": states.numpy()}


def pool(num_actors: int, num_cpus: float) -> dict:
    return {"batch_size": BATCH_ROWS, "compute": ray.data.ActorPoolStrategy(size=num_actors), "num_cpus": num_cpus}


def template(rows, num_cpus: int):
    """Two actors of each kind a pair of CPUs, so that neither kind waits for the other's share; what reads and writes has what they leave."""
    return rows.map_batches(Transform, **pool(num_cpus, 0.5)).map_batches(Encode, **pool(num_cpus, 0.25))


def operators(rows, num_cpus: int):
    import darkroom

    words = {"fn_constructor_args": [MODEL, SIDE], "fn_constructor_kwargs": {"dtype": "float32"}, "batch_format": "pyarrow"}
    return rows.map_batches(darkroom.Encode, **words, **pool(num_cpus, 0.75))


def main() -> None:
    ray.init(log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": {name: os.environ[name] for name in ("PYTHONPATH", "HF_HUB_OFFLINE")}})
    ray.data.DataContext.get_current().enable_progress_bars = False
    share = {"num_cpus": 0.25}
    rows = ray.data.read_parquet(IMAGES, columns=["key", "caption", "image"], override_num_blocks=len(os.listdir(IMAGES)), ray_remote_args=share)
    job = {"template": template, "operators": operators}[JOB]
    job(rows, int(ray.cluster_resources()["CPU"])).write_parquet(OUTPUT, ray_remote_args=share)
    ray.shutdown()


main()
