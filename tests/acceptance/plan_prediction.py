#!/usr/bin/env python3
"""How well `plan --from RUN --steps N --batch B` predicts: measures one run of the tiny recipe, predicts runs of other batches that it has not
seen, runs them and prints both times. Times of a machine that does other things beside differ more; so this is no unit test.

usage: plan_prediction.py [--steps N] [--measured B] [--predicted B...] [--most PERCENT]
Exits 1 when a prediction is further away than --most (10 %).
"""

import argparse
import json
import pathlib
import sys

from harness import Workbench
from workbench import run


def train(bench: Workbench, name: str, steps: int, batch: int) -> float:
    """Wall seconds of a fresh run, as run.json states them."""
    run("train", "recipes/tiny.toml", "--data", bench.path("latents"), "--model", bench.model, "--output", bench.path(name), "--max-steps", steps,
        "--global-batch", batch, "--set", f"checkpoint.every_steps={max(1, steps // 2)}", "--set", "samples.every_steps=0")
    return json.loads((pathlib.Path(bench.path(name)) / "run.json").read_text())["seconds"]


def predict(bench: Workbench, steps: int, batch: int) -> float:
    run("plan", "--from", bench.path("measured"), "--steps", steps, "--batch", batch, "--trials", 1, "--json-summary", bench.path("plan.json"))
    return json.loads(pathlib.Path(bench.path("plan.json")).read_text())["plan"]["predicted_seconds"]


def main() -> int:
    parser = argparse.ArgumentParser(description="how well plans predict")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--measured", type=int, default=32, help="batch of the measured run")
    parser.add_argument("--predicted", type=int, nargs="*", default=[64, 96], help="batches of the others")
    parser.add_argument("--most", type=float, default=10, help="percent")
    arguments = parser.parse_args()
    worst = 0.0
    with Workbench(256) as bench:
        images = bench.write_image_dataset("images", 256)
        run("process", images, bench.path("latents"), "--model", bench.model, "--resolution", 64)
        measured = train(bench, "measured", arguments.steps, arguments.measured)
        print(f"measured: {arguments.steps} steps of {arguments.measured} in {measured:.1f} s")
        for batch in arguments.predicted:
            wanted = predict(bench, arguments.steps, batch)
            taken = train(bench, f"run-{batch}", arguments.steps, batch)
            error = 100 * (wanted - taken) / taken
            worst = max(worst, abs(error))
            print(f"{arguments.steps} steps of {batch}: predicted {wanted:.1f} s, took {taken:.1f} s: {error:+.1f} %")
    print(f"largest error {worst:.1f} %, at most {arguments.most:g} % wanted")
    return 1 if worst > arguments.most else 0


if __name__ == "__main__":
    sys.exit(main())
