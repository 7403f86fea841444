#!/usr/bin/env python3
"""Kill -9 at random moments: no row lost or twice, the same bytes as an undisturbed run (formats: commit, checkpoint).

usage: kill_test.py [KILLS]      3 kills a job in the test run; acceptance uses 10.
"""

import json
import pathlib
import random
import subprocess
import sys
import time

import pyarrow.parquet as pq

from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, digests, main, read_losses, require, run, run_killed, share_of_parts, timed_run, write_tars

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
SEED = random.SystemRandom().randrange(1 << 32) if len(sys.argv) > 2 else 20261121
MAX_STEPS = 20
TRAIN_SETTINGS = ["--set", "batch.global=16", "--set", "checkpoint.every_steps=4", "--set", "checkpoint.keep_last=2", "--set", "samples.every_steps=0"]


def keys_of(folder: str) -> list[str]:
    return pq.read_table(folder, columns=["key"])["key"].to_pylist()


def require_same_parts(folder: str, reference: str) -> None:
    want = digests(reference, "part-*.parquet")
    require(digests(folder, "part-*.parquet") == want, "shards differ from the undisturbed run", folder)
    keys = keys_of(folder)
    require(len(keys) == len(set(keys)), "a row is there twice", folder)
    require(sorted(keys) == sorted(keys_of(reference)), "rows were lost", folder)


def last_step(run_folder: str) -> int:
    """Of the last checkpoint."""
    return max((int(folder.name.removeprefix("step-")) for folder in pathlib.Path(run_folder, "checkpoints").glob("step-*")), default=0)


def download_survives_sigkill() -> None:
    generator = random.Random(SEED)
    with Workbench(240) as bench, LoopbackWeb(bench.path("corpus"), delay=0.03) as web:
        common = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "30", "--concurrency", "4", "--allow-private", f"127.0.0.1/32:{web.port}"]
        seconds = timed_run("download", bench.path("reference"), *common)
        hits = run_killed(["download", bench.path("killed"), *common], KILLS, seconds, generator, share_of_parts(bench.path("killed"), bench.path("reference")))
        require_same_parts(bench.path("killed"), bench.path("reference"))
        require(hits >= KILLS - 1, "kills that hit a running job, seed:", hits, SEED)


def claims_in(folder: str) -> list[pathlib.Path]:
    return [claim for claim in pathlib.Path(folder, "_claims").glob("*") if claim.name.isdigit()]


def rows_of_run(summary: str) -> int:
    return json.loads(pathlib.Path(summary).read_text())["download"]["rows_this_run"]


def a_second_process_finds_work_in_a_job_of_small_items() -> None:
    with Workbench(300) as bench, LoopbackWeb(bench.path("corpus"), delay=0.1) as web:
        command = ["download", bench.path("images"), "--metadata", bench.write_url_table(web.port), "--rows-per-file", "5", "--concurrency", "4", "--allow-private", f"127.0.0.1/32:{web.port}"]
        first = subprocess.Popen([str(PROGRAM), *command, "--json-summary", bench.path("first.json")], cwd=ROOT, stderr=subprocess.DEVNULL)
        while first.poll() is None and not list(pathlib.Path(bench.path("images")).glob("part-*")):
            time.sleep(0.01)
        num_claimed = len(claims_in(bench.path("images")))
        run(*command, "--json-summary", bench.path("second.json"))
        require(first.wait() == 0, "the first process failed")
        # Eight rows are in hand, and as many as one queue holds may be on their way there.
        require(num_claimed <= 4 + 64 // 5, "items that the first process had claimed:", num_claimed)
        require(sorted(keys_of(bench.path("images"))) == [f"{row:012d}" for row in range(300)], "rows")
        shares = [rows_of_run(bench.path("first.json")), rows_of_run(bench.path("second.json"))]
        require(sum(shares) == 300 and min(shares) >= 30, "rows of each process:", shares)


def process_survives_sigkill() -> None:
    generator = random.Random(SEED + 1)
    with Workbench(240) as bench:
        images = bench.write_image_dataset("images", 80)
        common = ["--model", bench.model, "--resolution", "64", "--rows-per-file", "20", "--batch-size", "8"]
        seconds = timed_run("process", images, bench.path("reference"), *common)
        hits = run_killed(["process", images, bench.path("killed"), *common], KILLS, seconds, generator, share_of_parts(bench.path("killed"), bench.path("reference")))
        require_same_parts(bench.path("killed"), bench.path("reference"))
        require(hits >= KILLS - 1, "kills that hit a running job, seed:", hits, SEED)


def process_of_tars_survives_sigkill() -> None:
    generator = random.Random(SEED + 3)
    with Workbench(240) as bench:
        rows = pq.read_table(bench.write_image_dataset("images", 240)).to_pylist()
        tars = write_tars(bench.path("tars"), rows, 50)
        common = ["--model", bench.model, "--resolution", "64", "--rows-per-file", "20", "--batch-size", "8"]
        seconds = timed_run("process", tars, bench.path("reference"), *common)
        hits = run_killed(["process", tars, bench.path("killed"), *common], KILLS, seconds, generator, share_of_parts(bench.path("killed"), bench.path("reference")))
        require_same_parts(bench.path("killed"), bench.path("reference"))
        require(len(keys_of(bench.path("killed"))) == 240, "rows were lost")
        require(hits >= KILLS - 1, "kills that hit a running job, seed:", hits, SEED)


def train_survives_sigkill() -> None:
    generator = random.Random(SEED + 2)
    with Workbench(96) as bench:
        images = bench.write_image_dataset("images", 96)
        run("process", images, bench.path("latents"), "--model", bench.model, "--resolution", "64")
        common = ["train", "recipes/tiny.toml", "--data", bench.path("latents"), "--model", bench.model, "--deterministic", "--max-steps", str(MAX_STEPS), *TRAIN_SETTINGS]
        seconds = timed_run(*common, "--output", bench.path("reference"))
        hits = run_killed([*common, "--output", bench.path("killed")], KILLS, seconds, generator, lambda: last_step(bench.path("killed")) / (MAX_STEPS - 4))
        require(read_losses(bench.path("killed")) == read_losses(bench.path("reference")), "losses differ from the undisturbed run; seed", SEED)
        for part in ("unet", "ema"):
            pattern = f"checkpoints/step-{MAX_STEPS:08d}/{part}/*.safetensors"
            want = digests(bench.path("reference"), pattern)
            require(bool(want) and digests(bench.path("killed"), pattern) == want, "final weights differ", part)
        require(hits >= KILLS - 1, "kills that hit a running job, seed:", hits, SEED)


if __name__ == "__main__":
    main([download_survives_sigkill, a_second_process_finds_work_in_a_job_of_small_items, process_survives_sigkill, process_of_tars_survives_sigkill, train_survives_sigkill])
