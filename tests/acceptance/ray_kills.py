#!/usr/bin/env python3
"""Kills of every kind of process that darkroom-ray has on a cluster, at seeded random moments of a job: a worker of a task, an encoder, a
node, the driver, a rank, the head. Each job must end with the single program's bytes, no row lost and none twice. `ray_data` counts what the
same kills cost `ray.data`'s read_parquet -> map_batches -> write_parquet.

usage: ray_kills.py [--full] [--results FILE] [KIND...]       kinds: worker actor node driver rank head ray_data; without one all
--full is 20 kills of each kind, otherwise 2. The cluster stays between trials. Results go to build/acceptance/ray_short.json or
ray_full.json; a run that was cut goes on where it was, trial by trial. Exits 1 when a check failed.
"""

import atexit
import functools
import pathlib
import random
import sys
import time
import zlib

import pyarrow.parquet as pq

from harness import ROOT, LoopbackWeb, Trials, Workbench, darkroom, digests, main_of_kinds, require
from ray_kills_rival import Rival

from ray_bench import PATIENCE, Driver, RayCluster, kill, parent_of, parts_in, programs
from workbench import read_losses

SEED = 20261125
KILLS = (2, 20)
TRIES = 5  # Of a trial whose moment came after the job's end.
NUM_ROWS = 160
ROWS_PER_FILE = 4
STEPS = 32
ENDED_WITH_THE_JOB = ("driver", "head")  # Kinds after which the same command is run again.


class Clusters:
    """The cluster of the moment; another one after its head was killed."""

    def __init__(self) -> None:
        self._cluster: RayCluster | None = None
        self.num_started = 0

    def get(self) -> RayCluster:
        if self._cluster is None:
            self._cluster = RayCluster()
            self.num_started += 1
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


CLUSTERS = Clusters()
atexit.register(CLUSTERS.close)


class ItemJobs:
    """download or process, and what the single program makes of the same input."""

    def __init__(self, bench: Workbench, verb: str, inputs: list[str], arguments: list, placed: list) -> None:
        self.bench, self.verb, self.inputs = bench, verb, inputs
        self.arguments, self.placed = [str(word) for word in arguments], placed
        darkroom(verb, *inputs, self.reference, *self.arguments)

    @property
    def reference(self) -> str:
        return self.bench.path(f"{self.verb}-reference")

    @property
    def last_moment(self) -> int:
        return NUM_ROWS // ROWS_PER_FILE - 4

    def command(self, output: str) -> list[str]:
        return [self.verb, *self.inputs, output, *self.arguments, *self.placed, "--num-cpus-per-task", "0.25", "--max-failures", "-1"]

    def is_past(self, output: str, moment: int) -> bool:
        return parts_in(output) > moment

    def rows_of(self, output: str) -> list[str]:
        return [key for path in sorted(pathlib.Path(output).glob("part-*.parquet")) for key in pq.read_table(path, columns=["key"])["key"].to_pylist()]

    def require_same(self, output: str) -> dict:
        got, want = self.rows_of(output), self.rows_of(self.reference)
        lost, twice = len(set(want) - set(got)), len(got) - len(set(got))
        require(lost == 0 and twice == 0 and len(want) == NUM_ROWS, "rows were lost or are there twice (lost, twice, of)", lost, twice, len(want))
        require(digests(output, "part-*") == digests(self.reference, "part-*"), "other bytes than the single program's", output)
        return {"rows": len(got), "lost": lost, "twice": twice}


class TrainJobs:
    """train with two ranks, and the run of one process."""

    def __init__(self, bench: Workbench, images: str) -> None:
        self.bench, self.verb, self.last_moment = bench, "train", STEPS - 8
        darkroom("process", images, bench.path("small"), "--model", bench.model, "--resolution", "64")
        darkroom(*self.base(self.reference))

    @property
    def reference(self) -> str:
        return self.bench.path("train-reference")

    def base(self, output: str) -> list[str]:
        settings = ["batch.global=8", "batch.micro=1", "runtime.gradient_groups=4", "runtime.workers=1", "runtime.watchdog_seconds=60", "checkpoint.every_steps=3", "samples.every_steps=0",
                    f"schedule.max_steps={STEPS}", "schedule.kind=constant", "schedule.warmup_steps=3"]
        return ["train", "recipes/tiny.toml", "--data", self.bench.path("small"), "--model", self.bench.model, "--output", output, *(word for one in settings for word in ("--set", one))]

    def command(self, output: str) -> list[str]:
        return [*self.base(output), "--num-training-workers", "2", "--resources", "trainer=1", "--num-cpus-per-task", "0.25", "--max-failures", "-1"]

    def is_past(self, output: str, moment: int) -> bool:
        """A step after the first checkpoint is logged, and its ranks are there."""
        metrics = pathlib.Path(output, "metrics.jsonl")
        return metrics.exists() and metrics.read_bytes().count(b"\n") > moment and len(programs("train", output)) == 2

    def require_same(self, output: str) -> dict:
        got, want = read_losses(output), read_losses(self.reference)
        steps = [step for step, _ in got]
        require(steps == list(range(1, STEPS + 1)), "steps were lost or are there twice", steps)
        require(got == want, "losses differ from those of one process")
        pattern = f"checkpoints/step-{STEPS:08d}/**/*.safetensors"
        weights = digests(self.reference, pattern)
        require(len(weights) >= 3 and digests(output, pattern) == weights, "weights differ from those of one process")
        return {"steps": len(steps), "lost": 0, "twice": 0}


@functools.cache
def the_bench() -> Workbench:
    bench = Workbench(NUM_ROWS)
    atexit.register(bench.__exit__)
    return bench


@functools.cache
def images() -> str:
    return the_bench().write_image_dataset("images", NUM_ROWS)


@functools.cache
def jobs(verb: str):
    bench = the_bench()
    if verb == "train":
        return TrainJobs(bench, images())
    if verb == "process":
        arguments = ["--model", bench.model, "--resolution", "128", "--rows-per-file", ROWS_PER_FILE, "--batch-size", "1"]
        return ItemJobs(bench, verb, [images()], arguments, ["--resources", "encoder=1", "--num-encoders", "2", "--items-per-task", "1"])
    web = LoopbackWeb(bench.path("corpus"), delay=0.05)
    arguments = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", ROWS_PER_FILE, "--concurrency", "1", "--retries", "0", "--timeout", "300", "--allow-private", f"127.0.0.1/32:{web.port}"]
    return ItemJobs(bench, verb, [], arguments, ["--resources", "cpu=0.5", "--num-tasks", "2", "--items-per-task", "4"])


def verb_of(kind: str, number: int) -> str:
    """What a kind is tried on; the driver and the head on each in turn."""
    if kind in ENDED_WITH_THE_JOB:
        return ("process", "train", "download")[number % 3]
    return {"worker": "download", "rank": "train"}.get(kind, "process")


def strike(kind: str, cluster: RayCluster, driver: Driver, job, output: str, generator: random.Random) -> bool:
    """Whether what is meant was there, at work."""
    at_work = programs(job.verb, output)
    if driver.process.poll() is not None or not at_work:
        return False
    if kind == "driver":
        return kill(driver.process.pid)
    if kind == "head":
        cluster.kill_head()
        return True
    if kind == "node":
        cluster.kill_node("encoder")
        cluster.add_node("encoder")
        return True
    victim = generator.choice(at_work)
    is_program = kind == "rank" and generator.random() < 0.5
    return kill(victim if is_program else parent_of(victim))


def kill_once(kind: str, number: int, attempt: int) -> dict:
    """One job, one kill, and the same command again where the job ended with it."""
    generator = random.Random(SEED + 1000 * zlib.crc32(kind.encode()) + 10 * number + attempt)
    job, cluster = jobs(verb_of(kind, number)), CLUSTERS.get()
    output = the_bench().path(f"{kind}-{number}-{attempt}")
    moment, pause = generator.randrange(job.last_moment), generator.uniform(0, 0.3)
    driver = cluster.start(*job.command(output))
    driver.wait_for(lambda: job.is_past(output, moment) or driver.process.poll() == 0, f"moment {moment}")
    time.sleep(pause)  # So that the blow falls anywhere, not only behind a commit.
    begin = time.monotonic()
    is_hit = strike(kind, cluster, driver, job, output, generator)
    ended = 0.0
    if is_hit and kind in ENDED_WITH_THE_JOB:
        driver.process.wait(PATIENCE)
        ended = time.monotonic() - begin
        if kind == "head":
            CLUSTERS.close()
        CLUSTERS.get().run(*job.command(output))
    else:
        driver.finish()
    return {"hit": is_hit, "verb": job.verb, "moment": moment, "driver_ended_after": round(ended, 1), "seconds_after": round(time.monotonic() - begin, 1), **job.require_same(output)}


def kill_until_hit(kind: str, number: int) -> dict:
    for attempt in range(TRIES):
        found = kill_once(kind, number, attempt)
        if found["hit"]:
            return found
    raise AssertionError(f"no kill of {TRIES} hit the job: it is too short for this machine ({kind}, {number})")


def survives(kind: str):
    def check(trials: Trials) -> None:
        found = [trials.trial(f"{kind} {number}", lambda: kill_until_hit(kind, number)) for number in range(trials.count(*KILLS))]
        after = [one["seconds_after"] for one in found]
        trials.figures.update(kills=len(found), hits=sum(one["hit"] for one in found), rows=sum(one.get("rows", 0) for one in found), steps=sum(one.get("steps", 0) for one in found))
        if kind in ENDED_WITH_THE_JOB:
            trials.figures.update(driver_ended_after=max(one["driver_ended_after"] for one in found))
        trials.figures.update(lost=sum(one["lost"] for one in found), twice=sum(one["twice"] for one in found), seconds_to_the_end=[min(after), max(after)])

    return check


def the_same_kills_of_ray_data(trials: Trials) -> None:
    """Figures of another program: nothing is required of them but that its undisturbed run is whole."""
    rival = Rival(the_bench().folder, NUM_ROWS, images(), CLUSTERS)
    undisturbed = trials.trial("undisturbed", lambda: rival.run_once("undisturbed", "", random.Random(SEED)))
    require(undisturbed["lost"] == 0 and undisturbed["twice"] == 0, "ray.data alone loses rows: the comparison is not fair", undisturbed)
    for kind in ("worker", "actor", "node", "driver", "head"):
        found = [trials.trial(f"{kind} {number}", lambda: rival.run_until_hit(kind, number)) for number in range(trials.count(*KILLS))]
        trials.figures[kind] = {"kills": len(found), "jobs_that_ended_well": sum(one["exit_code"] == 0 for one in found), **{field: sum(one[field] for one in found) for field in ("lost", "twice")}}


KINDS = ("worker", "actor", "node", "driver", "rank", "head")
CHECKS = [*((f"ray_kills.{kind}", survives(kind)) for kind in KINDS), ("ray_kills.ray_data", the_same_kills_of_ray_data)]


if __name__ == "__main__":
    sys.exit(main_of_kinds(__doc__, CHECKS, "ray", [*(ROOT / "python").glob("darkroom*/*.py")]))
