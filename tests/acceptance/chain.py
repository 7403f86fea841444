"""Acceptance 1: the first half of the chain, a list on a hub -> pictures in a bucket -> latents in a bucket, with kill -9 at random requests to
the store: the bytes of the same jobs on a disk. The same on a real server, with training on s3:// behind it: radosgw.py."""

import contextlib
import pathlib
import random
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq

from harness import BUCKET, ROOT, FakeS3Server, FastWeb, Trials, Workbench, darkroom, require, temporary_folder
from kills import require_same, start

sys.path.insert(0, str(ROOT / "tests" / "support"))
from fake_hub import FakeHub  # noqa: E402

SEED = 20261126
NUM_PICTURES = (48, 1870)
NUM_ROWS = (240, 20_000)
ROWS_PER_FILE = (30, 250)
KILLS = (2, 20)  # Of each job.
LAST_REQUEST = 60  # A download of eight parts makes some 85, process more.
NUM_TABLES = 4
LIST = "hf://datasets/org/list/data/*.parquet"


def rows_of(bench: Workbench, num_rows: int) -> list[dict]:
    """The corpus's pictures again and again; what is served at /ROW is in `file`."""
    rows = pq.read_table(bench.folder / "corpus" / "urls.parquet").to_pylist()
    return [{**rows[i % len(rows)], "file": "pictures/" + rows[i % len(rows)]["URL"].rsplit("/", 1)[1]} for i in range(num_rows)]


def write_tables(folder: pathlib.Path, rows: list[dict], port: int) -> None:
    folder.mkdir(parents=True)
    served = [{"URL": f"http://127.0.0.1:{port}/{i}", "TEXT": row["TEXT"]} for i, row in enumerate(rows)]
    for number in range(NUM_TABLES):
        of_table = served[number * len(rows) // NUM_TABLES : (number + 1) * len(rows) // NUM_TABLES]
        pq.write_table(pa.Table.from_pylist(of_table), folder / f"train-{number:05d}.parquet")


class ListOnHub:
    """A list of `num_rows` pictures, as tables on a hub and the same ones on a disk, and the web that has the pictures."""

    def __init__(self, bench: Workbench, folder: pathlib.Path, num_rows: int):
        self.bench, self.folder, self.num_rows = bench, folder, num_rows

    def __enter__(self) -> "ListOnHub":
        with contextlib.ExitStack() as stack:
            self.hub = stack.enter_context(FakeHub(self.folder / "hub"))
            rows = rows_of(self.bench, self.num_rows)
            web = stack.enter_context(FastWeb(self.bench.folder / "corpus", {f"/{i}": {"file": row["file"]} for i, row in enumerate(rows)}))
            self.tables = self.hub.root / "datasets" / "org" / "list" / "data"
            write_tables(self.tables, rows, web.port)
            self.web_flags = ["--per-host", "64", "--allow-private", f"127.0.0.1/32:{web.port}"]
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *unused) -> None:
        self.stack.close()

    def environment(self) -> dict[str, str]:
        return {"HF_ENDPOINT": self.hub.endpoint, "HF_HOME": str(self.folder / "no-home")}

    def require_read(self) -> None:
        require(self.hub.byte_requests != [], "the list was not read from the hub")


def is_killed_at_request(command: list, environment: dict, server: FakeS3Server, num_requests: int) -> bool:
    """Kills the job once the store has had so many more requests; False: it had ended before, well."""
    last = int(server.tell("calls")) + num_requests
    process = start(command, environment)
    limit = time.monotonic() + 900
    while process.poll() is None and int(server.tell("calls")) < last and time.monotonic() < limit:
        time.sleep(0.001)
    process.kill()
    require(time.monotonic() < limit, "the job neither asks nor ends", command[0])
    code = process.wait()
    require(code in (0, -9), "the job's exit code", command[0], code)
    return code != 0


def run_with_kills(job: tuple[str, list, list], place: str, environment: dict, server: FakeS3Server, num_kills: int) -> dict:
    """The job to its end in `place`, behind `num_kills` kills of it there; a job that ended before its kill makes room for another one."""
    verb, inputs, flags = job
    generator = random.Random(f"{SEED} {verb}")
    kills = jobs = 0
    while kills < num_kills:
        command = [verb, *inputs, place if jobs == 0 else f"{place}-{jobs}", *flags]
        require(jobs <= 10 * num_kills, "the kills come too late again and again (kills, jobs):", kills, jobs)
        while kills < num_kills and is_killed_at_request(command, environment, server, generator.randint(1, LAST_REQUEST)):
            kills += 1
        jobs += 1
        darkroom(*command, environment=environment)
    return {"kills": kills, "jobs": jobs}


def a_list_on_a_hub_becomes_latents_in_a_bucket(trials: Trials) -> None:
    num_rows, rows_per_file, num_kills = trials.count(*NUM_ROWS), str(trials.count(*ROWS_PER_FILE)), trials.count(*KILLS)
    with Workbench(trials.count(*NUM_PICTURES)) as bench, temporary_folder() as folder, ListOnHub(bench, folder, num_rows) as given, FakeS3Server() as server:
        environment = server.environment(**given.environment())
        download = ["--rows-per-file", rows_per_file, *given.web_flags]
        process = ["--model", bench.model, "--resolution", "64", "--rows-per-file", rows_per_file]
        darkroom("download", folder / "images", "--metadata", given.tables, *download)
        darkroom("process", folder / "images", folder / "latents", *process)
        jobs = {"images": ("download", [], ["--metadata", LIST, *download]), "latents": ("process", [f"s3://{BUCKET}/images"], process)}
        trials.figures["rows"] = num_rows
        for name, job in jobs.items():
            trials.figures[job[0]] = run_with_kills(job, f"s3://{BUCKET}/{name}", environment, server, num_kills)
        given.require_read()
        objects = server.dump(folder / "objects")
        for written in sorted(path for path in objects.iterdir() if path.is_dir()):
            require_same(written, folder / written.name.split("-")[0])
        require(all((objects / name).is_dir() for name in jobs), "folders of the bucket", list(objects.iterdir()))


CHECKS = [("chain.hub_to_s3", a_list_on_a_hub_becomes_latents_in_a_bucket)]
