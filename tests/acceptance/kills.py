"""Acceptance 2: kill -9 at random moments, of download and process, on a disk and on S3, alone and with three processes that share a job."""

import contextlib
import itertools
import pathlib
import random
import signal
import subprocess
import time

import pyarrow.parquet as pq

from harness import BUCKET, PROGRAM, ROOT, FakeS3Server, LoopbackWeb, Trials, Workbench, darkroom, digests, require, summary_of, temporary_folder

SEED = 20261123
KILLS = (10, 200)  # Short and full, of each job: those that hit it while it ran.
KILLS_A_ROUND = 10
SHARED_ROUNDS = (3, 200)  # Of three processes each.
MOST_UNSHARED = 12  # Rounds of the short form: on a busy machine one process may have done all before the others have started.
SHARED_ROWS, SHARED_ITEMS = 120, 24
LEAST_SHARE = 0.1


def start(arguments: list, environment: dict | None = None) -> subprocess.Popen:
    return subprocess.Popen([str(PROGRAM), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment)


def kill_at(process: subprocess.Popen, seconds: float) -> bool:
    """Whether the kill hit a running process."""
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True


def keys_of(folder: pathlib.Path) -> list[str]:
    return pq.read_table(folder, columns=["key"])["key"].to_pylist()


def require_same(folder: pathlib.Path, reference: pathlib.Path) -> None:
    want = digests(str(reference), "part-*.parquet")
    require(bool(want) and digests(str(folder), "part-*.parquet") == want, "parts differ from the undisturbed run", folder)
    keys = keys_of(folder)
    require(len(keys) == len(set(keys)) and sorted(keys) == sorted(keys_of(reference)), "rows were lost or are there twice", folder)


class Place:
    """Where a job writes: folders of a disk, or prefixes of a bucket that are looked at as folders."""

    def __init__(self, folder: pathlib.Path, server: FakeS3Server | None):
        self.folder, self.server = folder, server
        self.environment = server.environment() if server else None

    def uri(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}" if self.server else str(self.folder / name)

    def look(self, name: str) -> pathlib.Path:
        if not self.server:
            return self.folder / name
        return self.server.dump(self.folder / f"dump-{time.monotonic_ns()}") / name


def arguments_of(bench: Workbench, web: LoopbackWeb, verb: str, workers: int = 4, rows_per_file: int = 0) -> list[str]:
    if verb == "download":
        return ["--metadata", bench.write_url_table(web.port), "--rows-per-file", str(rows_per_file or 30), "--concurrency", str(workers), "--allow-private", f"127.0.0.1/32:{web.port}"]
    return ["--model", bench.model, "--resolution", "64", "--rows-per-file", str(rows_per_file or 20), "--batch-size", "8", "--num-transformers", str(workers), "--num-encoders", str(min(workers, 2))]


def survives(trials: Trials, verb: str, on_s3: bool) -> None:
    with Workbench(trials.count(120, 240)) as bench, LoopbackWeb(bench.path("corpus"), delay=0.02) as web, temporary_folder() as folder:
        images = bench.write_image_dataset("images", 80)
        inputs = [images] if verb == "process" else []
        server = FakeS3Server() if on_s3 else None
        try:
            place = Place(folder, server)
            begin = time.monotonic()
            darkroom(verb, *inputs, folder / "reference", *arguments_of(bench, web, verb))
            seconds = time.monotonic() - begin
            for workers in (1, 2, 8):
                darkroom(verb, *inputs, folder / f"workers-{workers}", *arguments_of(bench, web, verb, workers))
                require_same(folder / f"workers-{workers}", folder / "reference")
            num_rounds = trials.count(*KILLS) // KILLS_A_ROUND
            rounds = [trials.trial(f"round {number}", lambda: kill_round(place, verb, inputs, arguments_of(bench, web, verb), seconds, number)) for number in range(num_rounds)]
            trials.figures.update({name: sum(found[name] for found in rounds) for name in ("kills", "jobs")}, lost_rows=0, duplicate_rows=0)
        finally:
            if server:
                server.process.kill()


def num_parts(folder: pathlib.Path) -> int:
    return len(list(folder.glob("part-*.parquet")))


def kill_round(place: Place, verb: str, inputs: list[str], arguments: list[str], seconds: float, number: int) -> dict:
    """Kills that hit a running job, each a little further on, and its end; a job that is done before makes room for another one."""
    generator = random.Random(SEED + number)
    whole = num_parts(place.folder / "reference")
    hits = jobs = tries = 0
    while hits < KILLS_A_ROUND:
        require(tries < 20 * KILLS_A_ROUND, "the kills come too late again and again (kills, tries, seconds of a run):", hits, tries, seconds)
        name = f"{verb}-killed-{number}-{jobs}"
        is_hit = True
        while is_hit and hits < KILLS_A_ROUND:
            left = 1 - num_parts(place.look(name)) / whole  # A run that goes on is shorter, but for its start.
            is_hit = kill_at(start([verb, *inputs, place.uri(name), *arguments], place.environment), generator.uniform(0.03, max(0.1, seconds * left)))
            hits += is_hit
            tries += 1
        darkroom(verb, *inputs, place.uri(name), *arguments, environment=place.environment)
        require_same(place.look(name), place.folder / "reference")
        jobs += 1
    return {"kills": hits, "jobs": jobs}


def three_processes_share_a_job(trials: Trials, verb: str, on_s3: bool) -> None:
    """One of the three is killed for good; the other two end with what a run alone gives, and both had a share in it."""
    with Workbench(SHARED_ROWS) as bench, LoopbackWeb(bench.path("corpus"), delay=0.05) as web, temporary_folder() as folder:
        images = bench.write_image_dataset("images", 80)
        inputs = [images] if verb == "process" else []
        arguments = arguments_of(bench, web, verb, rows_per_file=SHARED_ROWS // SHARED_ITEMS)
        server = FakeS3Server() if on_s3 else None
        try:
            place = Place(folder, server)
            begin = time.monotonic()
            darkroom(verb, *inputs, folder / "reference", *arguments)
            seconds = time.monotonic() - begin
            both = []
            while len(both) < trials.count(*SHARED_ROUNDS) or (not trials.is_full and not any(map(min, both)) and len(both) < MOST_UNSHARED):
                number = len(both)
                both.append(trials.trial(f"round {number}", lambda: shared_round(place, [verb, *inputs], arguments, seconds, number))["rows"])
            shared = sum(min(rows) > 0 for rows in both)
            share = sum(map(min, both)) / max(1, sum(map(sum, both)))
            trials.figures.update(rounds=len(both), kills=len(both), lost_rows=0, duplicate_rows=0, items=SHARED_ITEMS, shared_rounds=shared, least_share=round(share, 3))
            require(shared > 0, "of the two that lived one did all in every round (rows of both by round)", both)
            if trials.is_full:
                require(share >= LEAST_SHARE, "of the two that lived one did all but this share of the rows (share, rows of both by round)", share, both)
                require(2 * shared > len(both), "in most rounds one of the two that lived did nothing", both)
        finally:
            if server:
                server.process.kill()


def shared_round(place: Place, command: list[str], arguments: list[str], seconds: float, number: int) -> dict:
    """Rows that the two did which lived, in a job of which the third one was hit by its kill."""
    generator = random.Random(SEED + 7 * number)
    for jobs in range(1, 21):
        name = f"shared-{number}-{jobs}"
        summaries = [place.folder / f"{name}-{process}.json" for process in range(3)]
        processes = [start([*command, place.uri(name), *arguments, "--json-summary", summary], place.environment) for summary in summaries]
        is_hit = kill_at(processes[0], generator.uniform(0.05, max(0.1, seconds / jobs)))
        codes = [process.wait(timeout=900) for process in processes[1:]]
        require(codes == [0, 0], "exit codes of the two that live", codes)
        # What the dead one held is done by the others, or by the next run, at the latest.
        darkroom(*command, place.uri(name), *arguments, environment=place.environment)
        require_same(place.look(name), place.folder / "reference")
        if is_hit:
            return {"kills": 1, "jobs": jobs, "rows": [summary_of(summary, command[0])["rows_this_run"] for summary in summaries[1:]]}
    require(False, "no kill hit a running job (seconds of a run alone):", seconds)


def splits_give_the_same_bytes(trials: Trials) -> None:
    """By 2 and by 3 on a disk; in the full form by 1 to 7, also on S3."""
    with Workbench(120) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder, contextlib.ExitStack() as ends:
        images = bench.write_image_dataset("images", 40)
        places = [Place(folder, None)]
        if trials.is_full:
            places.append(Place(folder, ends.enter_context(FakeS3Server())))
        splits = range(1, 8) if trials.is_full else (2, 3)
        for verb, inputs in (("download", []), ("process", [images])):
            arguments = arguments_of(bench, web, verb)
            darkroom(verb, *inputs, folder / f"{verb}-whole", *arguments)
            for place, num_shards in itertools.product(places, splits):
                name = f"{verb}-{num_shards}"
                for shard in range(num_shards):
                    darkroom(verb, *inputs, place.uri(name), *arguments, "--shard", f"{shard}/{num_shards}", environment=place.environment)
                require_same(place.look(name), folder / f"{verb}-whole")
        trials.figures.update(splits=2 * len(places) * len(splits))


CHECKS = [
    ("kills.download", lambda trials: survives(trials, "download", False)),
    ("kills.process", lambda trials: survives(trials, "process", False)),
    ("kills.download_s3", lambda trials: survives(trials, "download", True)),
    ("kills.process_s3", lambda trials: survives(trials, "process", True)),
    ("kills.shared_download", lambda trials: three_processes_share_a_job(trials, "download", False)),
    ("kills.shared_process", lambda trials: three_processes_share_a_job(trials, "process", False)),
    ("kills.shared_download_s3", lambda trials: three_processes_share_a_job(trials, "download", True)),
    ("kills.shared_process_s3", lambda trials: three_processes_share_a_job(trials, "process", True)),
    ("kills.splits", splits_give_the_same_bytes),
]
