#!/usr/bin/env python3
"""`darkroom train --dry-run` as a user meets it: a plan without dataset and output, the same numbers as JSON, refusals that name file, field and value."""

import json
import pathlib
import subprocess

from cases import main, require, temporary_folder
from workbench import PROGRAM, ROOT


def train(*arguments, expect: int = 0) -> str:
    done = subprocess.run([PROGRAM, "train", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=ROOT)
    require(done.returncode == expect, "exit code", done.returncode, done.stderr[-2000:])
    return done.stderr


def estimate(folder: pathlib.Path, *arguments) -> tuple[dict, str]:
    said = train(*arguments, "--dry-run", "--json-summary", folder / "summary.json")
    return json.loads((folder / "summary.json").read_text())["train"]["estimate"], said


def a_published_run_on_32_gpus_is_planned_on_this_machine() -> None:
    with temporary_folder() as folder:
        plan, said = estimate(folder, "recipes/sd2-256.toml", "--model", "sd2-base", "--ranks", 32, "--device", "cuda", "--tflops", 989)
        require(plan["parameters"] == 865_910_724 and plan["ranks"] == 32, "parameters and ranks", plan)
        require(plan["batch"] == {"global": 4096, "micro": 128, "gradient_groups": 32, "rank_samples": 128, "rank_passes": 1, "passes_at_a_time": 1}, "batch", plan["batch"])
        require(plan["bytes"]["checkpoint"] == 16 * plan["parameters"], "a checkpoint", plan["bytes"])
        hours = plan["steps"] * plan["step_flop"] / (32 * 0.4 * 989e12) / 3600
        require(abs(plan["hours"] - hours) < 1e-6 * hours, "hours", plan["hours"], hours)
        for word in ("865910724 parameters", "activations", "gradients", "moments of its slice", "checkpoints: 13.85 GB each", "hours at 40 %"):
            require(word in said, "the plan lacks", word, said)
        require(sorted(path.name for path in folder.iterdir()) == ["summary.json"], "it wrote more than its summary")


def ranks_that_do_not_divide_the_groups_are_as_slow_as_their_busiest() -> None:
    with temporary_folder() as folder:
        words = ("recipes/sd2-256.toml", "--model", "sd2-base", "--device", "cuda", "--tflops", 989)
        sixteen, plain = estimate(folder, *words, "--ranks", 16)
        many, said = estimate(folder, *words, "--ranks", 24)
        require(many["hours"] == sixteen["hours"] and sixteen["idle_share"] == 0, "hours", many, sixteen)
        require("stand idle for 33.3 %" in said and "16 ranks are as fast" in said and "idle" not in plain, "the remark", said, plain)
        for setting, is_said in (("true", False), ("false", True)):
            _, said = estimate(folder, *words, "--ranks", 32, "--set", f"runtime.overlap={setting}")
            require(("runtime.graphs=false" in said) == is_said, "advice on recorded passes, with runtime.overlap", setting, said)


def flags_and_settings_count() -> None:
    with temporary_folder() as folder:
        common = ("recipes/tiny.toml", "--model", "models/tiny", "--set", "runtime.workers=1")
        plan, _ = estimate(folder, *common)
        more, _ = estimate(folder, *common, "--micro-batch", 32, "--max-steps", 11)
        require(more["bytes"]["activations"] > 1.9 * plan["bytes"]["activations"], "twice the samples of a pass", plan, more)
        require(more["steps"] == 11 and "hours" not in more, "steps", more)
        two, _ = estimate(folder, *common, "--nproc", 2, "--set", "runtime.gradient_groups=4")
        require(two["ranks"] == 2 and two["ranks_on_a_machine"] == 2, "ranks of --nproc", two)
        require(2 * two["bytes"]["moments"] - plan["bytes"]["moments"] < 8 * 4 * 16384, "half of the moments", two, plan)
        online, said = estimate(folder, *common, "--raw-data", "no/such/pictures")
        require("read_a_step" not in online["bytes"] and "pictures" in said, "of pictures nobody knows", online)


def refusals_name_file_field_and_value() -> None:
    plan = ("--dry-run", "--model", "models/tiny")
    for words, *shown in (
        (("recipes/tiny.toml", *plan, "--set", "runtime.gradient_groups=3"), "recipes/tiny.toml", "runtime.gradient_groups", "3"),
        (("recipes/tiny.toml", *plan, "--set", "batch.micro=0"), "recipes/tiny.toml", "batch.micro", "0"),
        (("recipes/tiny.toml", *plan, "--ranks", 2), "recipes/tiny.toml", "runtime.gradient_groups", "1 2"),
        (("recipes/tiny.toml", *plan, "--set", "data.resolution=60"), "recipes/tiny.toml", "data.resolution", "60"),
        (("recipes/tiny.toml", *plan, "--set", "runtime.device=gpu"), "recipes/tiny.toml", "runtime.device", "cuda:N", "'gpu'"),
        (("recipes/tiny.toml", *plan, "--set", "runtime.device=cuda:1x"), "recipes/tiny.toml", "runtime.device", "'cuda:1x'"),
        (("recipes/tiny.toml", *plan, "--ranks", 2, "--nproc", 4, "--set", "runtime.gradient_groups=4"), "--nproc", "--ranks", "4 2"),
        (("recipes/tiny.toml", *plan, "--spot-notice", "azure"), "--spot-notice", "aws, gcp", "'azure'"),
        (("recipes/tiny.toml", "--dry-run"), "recipes/tiny.toml", "--model"),
        (("recipes/tiny.toml", "--dry-run", "--model", "no-such-model"), "no-such-model", "sd2-base"),
        (("recipes/tiny.toml", "--model", "models/tiny"), "--output"),
        (("recipes/tiny.toml", "--data", "latents", "--output", "run", "--ranks", 4), "--ranks", "--dry-run", "--nproc"),
    ):
        said = train(*words, expect=2)
        for word in shown:
            require(word in said, "the message lacks", word, words, said)


if __name__ == "__main__":
    main([a_published_run_on_32_gpus_is_planned_on_this_machine, ranks_that_do_not_divide_the_groups_are_as_slow_as_their_busiest, flags_and_settings_count,
          refusals_name_file_field_and_value])
