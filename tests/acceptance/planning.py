"""Acceptance 9: a job over 200,000 inputs of 10,000 rows begins within 10 s and 500 MB, a commit costs the same whatever their number, and a stop in
the middle of planning ends it within 2 s: in the library over files that take no room (planning.cpp), and as SIGTERM to the program over real ones."""

import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pyarrow as pa
import pyarrow.parquet as pq

from harness import PROGRAM, ROOT, Trials, build, judges, require, temporary_folder

SEED = 20261126
FILES = (20_000, 200_000)
FEW_FILES = 2_000
ROWS_PER_FILE = 10_000
START_SECONDS = (30, 10)  # The short form runs beside compilers.
START_MB = 500
COMMITS = (500, 2_000)
COMMIT_RATIO = (1.5, 1.2)
STOP_SECONDS = (10, 2)
STOPS = (2, 10)
LINKS = 50_000  # Of one file; ext4 allows 65,000.
PATIENCE = 300  # Seconds; a limit, no measure.


def planning(*words) -> dict:
    done = subprocess.run([build("planning"), *map(str, words)], capture_output=True, text=True, timeout=1800, cwd=ROOT, check=False)
    require(done.returncode == 0, "planning ended with", done.returncode, done.stdout[-1000:], done.stderr[-1000:])
    return json.loads(done.stdout)


def rounded(found: dict) -> dict:
    return {name: round(value, 3) for name, value in found.items()}


@judges(lambda: build("planning"))
def a_job_over_many_inputs_begins_soon(trials: Trials) -> None:
    files = trials.count(*FILES)
    found = trials.trial(f"{files} inputs", lambda: rounded(planning("start", files)))
    trials.figures.update(inputs=files, **found)
    require(found["items"] == files and found["rows"] == files * ROWS_PER_FILE, "items and rows of the plan", found)
    require(found["seconds"] <= trials.count(*START_SECONDS), "seconds to plan and pin", found)
    require(found["peak_mb"] <= START_MB, "MB of memory", found)


@judges(lambda: build("planning"))
def a_commit_costs_the_same_whatever_the_number_of_inputs(trials: Trials) -> None:
    files = trials.count(*FILES)
    found = trials.trial(f"{FEW_FILES} and {files} inputs", lambda: rounded(planning("commits", FEW_FILES, files, trials.count(*COMMITS))))
    ratio = found["large_us"] / found["small_us"]
    trials.figures.update(inputs=[FEW_FILES, files], ratio=round(ratio, 3), **found)
    require(ratio <= trials.count(*COMMIT_RATIO), "processor time of a commit with many inputs over that with few", ratio, found)


@judges(lambda: build("planning"))
def a_stop_ends_planning(trials: Trials) -> None:
    files, seconds = trials.count(*FILES), []
    for number, after in enumerate(random.Random(SEED).sample(range(1, files * 9 // 10), trials.count(*STOPS))):
        seconds.append(trials.trial(f"stop {number}", lambda: rounded(planning("stop", files, after)))["seconds"])
    trials.figures.update(inputs=files, stops=len(seconds), longest_seconds=max(seconds))
    require(max(seconds) <= trials.count(*STOP_SECONDS), "seconds from the stop to the end of planning", seconds)


def write_tables(folder: pathlib.Path, number: int) -> None:
    """So many names of one table of a few bytes."""
    folder.mkdir()
    for i in range(number):
        path = folder / f"{i:06d}.parquet"
        if i % LINKS == 0:
            first = path
            pq.write_table(pa.table({"URL": ["http://127.0.0.1:9/picture"], "TEXT": ["a picture"]}), path)
        else:
            os.link(first, path)


def num_reads(pid: int) -> int:
    """How many times the process has read something; 0 once it is gone."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("syscr:")), 0)


def terminate_while_it_plans(tables: pathlib.Path, output: pathlib.Path, log: pathlib.Path, reads: int) -> float | None:
    """SIGTERM once the program has read so often: seconds to its end. None: it had done its planning by then."""
    with open(log, "wb") as said:
        process = subprocess.Popen([str(PROGRAM), "download", str(output), "--metadata", str(tables), "--quiet"], stdout=said, stderr=said, cwd=ROOT)
    limit = time.monotonic() + PATIENCE
    while process.poll() is None and num_reads(process.pid) < reads and time.monotonic() < limit:
        time.sleep(0.002)
    has_planned = output.exists()  # The first thing that is written comes after the plan.
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"no end within {PATIENCE} s of SIGTERM") from None
    seconds = time.monotonic() - begin
    if has_planned:
        return None
    require(code == 143, "exit code, want 143:", code, log.read_text(errors="replace")[-1500:])
    require(not output.exists(), "a run that was stopped while it planned has written something", list(output.glob("*")) if output.exists() else "")
    return round(seconds, 3)


def sigterm_ends_a_program_that_plans(trials: Trials) -> None:
    """Over real files, at random moments: each table is read at least once while the plan is made."""
    files = trials.count(*FILES)
    generator = random.Random(SEED)
    with temporary_folder() as folder:
        write_tables(folder / "tables", files)

        def stopped(number: int) -> float:
            for attempt in range(20):
                reads = generator.randint(files // 20, files * 3 // 4)
                seconds = terminate_while_it_plans(folder / "tables", folder / f"out-{number}-{attempt}", folder / "log", reads)
                if seconds is not None:
                    return seconds
            raise AssertionError("SIGTERM comes behind the planning again and again")

        seconds = [trials.trial(f"SIGTERM {number}", lambda: stopped(number)) for number in range(trials.count(*STOPS))]
    trials.figures.update(inputs=files, stops=len(seconds), longest_seconds=max(seconds))
    require(max(seconds) <= trials.count(*STOP_SECONDS), "seconds from SIGTERM to the end", seconds)


CHECKS = [
    ("planning.start", a_job_over_many_inputs_begins_soon),
    ("planning.commits", a_commit_costs_the_same_whatever_the_number_of_inputs),
    ("planning.stop", a_stop_ends_planning),
    ("planning.sigterm", sigterm_ends_a_program_that_plans),
]
