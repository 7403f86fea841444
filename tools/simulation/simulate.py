#!/usr/bin/env python3
"""Simulates the published topology (384 CPUs, 48 encoders, 32 trainers, 200,000 items of 5,000 rows) with the catalogue's rates and losses, and
prints makespans, idle shares and the tight stage as Markdown. Nothing here was run on such machines: it is a simulation.

usage: simulate.py [--seed N] [--seeds N]       the first seed (1), and how many (5): the median run of each line is printed
"""

import argparse
import json
import sys

from topology import (BATCH_ROWS, NUM_ENCODERS, NUM_ITEMS, PILLOW_RATE, READERS, ROWS_PER_ITEM, TRANSFORM_RATE, TRANSFORMERS, Catalogue, encoding_plan, placement_report,
                      training_plan)

from encoding import simulate_encoding
from losses import HOUR
from training import TrainingResult, simulate_training

SIDES = (256, 512)
CLAIMED_GAIN = 1.3  # "Preprocessing offload = +30 % training throughput."


def median_run(simulate, plan, seeds: range):
    """The run whose makespan is the median one."""
    runs = sorted((simulate(plan, seed) for seed in seeds), key=lambda run: run.seconds)
    return runs[len(runs) // 2]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def encoding_lines(catalogue: Catalogue, seeds: range) -> list[str]:
    lines = ["| px | machines | items | transform | hours | rows/s | encoders busy / idle / away / wasted % | CPUs busy % | tight | losses | done alone | most failures of an item |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    cases = [(side, purchase, NUM_ITEMS, TRANSFORM_RATE) for side in SIDES for purchase in ("never", "on_demand", "spot")]
    cases += [(256, "never", NUM_ITEMS, PILLOW_RATE), (256, "never", 10_000, TRANSFORM_RATE), (256, "never", 1_000, TRANSFORM_RATE), (256, "spot", 10_000, TRANSFORM_RATE)]
    for side, purchase, num_items, rate in cases:
        run = median_run(simulate_encoding, encoding_plan(catalogue, side, purchase, transform_rate=rate, num_items=num_items), seeds)
        cpus = (READERS * run.busy["read"] + TRANSFORMERS * run.busy["transform"]) / (READERS + TRANSFORMERS)
        shares = " / ".join(percent(share) for share in (run.busy["encode"], run.idle, run.away, run.wasted))
        lines.append(f"| {side} | {purchase} | {num_items:,} | {rate:g} | {run.seconds / HOUR:.1f} | {run.rows_per_second:.0f} | {shares} | {percent(cpus)} | {run.tight} | {run.losses} | {run.items_done_alone} | {run.most_failures} |")
    return lines


def training_cases(catalogue: Catalogue, side: int, purchase: str) -> dict:
    keeping_up = -(-32 * catalogue.rate("train", "A100-80GB", side) // catalogue.rate("encode", "A10G", side))
    return {
        "latents are there": training_plan(catalogue, side, purchase),
        "the trainers encode": training_plan(catalogue, side, purchase, is_encoding_itself=True),
        f"{NUM_ENCODERS} encoders beside": training_plan(catalogue, side, purchase, NUM_ENCODERS),
        f"{keeping_up:.0f} encoders beside": training_plan(catalogue, side, purchase, int(keeping_up)),
    }


def training_lines(catalogue: Catalogue, seeds: range) -> list[str]:
    lines = ["| px | machines | way | hours | rows/s | against trainers that encode | trainers wait / save / away / repeat % | encoders idle / away % | tight |", "|---|---|---|---|---|---|---|---|---|"]
    for side in SIDES:
        for purchase in ("never", "on_demand", "spot"):
            runs = {name: median_run(simulate_training, plan, seeds) for name, plan in training_cases(catalogue, side, purchase).items()}
            base = runs["the trainers encode"].rows_per_second
            lines += [training_line(side, purchase, name, run, base) for name, run in runs.items()]
    return lines


def training_line(side: int, purchase: str, name: str, run: TrainingResult, base: float) -> str:
    trainers = " / ".join(percent(share) for share in (run.waiting, run.saving, run.away, run.repeated))
    has_encoders = "beside" in name
    encoders = f"{percent(run.encoders_idle)} / {percent(run.encoders_away)}" if has_encoders else ""
    return f"| {side} | {purchase} | {name} | {run.seconds / HOUR:.1f} | {run.rows_per_second:.0f} | {run.rows_per_second / base:.2f} | {trainers} | {encoders} | {run.tight if has_encoders else ''} |"


def encoders_for_the_claim(catalogue: Catalogue, side: int) -> int:
    """The fewest encoders with which offloading gains what is claimed, machines never lost; 0: no number does."""
    base = simulate_training(training_plan(catalogue, side, "never", is_encoding_itself=True)).rows_per_second
    for count in range(1, 4 * NUM_ENCODERS):
        if simulate_training(training_plan(catalogue, side, "never", count)).rows_per_second >= CLAIMED_GAIN * base:
            return count
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.seeds)
    catalogue = Catalogue()
    print(f"Simulated, seeds {seeds.start} to {seeds.stop - 1}, median run of each line; {NUM_ITEMS:,} items of {ROWS_PER_ITEM:,} rows, batches of {BATCH_ROWS:,}.\n")
    print(f"Placement by the preflight: {json.dumps(placement_report())}\n")
    print("\n".join(encoding_lines(catalogue, seeds)) + "\n")
    print("\n".join(training_lines(catalogue, seeds)) + "\n")
    for side in SIDES:
        print(f"{side} px: offloading gains 30 % with {encoders_for_the_claim(catalogue, side)} encoders (published: {NUM_ENCODERS})")


if __name__ == "__main__":
    sys.exit(main())
