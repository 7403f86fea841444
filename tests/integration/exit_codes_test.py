#!/usr/bin/env python3
"""Every exit code of the command line, each with its message and its summary; a stopped job goes on to the bytes of an undisturbed one."""

import json
import pathlib
import signal
import subprocess
import time

from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, digests, main, require, run


def read_summary(bench: Workbench) -> dict:
    return json.loads(pathlib.Path(bench.path("summary.json")).read_text())


def download_arguments(bench: Workbench, web: LoopbackWeb, out: str) -> list:
    flags = ["--rows-per-file", "10", "--concurrency", "2", "--allow-private", f"127.0.0.1/32:{web.port}", "--json-summary", bench.path("summary.json")]
    return ["download", bench.path(out), "--metadata", bench.write_url_table(web.port), *flags]


def a_finished_job_ends_with_0_and_its_counts() -> None:
    with Workbench(20) as bench, LoopbackWeb(bench.path("corpus")) as web:
        run(*download_arguments(bench, web, "images"))
        summary = read_summary(bench)
        require("error" not in summary and summary["download"]["rows_out"] == 20, "summary", summary)


def a_failed_job_ends_with_1_and_its_message() -> None:
    with Workbench(1) as bench:
        run("download", bench.path("images"), "--metadata", bench.path("missing.parquet"), "--json-summary", bench.path("summary.json"), expect=1)
        require("cannot open" in read_summary(bench)["error"] and "missing.parquet: no such file or folder" in read_summary(bench)["error"], "summary", read_summary(bench))


def a_wrong_flag_ends_with_2() -> None:
    run("download", "/nowhere", "--metadata", "x.parquet", "--concurrency", "none", expect=2)
    run("train", "recipes/tiny.toml", "--output", "/nowhere", "--set", "batch.global=0", expect=2)


def a_job_over_its_error_budget_ends_with_3_and_keeps_what_is_good() -> None:
    with Workbench(20) as bench, LoopbackWeb(bench.path("corpus")) as web:
        pictures = sorted((pathlib.Path(bench.path("corpus")) / "pictures").iterdir())
        for picture in pictures[:5]:
            picture.unlink()
        run(*download_arguments(bench, web, "images"), "--error-budget", "20", expect=3)
        counts = read_summary(bench)["download"]
        require(counts["rows_out"] == 15 and counts["rows_by_error"] == {"http_404": 5}, "counts", counts)
        run(*download_arguments(bench, web, "images"), "--error-budget", "25", expect=0)


def stopped_by(number: signal.Signals) -> None:
    """The signal ends the job with 128 + number after its complete parts; the same command ends with an undisturbed run's bytes."""
    with Workbench(120) as bench, LoopbackWeb(bench.path("corpus"), delay=0.05) as web:
        run(*download_arguments(bench, web, "reference"))
        arguments = download_arguments(bench, web, "images")
        job = subprocess.Popen([str(PROGRAM), *arguments], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        deadline = time.monotonic() + 60
        while not digests(bench.path("images"), "part-*.parquet") and time.monotonic() < deadline:
            time.sleep(0.02)
        job.send_signal(number)
        message = job.communicate()[1]
        require(job.returncode == 128 + number, "exit code", job.returncode, message[-1000:])
        require("run the same command again" in message and "error" in read_summary(bench), "message", message[-1000:])
        counts = read_summary(bench)["download"]
        require(counts["rows_out"] == 10 * counts["parts"] > 0 and counts["rows_this_run"] > 0, "counts of a stopped job", counts)
        parts = digests(bench.path("images"), "part-*.parquet")
        want = digests(bench.path("reference"), "part-*.parquet")
        require(0 < len(parts) < len(want) and all(want[name] == digest for name, digest in parts.items()), "parts after the signal", len(parts))
        run(*arguments)
        require(digests(bench.path("images"), "part-*.parquet") == want, "the rerun differs from an undisturbed run")


def sigint_ends_with_130() -> None:
    stopped_by(signal.SIGINT)


def sigterm_ends_with_143() -> None:
    stopped_by(signal.SIGTERM)


def a_second_signal_stops_at_once() -> None:
    with Workbench(20) as bench, LoopbackWeb(bench.path("corpus"), delay=15) as web:
        job = subprocess.Popen([str(PROGRAM), *download_arguments(bench, web, "images")], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        require(any("rows of" in line for line in job.stderr), "the job ended before it said how far it is")
        job.send_signal(signal.SIGTERM)
        require(any("second signal" in line for line in job.stderr), "the job ended without a word about a second signal")
        job.send_signal(signal.SIGINT)
        require(job.wait(timeout=30) in (130, 143), "exit code", job.returncode)


if __name__ == "__main__":
    main([
        a_finished_job_ends_with_0_and_its_counts,
        a_failed_job_ends_with_1_and_its_message,
        a_wrong_flag_ends_with_2,
        a_job_over_its_error_budget_ends_with_3_and_keeps_what_is_good,
        sigint_ends_with_130,
        sigterm_ends_with_143,
        a_second_signal_stops_at_once,
    ])
