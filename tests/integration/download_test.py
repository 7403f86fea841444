#!/usr/bin/env python3
"""Which rows and items a download does, and where what waits lies: through the program, against one undisturbed run."""

import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import time
import urllib.request

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, digests, main, require, run, run_killed, said_on_a_terminal

ROWS = 100


class Downloads:
    """One web and one table; what is told apart are the flags."""

    def __enter__(self) -> "Downloads":
        self.bench = Workbench(ROWS)
        self.web = LoopbackWeb(self.bench.path("corpus"))
        self.table = self.bench.write_url_table(self.web.port)
        return self

    def __exit__(self, *unused) -> None:
        self.web.__exit__()
        self.bench.__exit__()

    def arguments(self, out: str, *flags: str) -> list[str]:
        common = ["--metadata", self.table, "--rows-per-file", "20", "--allow-private", f"127.0.0.1/32:{self.web.port}"]
        return ["download", self.bench.path(out), *common, "--json-summary", self.bench.path(out + ".json"), *flags]

    def run(self, out: str, *flags: str, expect: int = 0) -> dict:
        run(*self.arguments(out, *flags), expect=expect)
        return json.loads(pathlib.Path(self.bench.path(out + ".json")).read_text())

    def parts(self, out: str) -> dict[str, str]:
        return digests(self.bench.path(out), "part-*.parquet")


def shards_and_items_make_the_bytes_of_one_run() -> None:
    with Downloads() as jobs:
        jobs.run("whole")
        want = jobs.parts("whole")
        require(len(want) == 5, "parts", want)
        both = [subprocess.Popen([str(PROGRAM), *jobs.arguments("shards", "--shard", f"{i}/2")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT) for i in (0, 1)]
        require([job.wait(timeout=300) for job in both] == [0, 0], "exit codes of two shards at once")
        require(jobs.parts("shards") == want, "two shards differ from one run")
        jobs.run("items", "--items", "3,0-1")
        require(sorted(jobs.parts("items")) == [f"part-00000{i}.parquet" for i in (0, 1, 3)], "items", jobs.parts("items"))
        jobs.run("items", "--items", "4,2")
        require(jobs.parts("items") == want, "items differ from one run")
        run(*jobs.arguments("items", "--items", "5"), expect=1)
        run(*jobs.arguments("items", "--items", "3-1"), expect=2)
        run(*jobs.arguments("items", "--shard", "2/2"), expect=2)


def little_memory_and_no_disk_change_no_byte() -> None:
    with Downloads() as jobs:
        jobs.run("whole")
        for name, flags in {"none": ["--scratch-bytes", "0"], "some": ["--scratch-bytes", "100kB"], "folder": ["--scratch", jobs.bench.path("scratch")]}.items():
            jobs.run(name, "--memory", "300kB", *flags)
            require(jobs.parts(name) == jobs.parts("whole"), "bytes differ with scratch:", name)
        require(not list(pathlib.Path(jobs.bench.path("scratch")).iterdir()), "scratch files were left")


def a_condition_and_a_deny_list_drop_their_rows() -> None:
    with Downloads() as jobs:
        table = pq.read_table(jobs.table)
        limit = int(pc.quantile(table["WIDTH"], 0.5, interpolation="lower")[0].as_py())
        kept = table.filter(pc.greater(table["WIDTH"], limit))
        summary = jobs.run("where", "--where", f"width > {limit}")["download"]
        require(summary["rows_out"] == len(kept) and summary["rows_filtered"] == ROWS - len(kept), "counts", summary)
        got = pq.read_table(jobs.bench.path("where"))
        require(got["url"].to_pylist() == kept["URL"].to_pylist(), "other rows were kept")
        picture = pathlib.Path(jobs.bench.path("corpus")) / "pictures" / table["URL"][1].as_py().rsplit("/", 1)[1]
        denied = [hashlib.sha256(table["URL"][0].as_py().encode()).hexdigest(), hashlib.md5(picture.read_bytes()).hexdigest()]
        pathlib.Path(jobs.bench.path("withdrawn.txt")).write_text("# withdrawn\n" + "\n".join(denied) + "\n")
        summary = jobs.run("denied", "--deny-list", jobs.bench.path("withdrawn.txt"))["download"]
        require(summary["rows_by_error"].get("denied", 0) >= 2 and table["URL"][0].as_py() not in pq.read_table(jobs.bench.path("denied"))["url"].to_pylist(), "denied", summary)


def full_validation_in_the_sandbox_keeps_good_pictures() -> None:
    with Downloads() as jobs:
        summary = jobs.run("full", "--validate", "full")["download"]
        require(summary["rows_out"] == ROWS, "counts", summary)
        jobs.run("plain", "--validate", "full", "--no-sandbox")
        require(jobs.parts("plain") == jobs.parts("full"), "the sandbox changes bytes")


def cleaning_leaves_what_is_committed() -> None:
    with Downloads() as jobs:
        jobs.run("images", "--items", "0-2")
        before = jobs.parts("images")
        out = pathlib.Path(jobs.bench.path("images"))
        (out / "_tmp").mkdir(exist_ok=True)
        (out / "_tmp" / "part-000003.parquet.dead").write_bytes(b"half")
        (out / "_claims").mkdir(exist_ok=True)
        (out / "_claims" / "000003").write_text('{"owner": "lost", "expires": 1}')
        report = jobs.run("images", "--clean")["clean"]
        require(report["temporaries"] == 1 and report["claims"] == 1 and report["live_claims"] == 0, "report", report)
        require(jobs.parts("images") == before and not (out / "_claims" / "000003").exists(), "after cleaning")
        require(jobs.run("images")["download"]["rows_out"] == ROWS, "the job goes on")


def failed_rows_are_fetched_again_and_killed_retries_lose_and_double_nothing() -> None:
    with Downloads() as jobs:
        table = pq.read_table(jobs.table)
        pictures = pathlib.Path(jobs.bench.path("corpus")) / "pictures"
        gone = [pictures / table["URL"][row].as_py().rsplit("/", 1)[1] for row in range(0, 60, 7)]
        contents = {picture: picture.read_bytes() for picture in gone}
        for picture in contents:
            picture.unlink()
        summary = jobs.run("images")["download"]
        failed = summary["rows_by_error"].get("http_404", 0)
        require(failed >= len(gone) and summary["rows_out"] == ROWS - failed, "counts", summary)
        before = jobs.parts("images")
        for picture, content in contents.items():
            picture.write_bytes(content)
        run(*jobs.arguments("images", "--retry-failed", "http_4x"), expect=2)
        require("http_404" in run(*jobs.arguments("images", "--retry-failed", "htp_404"), expect=2).stderr, "the nearest code")
        require(jobs.run("images", "--retry-failed", "timeout")["download"]["rows_this_run"] == 0 and jobs.parts("images") == before, "a code without rows changed something")
        arguments = jobs.arguments("images", "--retry-failed", "http_4xx")
        starts = []
        for _ in range(3):
            began = time.monotonic()
            run("download", "--help")
            starts.append(time.monotonic() - began)
        seconds = 2 * min(starts) + 0.2
        hits = run_killed(arguments, 4, seconds, random.Random(20261123))
        require(hits > 0, "no kill hit a running job")
        keys = pq.read_table(jobs.bench.path("images"))["key"].to_pylist()
        require(keys == [f"{row:012d}" for row in range(ROWS)], "rows are lost or twice", keys)
        require(jobs.run("images")["download"]["rows_out"] == ROWS, "a usual run after it")
        run("inspect", jobs.bench.path("images"), "--verify")
        parts = jobs.parts("images")
        require(len(parts) == 5 and all(parts[name] == before[name] for name in parts if name in before), "untouched parts", parts)
        jobs.run("clean")
        require(pq.read_table(jobs.bench.path("clean")).equals(pq.read_table(jobs.bench.path("images"))), "other rows than an undisturbed run's")


def repeated_urls_are_duplicates_whatever_the_order_of_work() -> None:
    with Downloads() as jobs:
        table = pq.read_table(jobs.table)
        twice = pa.concat_tables([table, table.slice(0, 50), table.slice(20, 60)])
        pq.write_table(twice, jobs.table)
        summary = jobs.run("whole", "--dedup", "url", "--error-budget", "100")["download"]
        unique = len(set(table["URL"].to_pylist()))
        require(summary["rows_out"] == unique and summary["rows_by_error"] == {"duplicate": len(twice) - unique}, "counts", summary)
        require(sorted(pq.read_table(jobs.bench.path("whole"))["url"].to_pylist()) == sorted(set(table["URL"].to_pylist())), "urls")
        for shard in (2, 0, 1):
            jobs.run("shards", "--dedup", "url", "--shard", f"{shard}/3", "--memory", "300kB", "--error-budget", "100")
        require(jobs.parts("shards") == jobs.parts("whole"), "shards differ from one run")
        run(*jobs.arguments("whole"), expect=1)


def repeated_pictures_are_duplicates_whatever_the_order_of_work() -> None:
    with Downloads() as jobs:
        pictures = pathlib.Path(jobs.bench.path("corpus")) / "pictures"
        table = pq.read_table(jobs.table)
        names = [url.rsplit("/", 1)[1] for url in table["URL"].to_pylist()]
        for row in range(0, ROWS, 9):
            (pictures / names[row]).write_bytes((pictures / names[(row * 7 + 3) % ROWS]).read_bytes())
        seen, unique = set(), []
        for row, name in enumerate(names):
            content = (pictures / name).read_bytes()
            if content not in seen:
                unique.append(f"{row:012d}")
            seen.add(content)
        summary = jobs.run("whole", "--dedup", "content")["download"]
        require(summary["rows_out"] == len(unique) < ROWS and summary["rows_by_error"] == {"duplicate": ROWS - len(unique)}, "counts", summary)
        require(pq.read_table(jobs.bench.path("whole"))["key"].to_pylist() == unique, "the first rows keep their pictures")
        for shard in (2, 0, 1):
            jobs.run("shards", "--dedup", "content,url", "--shard", f"{shard}/3", "--memory", "300kB")
        require(pq.read_table(jobs.bench.path("shards")).equals(pq.read_table(jobs.bench.path("whole"))), "shards differ from one run")


def its_numbers_are_served_while_it_runs() -> None:
    with Downloads() as jobs:
        slow = LoopbackWeb(jobs.bench.path("corpus"), delay=0.2)
        table = jobs.bench.write_url_table(slow.port)
        command = ["download", jobs.bench.path("images"), "--metadata", table, "--concurrency", "2", "--allow-private", f"127.0.0.1/32:{slow.port}", "--metrics-port", "0"]
        job = subprocess.Popen([str(PROGRAM), *command], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            address = next(line.split()[-1] for line in job.stderr if "the job's numbers are at" in line)
            numbers, deadline = "", time.monotonic() + 60
            while "darkroom_rows_total" not in numbers and time.monotonic() < deadline:  # Until the job has planned.
                numbers = urllib.request.urlopen(address, timeout=60).read().decode()
            for name in ("darkroom_rows_total", "darkroom_process_resident_bytes", "darkroom_fetch_seconds"):
                require(name in numbers, "no such number:", name)
            taken = [*command[:1], jobs.bench.path("other"), *command[2:-1], address.split(":")[-1].split("/")[0]]
            require("port" in run(*taken, expect=1).stderr, "a port that is taken is named")
            require(not pathlib.Path(jobs.bench.path("other")).exists(), "a job that cannot serve its numbers has begun")
        finally:
            job.terminate()
            job.communicate()
            slow.__exit__()


def a_terminal_shows_a_line_for_each_stage_until_the_end() -> None:
    with Downloads() as jobs:
        slow = LoopbackWeb(jobs.bench.path("corpus"), delay=0.2)
        try:
            table = jobs.bench.write_url_table(slow.port)
            command = ["download", jobs.bench.path("images"), "--metadata", table, "--concurrency", "8", "--allow-private", f"127.0.0.1/32:{slow.port}"]
            code, said = said_on_a_terminal([PROGRAM, *command], dict(os.environ), 130)
        finally:
            slow.__exit__()
        require(code == 0, "exit code", code, said[-1000:])
        stages = "".join(rf"{stage} +\[[#-]+\] +\d+/{ROWS} rows +[\d.]+ rows/s[^\r\n]*\r\n" for stage in ("read", "submit", "fetch", "inspect", "order", "write", "commit"))
        job = rf"download \[[#-]+\] \d+/{ROWS} rows [^\r\n]*"
        shown = re.findall(rf"{stages}{job}\r\x1b\[7A\x1b\[J", said)
        require(len(shown) > 1, "blocks", repr(said[-3000:]))
        require(any(re.search(r"inspect .*queue \d+/64 +busy \d+% of \d", block) for block in shown), "queue and load", repr(shown[-1]))
        require(" rows/s" not in said.rpartition("\x1b[J")[2].partition("download: ")[0], "remains", repr(said[-1000:]))


if __name__ == "__main__":
    main([
        shards_and_items_make_the_bytes_of_one_run,
        little_memory_and_no_disk_change_no_byte,
        a_condition_and_a_deny_list_drop_their_rows,
        full_validation_in_the_sandbox_keeps_good_pictures,
        cleaning_leaves_what_is_committed,
        failed_rows_are_fetched_again_and_killed_retries_lose_and_double_nothing,
        repeated_urls_are_duplicates_whatever_the_order_of_work,
        repeated_pictures_are_duplicates_whatever_the_order_of_work,
        its_numbers_are_served_while_it_runs,
        a_terminal_shows_a_line_for_each_stage_until_the_end,
    ])
