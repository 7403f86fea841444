#!/usr/bin/env python3
"""The command lines of docs/recipes_data.md at miniature size, against a hub and an S3 server on this machine, stopped and gone on with."""

import json
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq

from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, digests, main, require, run

sys.path += [str(ROOT / "tests" / "acceptance"), str(ROOT / "tests" / "support")]

from fake_hub import FakeHub  # noqa: E402
from harness import BUCKET, FakeS3Server, darkroom, temporary_folder  # noqa: E402

ROWS = 120
FILES = 3
LIMIT_SECONDS = 300


PAGE = ROOT / "docs" / "recipes_data.md"
MODEL = "hf://stabilityai/stable-diffusion-2-base"
# What is smaller here than on the page, flag by flag; a scratch folder and shards besides.
SMALLER = {"--limit": "100", "--rows-per-file": "10", "--memory": "256MB", "--resolution": "64"}
UNUSED = set()  # Lines of the page that no test has run yet.


def lines_of_the_page() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("darkroom ")]


class Recipe:
    """A web, a hub with a list of URLs in three files and a model, a store, and the local run that everything is held against."""

    def __init__(self, delay: float = 0.0):
        self.bench = Workbench(ROWS)
        self.web = LoopbackWeb(self.bench.path("corpus"), delay)
        self.hub = FakeHub(self.bench.folder / "hub")
        self.tables = self.hub.root / "datasets" / "ORG" / "LAION"
        self.tables.mkdir(parents=True)
        whole = pq.read_table(self.bench.write_url_table(self.web.port))
        for side in ("WIDTH", "HEIGHT"):  # Every other row passes the page's condition.
            whole = whole.set_column(whole.schema.get_field_index(side), side, pa.array([256 - i % 2 for i in range(ROWS)]))
        for i in range(FILES):
            pq.write_table(whole.slice(i * ROWS // FILES, ROWS // FILES), self.tables / f"part-{i:05d}.parquet")
        shutil.copytree(self.bench.model, self.hub.root / "models" / MODEL.removeprefix("hf://"))
        scheduler = self.hub.root / "models" / MODEL.removeprefix("hf://") / "scheduler" / "scheduler_config.json"
        scheduler.write_text(json.dumps({**json.loads(scheduler.read_text()), "prediction_type": "epsilon"}))  # As the page's model.
        self.hub.__enter__()
        self.server = FakeS3Server()
        self.network = ["--allow-private", f"127.0.0.1/32:{self.web.port}"]
        self.environment = self.server.environment(HF_ENDPOINT=self.hub.endpoint, HF_HOME=self.bench.path("no-home"))

    def __enter__(self) -> "Recipe":
        return self

    def __exit__(self, *unused) -> None:
        self.server.__exit__()
        self.hub.__exit__()
        self.web.__exit__()
        self.bench.__exit__()

    def line(self, begin: str, *holds: str, shard: str = "") -> list[str]:
        """The one line of the page that begins so and has these words, made smaller."""
        found = [line for line in lines_of_the_page() if line.startswith("darkroom " + begin) and all(word in shlex.split(line) for word in holds)]
        if "--shard" not in holds:
            found = [line for line in found if "--shard" not in line]
        require(len(found) == 1, "lines of the page that begin with", begin, holds, found)
        UNUSED.discard(found[0])
        words = [word.replace("BUCKET", BUCKET) for word in shlex.split(found[0])[1:]]
        smaller = {**SMALLER, "--scratch": self.bench.path("scratch"), "--shard": shard}
        words = [smaller.get(flag, word) for flag, word in zip(["", *words], words)]
        return [*words, *(self.network if words[0] == "download" else [])]

    def place(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def run(self, *arguments, verb: str = "") -> dict:
        summary = self.bench.path("summary.json")
        darkroom(*arguments, "--json-summary", summary, environment=self.environment)
        return json.loads(pathlib.Path(summary).read_text())[verb or arguments[0]]

    def ask(self, *line: str) -> None:
        darkroom(*self.line(*line), environment=self.environment)

    def stored(self, name: str) -> bytes:
        with temporary_folder() as folder:
            return (self.server.dump(folder) / name).read_bytes()

    def num_rows(self, name: str) -> int:
        with temporary_folder() as folder:
            return pq.read_table(self.server.dump(folder) / name, columns=["key"]).num_rows

    def start(self, *arguments) -> subprocess.Popen:
        return subprocess.Popen([str(PROGRAM), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=self.environment)

    def parts(self, name: str) -> dict[str, str]:
        with temporary_folder() as folder:
            return digests(str(self.server.dump(folder) / name), "part-*.parquet")  # {} where there is no such folder.


def a_sample_goes_straight_to_the_store_and_goes_on_by_parts() -> None:
    with Recipe(delay=0.1) as recipe:
        job = recipe.line("download s3://BUCKET/laion/images")
        require(job.count("--dry-run") == 1, "the page says how to look first", job)
        job = [*(word for word in job if word != "--dry-run"), "--concurrency", "2"]
        here = [str(recipe.tables / "part-*.parquet") if word.startswith("hf://") else word for word in job]
        run("download", recipe.bench.path("local"), *here[2:])
        want = digests(recipe.bench.path("local"), "part-*.parquet")

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
        require(bool(recipe.hub.byte_requests), "the list was not read from the hub")

        recipe.ask("inspect s3://BUCKET/laion/images", "--html")
        recipe.ask("inspect s3://BUCKET/laion/images", "--verify")
        require("<html" in recipe.stored("laion/look.html").decode(), "no page was written")
        encoded = recipe.run(*recipe.line("process s3://BUCKET/laion/images"))
        require(encoded["rows_out"] == recipe.num_rows("laion/images") > 0, "rows of the latents", encoded)


def many_machines_share_a_list_without_a_leader() -> None:
    with Recipe() as recipe:
        require(recipe.server.tell(f"load {recipe.tables} laion2b/urls") == "ok", "the store has no tables")
        job = recipe.line("download s3://BUCKET/laion2b/images")
        run("download", recipe.bench.path("local"), *[str(recipe.tables) if word.startswith("s3://") else word for word in job[2:]])
        shards = [recipe.line("download s3://BUCKET/laion2b/images", "--shard", shard=f"{i}/3") for i in range(2)]
        machines = [recipe.start(*one) for one in (*shards, job)]
        codes = [machine.wait(timeout=LIMIT_SECONDS) for machine in machines]
        rest = recipe.run(*job)  # What is left, where a machine was refused because another one pinned the list at the same moment.
        require(codes.count(0) >= 1, "exit codes", codes)
        require(rest["parts"] == ROWS // 10 and rest["rows_in"] == ROWS, "parts and rows of the whole", rest)
        require(recipe.parts("laion2b/images") == digests(recipe.bench.path("local"), "part-*.parquet"), "other parts than one machine makes")

        shards = [recipe.line("process s3://BUCKET/laion2b/images", "--shard", shard=f"{i}/2") for i in range(2)]
        stage = [word for flag, word in zip(["", *shards[0]], shards[0]) if "--shard" not in (flag, word)]
        run("process", recipe.bench.path("local"), recipe.bench.path("latents"), *[recipe.bench.model if word == MODEL else word for word in stage[3:]])
        estimate = recipe.run(*stage, "--dry-run")["estimate"]
        require(0 < estimate["rows_per_second"]["low"] <= estimate["rows_per_second"]["high"], "the encoder was not tried", estimate)
        machines = [recipe.start(*one) for one in shards]
        codes = [machine.wait(timeout=LIMIT_SECONDS) for machine in machines]
        recipe.run(*stage)
        require(codes.count(0) >= 1, "exit codes", codes)
        require(recipe.parts("laion2b/latents") == digests(recipe.bench.path("latents"), "part-*.parquet"), "other latents than one machine makes")
        with temporary_folder() as folder:
            table = pq.read_table(recipe.server.dump(folder) / "laion2b" / "latents")
            require(table.num_rows == ROWS and None not in table["hash"].to_pylist(), "the carried column", table.schema)

        small = ["data.resolution=64", "data.window_blocks=1", "data.memory_bytes=100000000", "batch.global=4", "batch.micro=2", "runtime.gradient_groups=2", "runtime.threads=2", "samples.every_steps=0"]
        trained = recipe.run(*recipe.line("train"), "--max-steps", "2", *(word for one in small for word in ("--set", one)))
        require(trained["steps"] == 2, "steps", trained)
        require(bool(recipe.stored("run/run.json")), "the run folder is not in the store")


def every_line_of_the_page_was_run() -> None:
    require(not UNUSED, "lines of docs/recipes_data.md that no test runs:", UNUSED)


if __name__ == "__main__":
    UNUSED.update(lines_of_the_page())
    main([a_sample_goes_straight_to_the_store_and_goes_on_by_parts, many_machines_share_a_list_without_a_leader, every_line_of_the_page_was_run])
