#!/usr/bin/env python3
"""The jobs of docs/recipes_data.md at miniature size, against an S3 server on this machine: the same flags, stopped and gone on with."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq

from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, digests, main, require, run

sys.path.insert(0, str(ROOT / "tests" / "acceptance"))

from harness import BUCKET, FakeS3Server, darkroom, temporary_folder  # noqa: E402

ROWS = 120
FILES = 3
LIMIT_SECONDS = 300


class Recipe:
    """A web, a list of URLs in three files, a store, and the local run that everything is held against."""

    def __init__(self, delay: float = 0.0):
        self.bench = Workbench(ROWS)
        self.web = LoopbackWeb(self.bench.path("corpus"), delay)
        self.tables = pathlib.Path(self.bench.path("urls"))
        self.tables.mkdir()
        whole = pq.read_table(self.bench.write_url_table(self.web.port))
        for i in range(FILES):
            pq.write_table(whole.slice(i * ROWS // FILES, ROWS // FILES), self.tables / f"part-{i:05d}.parquet")
        self.server = FakeS3Server()
        self.network = ["--allow-private", f"127.0.0.1/32:{self.web.port}"]

    def __enter__(self) -> "Recipe":
        return self

    def __exit__(self, *unused) -> None:
        self.server.__exit__()
        self.web.__exit__()
        self.bench.__exit__()

    def place(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def run(self, *arguments, verb: str = "") -> dict:
        summary = self.bench.path("summary.json")
        darkroom(*arguments, "--json-summary", summary, environment=self.server.environment())
        return json.loads(pathlib.Path(summary).read_text())[verb or arguments[0]]

    def start(self, *arguments) -> subprocess.Popen:
        return subprocess.Popen([str(PROGRAM), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=self.server.environment())

    def parts(self, name: str) -> dict[str, str]:
        with temporary_folder() as folder:
            return digests(str(self.server.dump(folder) / name), "part-*.parquet")  # {} where there is no such folder.


def a_sample_goes_straight_to_the_store_and_goes_on_by_parts() -> None:
    with Recipe(delay=0.1) as recipe:
        flags = ["--metadata", f"{recipe.tables}/part-*.parquet", "--where", "WIDTH >= 1 AND HEIGHT >= 1", "--limit", "100", "--rows-per-file", "10", *recipe.network]
        run("download", recipe.bench.path("local"), *flags)
        want = digests(recipe.bench.path("local"), "part-*.parquet")
        job = ["download", recipe.place("laion/images"), *flags, "--scratch-bytes", "0", "--memory", "256MB", "--concurrency", "2"]

        looked = recipe.run(*job, "--dry-run")
        estimate = looked["estimate"]
        require(estimate["rows_pending"] == 100 and estimate["items_pending"] == 10, "rows and items of the estimate", estimate)
        require(0 < estimate["hours"]["low"] <= estimate["hours"]["high"], "hours", estimate["hours"])
        require(0 < estimate["dollars_per_month"]["low"], "price of keeping", estimate)
        require(any("20" in line for line in estimate["assumptions"]), "assumptions have dates", estimate["assumptions"])
        require(recipe.parts("laion/images") == {}, "a dry run wrote parts")

        process = recipe.start(*job)
        deadline = time.monotonic() + LIMIT_SECONDS
        while not recipe.parts("laion/images"):
            require(process.poll() is None and time.monotonic() < deadline, "the run ended before a part was there", process.poll())
        process.send_signal(signal.SIGKILL)
        process.wait()
        done = recipe.parts("laion/images")
        require(0 < len(done) < len(want), "parts after the kill", len(done))
        rest = recipe.run(*job)
        require(rest["rows_this_run"] <= 100 - 10 * len(done), "parts that were there were done again", rest["rows_this_run"], len(done))
        require(recipe.parts("laion/images") == want, "other parts than on a disk")
        require(recipe.run(*job)["rows_this_run"] == 0, "a finished job did something")
        recipe.run(*job, "--clean", verb="clean")
        require(int(recipe.server.tell("uploads")) == 0, "open uploads are left")

        more = [word if word != "100" else "115" for word in job]  # The parts of the limit grow.
        require(recipe.run(*more)["rows_this_run"] == 15, "rows of a larger limit")


def many_machines_share_a_list_without_a_leader() -> None:
    with Recipe() as recipe:
        require(recipe.server.tell(f"load {recipe.tables} laion2b/urls") == "ok", "the store has no tables")
        require(recipe.server.tell(f"load {recipe.bench.model} models/tiny") == "ok", "the store has no model")
        flags = ["--rows-per-file", "10", *recipe.network]
        run("download", recipe.bench.path("local"), "--metadata", str(recipe.tables), *flags)
        job = ["download", recipe.place("laion2b/images"), "--metadata", recipe.place("laion2b/urls"), *flags]
        machines = [recipe.start(*job, "--shard", "0/3"), recipe.start(*job, "--shard", "1/3"), recipe.start(*job)]
        codes = [machine.wait(timeout=LIMIT_SECONDS) for machine in machines]
        rest = recipe.run(*job)  # What is left, where a machine was refused because another one pinned the list at the same moment.
        require(codes.count(0) >= 1, "exit codes", codes)
        require(rest["parts"] == ROWS // 10 and rest["rows_in"] == ROWS, "parts and rows of the whole", rest)
        require(recipe.parts("laion2b/images") == digests(recipe.bench.path("local"), "part-*.parquet"), "other parts than one machine makes")

        options = ["--resolution", "64", "--rows-per-file", "20", "--text", "tokens"]
        run("process", recipe.bench.path("local"), recipe.bench.path("latents"), "--model", recipe.bench.model, *options)
        stage = ["process", recipe.place("laion2b/images"), recipe.place("laion2b/latents"), "--model", recipe.place("models/tiny"), *options]
        estimate = recipe.run(*stage, "--dry-run")["estimate"]
        require(0 < estimate["rows_per_second"]["low"] <= estimate["rows_per_second"]["high"], "the encoder was not tried", estimate)
        machines = [recipe.start(*stage, "--shard", "0/2"), recipe.start(*stage, "--shard", "1/2")]
        codes = [machine.wait(timeout=LIMIT_SECONDS) for machine in machines]
        recipe.run(*stage)
        require(codes.count(0) >= 1, "exit codes", codes)
        require(recipe.parts("laion2b/latents") == digests(recipe.bench.path("latents"), "part-*.parquet"), "other latents than one machine makes")


if __name__ == "__main__":
    main([a_sample_goes_straight_to_the_store_and_goes_on_by_parts, many_machines_share_a_list_without_a_leader])
