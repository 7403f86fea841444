"""The training step that darkroom is compared with: diffusers' U-Net and schedule, torch's AdamW and clipping.

Shared by tools/goldens/make_training_goldens.py and tools/parity/training_run_parity.py.
"""

import torch
from diffusers import DDPMScheduler, UNet2DConditionModel

MAX_GRAD_NORM = 1.0


def make_optimizer(network: UNet2DConditionModel, learning_rate: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(network.parameters(), lr=learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, foreach=False)


def min_snr_weights(scheduler: DDPMScheduler, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
    """As diffusers' train_text_to_image.py weighs samples with --snr_gamma."""
    alphas = scheduler.alphas_cumprod[timesteps]
    snr = (alphas ** 0.5 / (1.0 - alphas) ** 0.5) ** 2
    clipped = torch.stack([snr, gamma * torch.ones_like(timesteps)], dim=1).min(dim=1)[0]
    return clipped / (snr + 1 if scheduler.config.prediction_type == "v_prediction" else snr)


def loss_of(network: UNet2DConditionModel, scheduler: DDPMScheduler, batch: dict, gamma: float) -> torch.Tensor:
    """batch: `latents`, `noise`, `timestep` and `caption_states`, named as `train --trace` names them."""
    latents, noise, timesteps, states = (batch[name] for name in ("latents", "noise", "timestep", "caption_states"))
    velocity = scheduler.config.prediction_type == "v_prediction"
    target = scheduler.get_velocity(latents, noise, timesteps) if velocity else noise
    output = network(scheduler.add_noise(latents, noise, timesteps), timesteps, states).sample
    if gamma == 0:
        return torch.nn.functional.mse_loss(output, target)
    losses = torch.nn.functional.mse_loss(output, target, reduction="none").mean(dim=(1, 2, 3))
    return (losses * min_snr_weights(scheduler, timesteps, gamma)).mean()


def train_step(network: UNet2DConditionModel, optimizer: torch.optim.Optimizer, scheduler: DDPMScheduler, batch: dict,
               gamma: float) -> tuple[float, float]:
    """Loss and gradient norm (before clipping) of the step."""
    optimizer.zero_grad()
    loss = loss_of(network, scheduler, batch, gamma)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_GRAD_NORM, foreach=False)
    optimizer.step()
    return loss.item(), norm.item()


def average(averages: dict, weights, update: int, decay: float) -> dict:
    """The moving average after update number `update` (0-based), with warm-up. weights: (name, values) pairs."""
    kept = min(decay, (1 + update) / (10 + update))
    return {name: kept * averages[name] + (1 - kept) * values for name, values in weights}
