#!/usr/bin/env python3
"""How well `plan --from RUN --steps N --batch B` predicts: measures one run of the tiny recipe, predicts runs of other batches that it has not
seen, runs them and holds both times against each other. It wants a machine that does nothing else, so it is no part of `make test`, but of acceptance.py --full.

usage: plan_prediction.py [--full] [--results FILE] [KIND...]    KIND: batches; all
"""

import json
import pathlib
import sys

from harness import Trials, Workbench, darkroom, main_of_kinds, require

STEPS = (60, 300)
MEASURED = 32  # Batch of the measured run.
PREDICTED = [64, 96]
MOST_PERCENT = 10


def train(bench: Workbench, name: str, steps: int, batch: int) -> float:
    """Wall seconds of a fresh run, as run.json states them."""
    darkroom("train", "recipes/tiny.toml", "--data", bench.path("latents"), "--model", bench.model, "--output", bench.path(name), "--max-steps", steps,
             "--global-batch", batch, "--set", f"checkpoint.every_steps={max(1, steps // 2)}", "--set", "samples.every_steps=0")
    return json.loads((pathlib.Path(bench.path(name)) / "run.json").read_text())["seconds"]


def predict(bench: Workbench, steps: int, batch: int) -> float:
    darkroom("plan", "--from", bench.path("measured"), "--steps", steps, "--batch", batch, "--trials", 1, "--json-summary", bench.path("plan.json"))
    return json.loads(pathlib.Path(bench.path("plan.json")).read_text())["plan"]["predicted_seconds"]


def measured_and_predicted(steps: int) -> dict:
    """Seconds of the measured run, and predicted and true ones of the others."""
    with Workbench(256) as bench:
        images = bench.write_image_dataset("images", 256)
        darkroom("process", images, bench.path("latents"), "--model", bench.model, "--resolution", 64)
        found = {"measured": train(bench, "measured", steps, MEASURED)}
        for batch in PREDICTED:
            found[str(batch)] = {"predicted": predict(bench, steps, batch), "took": train(bench, f"run-{batch}", steps, batch)}
    return found


def batches(trials: Trials) -> None:
    steps = trials.count(*STEPS)
    found = trials.trial(f"{steps} steps", lambda: measured_and_predicted(steps))
    errors = {batch: round(100 * (one["predicted"] - one["took"]) / one["took"], 1) for batch, one in found.items() if batch != "measured"}
    trials.figures.update(steps=steps, seconds=found, percent=errors)
    require(all(abs(error) <= MOST_PERCENT for error in errors.values()), "percent by which a prediction is off", errors)


CHECKS = [("plan_prediction.batches", batches)]

if __name__ == "__main__":
    sys.exit(main_of_kinds(__doc__, CHECKS, "prediction", []))
