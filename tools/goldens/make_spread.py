#!/usr/bin/env python3
"""Records tests/golden/{nn,optim,diffusion}/spread.json: how far the reference itself strays from its recorded values when the same
numbers are computed with other instructions, or laid out otherwise in memory.

Needs what make_nn_goldens.py needs (requirements/parity.txt). Usage: tools/goldens/make_spread.py [--add] [GOLDENS=tests/golden]

With --add the runs of this processor are added to those in the files: the larger spread stays. So a level that one processor lacks is
measured on another. Without it the files are made anew, as they must be when the recordings were.

The three recordings (make_nn_goldens.py, make_training_goldens.py, make_diffusion_goldens.py) run again, unchanged, in a process for each
level of ATen, oneDNN and MKL in processor_levels.py, and once with convolutions in channels-last and matrices in columns. The processes are
forks made before the first computation, which is when the libraries look at these variables. A tensor's
spread is the largest distance of any of its elements from the recorded value in any of these runs; what is not listed has none. A level
that this processor lacks is named in the file under that processor. Of training runs the file keeps the relative spread of losses and norms and
the distance of the weights, sqrt(sum of squares), as the test measures them; of sampler runs the spread of values, of their absolute
sum and of the timesteps.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file

import make_diffusion_goldens
import make_nn_goldens
import make_training_goldens
import nn_reference

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "check"))
import processor_levels  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OTHER_FORMAT = "channels-last convolutions, matrices in columns"


def lay_out_otherwise(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
            elif parameter.dim() == 2:
                parameter.data = parameter.data.t().contiguous().t()
    return model


def write_everything(folder, environment, other_format):
    """The recordings under a level, in this process."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    if other_format:
        build = nn_reference.build
        nn_reference.build = lambda component, config: lay_out_otherwise(build(component, config))
    for name in ("nn", "optim", "diffusion"):
        (folder / name).mkdir(parents=True)
    make_nn_goldens.record_networks(folder / "nn")
    make_training_goldens.write(folder / "optim")
    make_diffusion_goldens.write(folder / "diffusion" / "diffusers.json")
    want = environment.get("ATEN_CPU_CAPABILITY", "").upper()
    got = torch.backends.cpu.get_cpu_capability()
    assert want in ("", got), f"ATen runs at {got} instead of {want}"


def run_level(folder, environment, other_format=False):
    child = multiprocessing.get_context("fork").Process(target=write_everything, args=(folder, environment, other_format))
    child.start()
    child.join()
    if child.exitcode != 0:
        sys.exit(f"the reference failed under {environment}")


def upwards(value):
    """Two digits, rounded up: the file stays small and no spread becomes smaller."""
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step) * step:.1e}")


def raise_to(spread, name, value):
    value = upwards(value)
    if value > spread.get(name, 0.0):
        spread[name] = value


def distance(left, right):
    return float((left.double() - right.double()).abs().max()) if left.numel() else 0.0


def compare_networks(recorded, other, spread):
    for path in sorted(recorded.glob("*.safetensors")):
        want, got = load_file(path), load_file(other / path.name)
        assert want.keys() == got.keys(), path
        for name in want:
            raise_to(spread.setdefault(path.stem, {}), name, distance(got[name], want[name]))


def compare_training(recorded, other, spread):
    want, got = (load_file(folder / "training_run.safetensors") for folder in (recorded, other))
    for prediction in ("epsilon", "v_prediction"):
        for name in ("losses", "grad_norms"):
            key = f"{prediction}.{name}"
            raise_to(spread, key, float(((got[key] - want[key]).abs() / want[key]).max()))
        for prefix in ("weights.", "ema."):
            names = [name for name in want if name.startswith(prediction + "." + prefix)]
            apart = sum(float((got[name] - want[name]).double().square().sum()) for name in names)
            raise_to(spread, f"{prediction}.{prefix}", math.sqrt(apart))


def largest_apart(got, want):
    return max((abs(a - b) for a, b in zip(got, want, strict=True)), default=0.0)


def compare_samplers(recorded, other, spread):
    want, got = (json.loads((folder / "diffusers.json").read_text()) for folder in (recorded, other))
    for kind in ("schedules", "runs"):
        rows = spread.setdefault(kind, [{} for _ in want[kind]])
        for row, left, right in zip(rows, got[kind], want[kind], strict=True):
            assert left["config"] == right["config"]
            for name, value in right.items():
                if name == "sum_abs":
                    raise_to(row, name, abs(left[name] - value))
                elif isinstance(value, list):
                    raise_to(row, name, largest_apart(left[name], value))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", action="store_true", help="add to what the files hold of other processors")
    parser.add_argument("goldens", nargs="?", type=pathlib.Path, default=ROOT / "tests/golden")
    flags = parser.parse_args()
    parts = ("nn", "optim", "diffusion")
    records = {part: json.loads((flags.goldens / part / "spread.json").read_text()) if flags.add else {} for part in parts}
    spreads = {part: record.get("spread", {}) for part, record in records.items()}
    compare = {"nn": compare_networks, "optim": compare_training, "diffusion": compare_samplers}
    levels = processor_levels.torch_levels()
    runs = [(level.name, level.environment, False) for level in levels if not level.lacks] + [(OTHER_FORMAT, {}, True)]
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, environment, other_format) in enumerate(runs):
            run_level(pathlib.Path(folder) / str(number), environment, other_format)
            print(f"{number + 1} of {len(runs)}: {name}", flush=True)
        # From here on this process computes, too, so no level can be forked from it.
        for number in range(len(runs)):
            for part, spread in spreads.items():
                compare[part](flags.goldens / part, pathlib.Path(folder) / str(number) / part, spread)
    ran = {"levels": [name for name, _, _ in runs], "not_run": [f"{level.name}: {level.lacks}" for level in levels if level.lacks]}
    for part, spread in spreads.items():
        processors = records[part].get("processors", {}) | {processor_levels.processor_name(): ran}
        record = {"made_by": "tools/goldens/make_spread.py", "processors": processors, "spread": spread}
        (flags.goldens / part / "spread.json").write_text(json.dumps(record, indent=0, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
