#!/usr/bin/env python3
"""Records tests/golden/optim/training_run.safetensors: a few training steps of a small U-Net by diffusers and PyTorch, for epsilon
without weights and for v with min-SNR weights: losses, gradient norms, and the weights and their moving average after the last step.

Needs torch 2.11.0 and diffusers 0.42.1. Usage: tools/goldens/make_training_goldens.py [OUT=tests/golden/optim]
First weights are not stored: the test draws them as nn_reference.fill_parameters does. Of tensors with more than 32 elements every
sixteenth is stored. make_spread.py adds how far the reference strays from these values on other processors.
"""

import json
import pathlib
import sys

import diffusers
import torch
from safetensors.torch import save_file

import nn_reference
import training_reference
from make_nn_goldens import SEED, UNET_LINEAR, thin

NUM_STEPS = 5
BATCH = 3
LEARNING_RATE = 1e-4
EMA_DECAY = 0.999
OBJECTIVES = {"epsilon": 0.0, "v_prediction": 5.0}  # Prediction type: min-SNR gamma.


def batches():
    """The same for each objective, named as `train --trace` names them."""
    timesteps = [[0, 500, 999], [1, 20, 300], [700, 80, 998], [250, 5, 640], [900, 120, 40]]
    return [{
        "latents": nn_reference.draw(SEED, f"latents {step}", (BATCH, 4, 8, 8), 1.5),
        "noise": nn_reference.draw(SEED, f"noise {step}", (BATCH, 4, 8, 8), 1.7),
        "caption_states": nn_reference.draw(SEED, f"states {step}", (BATCH, 3, UNET_LINEAR["cross_attention_dim"]), 2.0),
        "timestep": torch.tensor(timesteps[step]),
    } for step in range(NUM_STEPS)]


def record(prediction, gamma):
    network = nn_reference.build("unet", UNET_LINEAR)
    nn_reference.fill_parameters(network, "unet", SEED)
    scheduler = diffusers.DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", prediction_type=prediction)
    optimizer = training_reference.make_optimizer(network, LEARNING_RATE)

    def weights():
        return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}

    averages = weights()
    losses, norms = [], []
    for step, batch in enumerate(batches()):
        loss, norm = training_reference.train_step(network, optimizer, scheduler, batch, gamma)
        losses.append(loss)
        norms.append(norm)
        averages = training_reference.average(averages, weights().items(), step, EMA_DECAY)
    tensors = {"losses": torch.tensor(losses, dtype=torch.float64), "grad_norms": torch.tensor(norms, dtype=torch.float64)}
    tensors |= {f"weights.{name}": thin(values) for name, values in weights().items()}
    tensors |= {f"ema.{name}": thin(values) for name, values in averages.items()}
    return {f"{prediction}.{name}": values for name, values in tensors.items()}


def write(folder):
    tensors = {f"step.{step}.{name}": values for step, batch in enumerate(batches()) for name, values in batch.items()}
    for prediction, gamma in OBJECTIVES.items():
        tensors |= record(prediction, gamma)
    made_by = f"make_training_goldens.py, torch {torch.__version__}, diffusers {diffusers.__version__}"
    save_file(tensors, folder / "training_run.safetensors", {"config": json.dumps(UNET_LINEAR), "made_by": made_by})


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent / "tests/golden/optim")
    folder.mkdir(parents=True, exist_ok=True)
    write(folder)


if __name__ == "__main__":
    main()
