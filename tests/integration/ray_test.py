#!/usr/bin/env python3
"""darkroom-ray on a cluster of three nodes: the bytes of the single program, whatever is killed.

usage: ray_test.py
"""

import atexit
import functools
import json
import os
import pathlib
import re
import signal
import time

import pyarrow as pa
import pyarrow.parquet as pq

from ray_bench import PATIENCE, cluster_of_script, described, hold, kill, parent_of, parts_in, programs
from workbench import LoopbackWeb, Workbench, digests, main, numbers_at, read_losses, require, run

NUM_PICTURES = 96
ROWS_PER_FILE = 4
NUM_STEPS = 24
SIDE = 128  # Of latents that are worth a kill: four times the work of 64.


class RayBench(Workbench):
    """A corpus, a web of it with some troubles, and what the single program makes of both."""

    def __init__(self):
        super().__init__(NUM_PICTURES)
        self.web = LoopbackWeb(self.path("corpus"), delay=0.03)
        self.urls = self.write_troubled_table()
        self.download = ["--metadata", self.urls, "--rows-per-file", ROWS_PER_FILE, "--concurrency", "1", "--retries", "0", "--timeout", "300", "--allow-private", f"127.0.0.1/32:{self.web.port}"]
        self.process = ["--model", self.model, "--resolution", SIDE, "--rows-per-file", ROWS_PER_FILE, "--batch-size", "1"]
        self.common = ["--num-cpus-per-task", "0.25", "--json-summary", self.path("summary.json")]

    def write_troubled_table(self) -> str:
        """Every seventh address leads nowhere."""
        path = self.write_url_table(self.web.port)
        table = pq.read_table(path)
        urls = [f"{url}-gone" if row % 7 == 6 else url for row, url in enumerate(table["URL"].to_pylist())]
        pq.write_table(table.set_column(table.schema.get_field_index("URL"), "URL", pa.array(urls)), path)
        return path

    @functools.cached_property
    def images(self) -> tuple[str, dict]:
        """Those of the single program, and its summary."""
        run("download", self.path("images"), *self.download, "--json-summary", self.path("images.json"))
        return self.path("images"), self.summary("images.json")["download"]

    @functools.cached_property
    def latents(self) -> tuple[str, dict]:
        run("process", self.images[0], self.path("latents"), *self.process, "--json-summary", self.path("latents.json"))
        return self.path("latents"), self.summary("latents.json")["process"]

    @functools.cached_property
    def training_latents(self) -> str:
        """Small ones."""
        run("process", self.images[0], self.path("small"), "--model", self.model, "--resolution", "64")
        return self.path("small")

    def summary(self, name: str = "summary.json") -> dict:
        return json.loads(pathlib.Path(self.path(name)).read_text(encoding="utf-8"))

    def require_same(self, name: str, reference: tuple[str, dict], verb: str) -> dict:
        """Parts and counts are those of the single program. What the cluster says of its work."""
        want = digests(reference[0], "part-*.parquet")
        require(len(want) > 3 and digests(self.path(name), "part-*.parquet") == want, "parts differ from those of the single program", name)
        got = self.summary()[verb]
        for field in ("rows_in", "rows_out", "rows_by_error", "parts", "items"):
            require(got[field] == reference[1][field], "the summary differs", field, got[field], reference[1][field])
        require(not list(pathlib.Path(self.path(name)).glob("_tmp.probe*")), "the probe left something", name)
        return got["cluster"]


@functools.cache
def the_bench() -> RayBench:
    bench = RayBench()
    atexit.register(bench.__exit__)
    return bench


the_cluster = cluster_of_script()


def what_the_cluster_lacks_is_refused_at_once() -> None:
    bench, cluster = the_bench(), the_cluster()
    wrong = (
        (["--model", bench.model, "--resolution", "none"], "--resolution"),  # The program's own sentence.
        (["--model", bench.model, "--accelerator-type", "A10G"], "no node has the accelerator type A10G"),
        (["--model", bench.path("nowhere"), "--resources", "encoder=1", "--num-encoders", "2"], "does not see"),
    )
    for flags, words in wrong:
        said = cluster.run("process", bench.path("corpus"), bench.path("refused"), *flags, expect=2)
        require(words in said, "the sentence is missing", words, said)
    require(not pathlib.Path(bench.path("refused")).exists(), "a job that did not begin left a folder")


def download_has_the_bytes_of_the_single_program_after_a_killed_worker() -> None:
    bench, cluster = the_bench(), the_cluster()
    driver = cluster.start("download", bench.path("c-images"), *bench.download, *bench.common, "--resources", "cpu=0.5", "--num-tasks", "2")
    output = bench.path("c-images")
    driver.wait_for(lambda: parts_in(output) and any(hold(pid) and kill(parent_of(pid)) for pid in programs("download", output)), "a task at work")
    driver.finish()
    about = bench.require_same("c-images", bench.images, "download")
    require(about["restarts"] >= 1, "the killed worker was not missed", about)
    require(bench.summary()["download"]["rows_by_error"] == {"http_404": NUM_PICTURES // 7}, "the troubles were not met", bench.summary())


def pages_in(folder: str) -> list[str]:
    """The numbers of the programs whose addresses lie there; not of those that are held or gone."""
    path = pathlib.Path(folder, "targets.json")
    targets = json.loads(path.read_text()) if path.exists() else []
    return [numbers_at(target["targets"][0], patience=1) for target in targets]


def process_has_the_bytes_of_the_single_program_after_kills_of_program_actor_and_node() -> None:
    bench, cluster = the_bench(), the_cluster()
    output = bench.path("c-latents")
    driver = cluster.start("process", bench.images[0], output, *bench.process, *bench.common, "--resources", "encoder=1", "--num-encoders", "2", "--items-per-task", "1", "--max-failures", "-1", "--metrics-folder", bench.path("watched"), "--trace-file", bench.path("spans.jsonl"))

    def next_program(but: set[int]) -> int:
        """A program that is none of these, held: what has a batch and is held keeps the job from its end."""
        return driver.wait_for(lambda: next(filter(hold, set(programs("process", output)) - but), 0), "a program")

    seen: list[str] = []

    def has_numbers() -> bool:
        """Whether a program at work has ever told its numbers."""
        if not seen:
            seen.extend(page for page in pages_in(bench.path("watched")) if "darkroom_rows_total{" in page)
        return bool(seen)

    # At once or after the kills: what is held tells none, and items must be left for all that are to be killed.
    driver.wait_for(lambda: parts_in(output) and (has_numbers() or parts_in(output) >= 8), "a part")
    one = next_program(set())
    first = [one, next_program({one})]
    require(kill(first[0]), "no program was killed")
    third = next_program({*first})
    require(kill(parent_of(first[1])), "no actor was killed")
    fourth = next_program({*first, third})
    cluster.kill_node("encoder")
    cluster.add_node("encoder")
    if not has_numbers():
        held = next_program({*first, third, fourth})  # Or the job might end before the other one has told any.
        driver.wait_for(has_numbers, "the numbers of a program at work")
        os.kill(held, signal.SIGCONT)
    driver.finish()
    about = bench.require_same("c-latents", bench.latents, "process")
    require(about["restarts"] >= 4, "a kill was not missed", about)
    require(json.loads(pathlib.Path(bench.path("watched"), "targets.json").read_text()) == [], "addresses outlive their programs")
    traces = [path for path in pathlib.Path(bench.path("spans.jsonl")).parent.glob("spans-*.jsonl") if '"encode"' in path.read_text()]
    # Those that were killed may have written none of theirs.
    require(traces and not pathlib.Path(bench.path("spans.jsonl")).exists(), "programs without a trace of their own", traces)
    end = time.monotonic() + PATIENCE
    while left := {third, fourth} & set(programs("process", output)):  # The node's workers end when they miss it, which may be after the job.
        require(time.monotonic() < end, "programs outlive their node", [described(pid) for pid in left], "held were", first, third, fourth)
        time.sleep(0.02)


def transformers_on_another_node_change_no_byte_and_are_replaced() -> None:
    bench, cluster = the_bench(), the_cluster()
    apart = ["--num-transformers", "2", "--transformers-per-actor", "1", "--num-cpus-per-transformer", "0.25", "--transformer-resources", "trainer=0.25"]
    driver = cluster.start("process", bench.images[0], bench.path("a-latents"), *bench.process, *bench.common, "--resources", "encoder=1", "--num-encoders", "1", "--items-per-task", "1", "--max-failures", "-1", *apart, "--metrics-folder", bench.path("a-watched"), "--trace-file", bench.path("a-spans.jsonl"))
    driver.wait_for(lambda: parts_in(bench.path("a-latents")), "a part")
    encoder = driver.wait_for(lambda: next(filter(hold, programs("process", bench.path("a-latents"))), 0), "a program")  # The job does not end meanwhile.
    before = set(programs("transformer", bench.images[0]))
    driver.wait_for(lambda: any('verb="transformer"' in page and 'stage="transform"' in page for page in pages_in(bench.path("a-watched"))), "the numbers of a transformer")
    require(kill(next(iter(before))), "no transformer was killed")
    driver.wait_for(lambda: set(programs("transformer", bench.images[0])) - before, "a new transformer")
    os.kill(encoder, signal.SIGCONT)
    driver.finish()
    about = bench.require_same("a-latents", bench.latents, "process")
    require(about["transformer_actors"] == 2 and about["transformer_actors_lost"] >= 1, "a lost transformer was not missed", about)
    end = time.monotonic() + PATIENCE
    while programs("transformer", bench.images[0]):  # Ray ends actors after the driver has gone.
        require(time.monotonic() < end, "transformers outlive their job")
        time.sleep(0.05)


def a_killed_driver_goes_on_with_the_same_command() -> None:
    bench, cluster = the_bench(), the_cluster()
    command = ["process", bench.images[0], bench.path("d-latents"), *bench.process, *bench.common, "--resources", "encoder=1", "--num-encoders", "1", "--items-per-task", "1"]
    driver = cluster.start(*command)
    driver.wait_for(lambda: parts_in(bench.path("d-latents")), "a part")
    driver.process.kill()
    driver.process.wait()
    cluster.run(*command)
    about = bench.require_same("d-latents", bench.latents, "process")
    require(about["items"] < NUM_PICTURES // ROWS_PER_FILE, "all was done again", about)
    cluster.run(*command)
    require(bench.require_same("d-latents", bench.latents, "process")["items"] == 0, "what is done was done again")


def train_command(bench: RayBench, output: str) -> list:
    settings = ["batch.global=12", "batch.micro=1", "runtime.gradient_groups=6", "runtime.workers=1", "runtime.watchdog_seconds=60", "checkpoint.every_steps=3", f"schedule.max_steps={NUM_STEPS}",
                "schedule.kind=constant", "schedule.warmup_steps=3", "samples.every_steps=0"]
    return ["train", "recipes/tiny.toml", "--data", bench.training_latents, "--model", bench.model, "--output", bench.path(output), *(word for one in settings for word in ("--set", one))]


def two_ranks_have_the_weights_of_nproc_2_after_a_killed_rank() -> None:
    bench, cluster = the_bench(), the_cluster()
    run(*train_command(bench, "run"), "--nproc", "2", "--max-restarts", "20")
    # Of four there is room for two with that label; other nodes have CPUs that nobody holds.
    driver = cluster.start(*train_command(bench, "c-run"), *bench.common, "--num-cpus-per-task", "1", "--label", "role=trainer", "--num-training-workers", "4", "--max-failures", "-1")
    checkpoints = pathlib.Path(bench.path("c-run"), "checkpoints")
    found = driver.wait_for(lambda: list(checkpoints.glob("step-*/state.json")) and programs("train", bench.path("c-run")), "a checkpoint of ranks at work")
    require(kill(found[-1]), "nothing was killed")
    driver.finish()
    about = bench.summary()["train"]["cluster"]
    require(about["restarts"] >= 1 and max(about["ranks"]) == 2, "a rank was not missed, or there were others", about)
    require(read_losses(bench.path("c-run")) == read_losses(bench.path("run")), "losses differ from those of --nproc 2")
    pattern = f"checkpoints/step-{NUM_STEPS:08d}/**/*.safetensors"
    want = digests(bench.path("run"), pattern)
    require(len(want) >= 3 and digests(bench.path("c-run"), pattern) == want, "weights differ from those of --nproc 2")
    pointers = list(pathlib.Path(bench.path("c-run"), "_ray").glob("*/checkpoint_*/checkpoint.json"))
    require(any(f"step-{NUM_STEPS:08d}" in path.read_text() for path in pointers), "Ray does not know the last checkpoint", pointers)


def online_has_the_losses_of_one_program_after_a_killed_encoder() -> None:
    bench, cluster = the_bench(), the_cluster()
    settings = ["batch.global=12", "batch.micro=1", "runtime.watchdog_seconds=300", "checkpoint.every_steps=100", f"schedule.max_steps={NUM_STEPS}", "samples.every_steps=0", "data.memory_bytes=1048576"]
    sets = [word for one in settings for word in ("--set", one)]
    common = ["recipes/tiny.toml", "--raw-data", bench.images[0], "--model", bench.model, *sets]
    run("train", *common, "--output", bench.path("here"))
    output = bench.path("c-online")
    driver = cluster.start("online", *common, "--output", output, *bench.common, "--resources", "trainer=1", "--num-encoders", "1", "--num-cpus-per-encoder", "0.25",
                           "--encoder-resources", "encoder=1", "--max-failures", "-1")
    metrics = pathlib.Path(output, "metrics.jsonl")
    trainer = driver.wait_for(lambda: metrics.exists() and metrics.stat().st_size and next(filter(hold, programs("train", output)), 0), "a step")
    first = programs("encoder", bench.images[0])[0]
    require(kill(first), "no encoder was killed")
    driver.wait_for(lambda: set(programs("encoder", bench.images[0])) - {first}, "a new encoder")
    os.kill(trainer, signal.SIGCONT)
    driver.finish()
    about = bench.summary()["train"]
    require(about["cluster"]["encoders_lost"] >= 1 and about["online"]["encoders"] >= 1, "the lost encoder was not missed", about)
    require(read_losses(output) == read_losses(bench.path("here")), "losses differ from those of one program")


def tune_command(bench: RayBench, output: str) -> list:
    """Three trials of 2 steps, the best of which goes on to 6."""
    settings = ["batch.global=4", "batch.micro=2", "runtime.workers=1", "validation.num_rows=4", "schedule.warmup_steps=2"]
    return ["tune", "recipes/tiny.toml", "--data", bench.training_latents, "--validation", bench.training_latents, "--model", bench.model, *(word for one in settings for word in ("--set", one)),
            "--set-range", "optimizer.lr=1e-4,1e-2,1e-3", "--trials", "3", "--samples", "24", "--budget", "60", "--workers", "2", "--output", bench.path(output)]


def scores(folder: str) -> dict[tuple[int, int], str]:
    """Of each stage that has ended, as the ledger writes it."""
    path = pathlib.Path(folder, "trials.jsonl")
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    ends = [line for line in whole.splitlines() if '"event":"end"' in line]
    found = {(about["trial"], about["rung"]): re.search(r'"loss":([^,}]*)', line)[1] for line in ends for about in [json.loads(line)]}
    require(len(found) == len(ends), "a stage ended twice", ends)
    return found


def a_search_has_the_scores_of_one_machine_after_kills_of_driver_and_worker() -> None:
    bench, cluster = the_bench(), the_cluster()
    run(*tune_command(bench, "tuned"))
    output = bench.path("c-tuned")
    command = [*tune_command(bench, "c-tuned"), *bench.common, "--label", "role=trainer"]
    driver = cluster.start(*command)
    driver.wait_for(lambda: scores(output), "a trial's end")
    driver.process.kill()
    driver.process.wait()
    before = pathlib.Path(output, "trials.jsonl").read_text().rpartition("\n")[0].splitlines()

    def trials_at_work() -> list[int]:
        return [pid for number in range(3) for pid in programs("train", f"{output}/trials/trial-{number:03d}")]

    end = time.monotonic() + PATIENCE
    while trials_at_work():
        require(time.monotonic() < end, "the trials of a dead driver do not end")
        time.sleep(0.05)
    driver = cluster.start(*command)
    found = driver.wait_for(lambda: next((pid for pid in trials_at_work() if hold(pid)), 0), "a trial at work")
    require(kill(parent_of(found)), "no worker was killed")
    driver.finish()
    require(pathlib.Path(output, "trials.jsonl").read_text().splitlines()[: len(before)] == before, "what had ended was done again")
    require(len(scores(output)) == 4 and scores(output) == scores(bench.path("tuned")), "scores differ from those of one machine", scores(output), scores(bench.path("tuned")))
    about = bench.summary()["tune"]
    require(about["cluster"] == {"workers": 2, "restarts": about["cluster"]["restarts"]} and about["cluster"]["restarts"] >= 1, "the killed worker was not missed", about)
    recipes = [pathlib.Path(folder, "best.toml").read_text().partition("\n\n")[2] for folder in (output, bench.path("tuned"))]
    require(len(recipes[0]) > 1000 and recipes[0] == recipes[1], "the best recipes differ", *recipes)


def a_sample_is_that_of_the_program() -> None:
    bench, cluster = the_bench(), the_cluster()
    arguments = ["--model", bench.path(f"run/checkpoints/step-{NUM_STEPS:08d}"), "--prompt", "a red heart", "--steps", "2", "--seed", "3", "--output"]
    run("sample", *arguments, bench.path("a.png"))
    cluster.run("sample", *arguments, bench.path("b.png"), *bench.common, "--label", "role=trainer")
    require(pathlib.Path(bench.path("a.png")).read_bytes() == pathlib.Path(bench.path("b.png")).read_bytes(), "the pictures differ")


if __name__ == "__main__":
    main(
        [
            what_the_cluster_lacks_is_refused_at_once,
            download_has_the_bytes_of_the_single_program_after_a_killed_worker,
            process_has_the_bytes_of_the_single_program_after_kills_of_program_actor_and_node,
            transformers_on_another_node_change_no_byte_and_are_replaced,
            a_killed_driver_goes_on_with_the_same_command,
            two_ranks_have_the_weights_of_nproc_2_after_a_killed_rank,
            online_has_the_losses_of_one_program_after_a_killed_encoder,
            a_search_has_the_scores_of_one_machine_after_kills_of_driver_and_worker,
            a_sample_is_that_of_the_program,
        ]
    )
