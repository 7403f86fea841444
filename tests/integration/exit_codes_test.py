#!/usr/bin/env python3
"""Every exit code of the command line, each with its message and its summary; a stopped job goes on to the bytes of an undisturbed one."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

from cases import temporary_folder
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
    for verb in (["download", "/nowhere/images"], ["process", "/nowhere/images", "/nowhere/latents"]):
        done = run(*verb, "--clean", "--dry-run", expect=2)
        require("--clean cannot be tried with --dry-run" in done.stderr, "a trial of a removal", done)


def a_picture_whose_name_is_no_tensors_costs_only_itself() -> None:
    with Workbench(1) as bench:
        picture = next((bench.folder / "corpus" / "pictures").iterdir())
        for name in (b"caf\xe9.jpg", b"__metadata__"):
            path = os.path.join(os.fsencode(bench.folder), name)
            pathlib.Path(os.fsdecode(path)).write_bytes(picture.read_bytes())
            output = pathlib.Path(bench.path("out.safetensors"))
            output.unlink(missing_ok=True)
            done = subprocess.run([PROGRAM, "transform", picture, path, "--resolution", "8", "--output", output], capture_output=True, text=True)
            require(done.returncode == 1 and "rename it" in done.stderr and picture.name.encode() in output.read_bytes(), "a name", name, done)


def a_summary_that_will_be_lost_is_told_of_at_once() -> None:
    with Workbench(1) as bench:
        picture = next((bench.folder / "corpus" / "pictures").iterdir())
        command = ["transform", picture, "--resolution", "8", "--output", bench.path("out.safetensors"), "--json-summary"]
        for place, why in ((bench.path("misspelt/summary.json"), "there is no folder"), (bench.path("corpus"), "it names a folder")):
            done = run(*command, place, expect=1)
            lines = done.stderr.splitlines()
            require("warning: --json-summary" in lines[0] and why in lines[0] and "is lost at the end" in lines[0], "no warning", done.stderr)
        done = run(*command, bench.path("summary.json"))
        require("--json-summary" not in done.stderr, "a warning of nothing", done.stderr)


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


def a_path_that_is_no_utf8_does_not_abort() -> None:
    with Workbench(1) as bench:
        summary = pathlib.Path(bench.path("summary.json"))
        done = subprocess.run([PROGRAM, "inspect", b"/nowhere/\xff.parquet", "--json-summary", summary], capture_output=True, cwd=ROOT)
        require(done.returncode == 1 and "/nowhere/\ufffd.parquet" in json.loads(summary.read_text())["error"], "exit code", done.returncode, done.stderr[-500:])


def train_without_its_dataset_leaves_no_run_folder() -> None:
    with Workbench(1) as bench:
        arguments = ["train", "recipes/tiny.toml", "--model", bench.model, "--output", bench.path("run")]
        done = run(*arguments, "--data", bench.path("missing"), "--json-summary", bench.path("summary.json"), expect=1)
        require("missing" in done.stderr and not pathlib.Path(bench.path("run")).exists(), "a run folder was left behind", done.stderr[-500:])
        require(read_summary(bench)["train"]["steps"] == 0 and "missing" in read_summary(bench)["error"], "summary", read_summary(bench))
        kept = pathlib.Path(bench.path("run"))
        kept.mkdir()
        run(*arguments, "--data", bench.path("missing"), expect=1)
        require(kept.exists(), "the user's own folder was removed")


def a_stopped_run_keeps_its_counts() -> None:
    with Workbench(32) as bench:
        run("process", bench.write_image_dataset("images", 32), bench.path("latents"), "--model", bench.model, "--resolution", "64")
        arguments = ["train", "recipes/tiny.toml", "--data", bench.path("latents"), "--model", bench.model, "--output", bench.path("run"), "--set", "batch.global=16"]
        job = subprocess.Popen([str(PROGRAM), *arguments, "--json-summary", bench.path("summary.json")], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        metrics = pathlib.Path(bench.path("run")) / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while (not metrics.exists() or "loss" not in metrics.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        job.send_signal(signal.SIGINT)
        message = job.communicate()[1]
        require(job.returncode == 130, "exit code", job.returncode, message[-1000:])
        counts = read_summary(bench)["train"]
        require(counts["steps"] > 0 and counts["loss_first"] > 0 and "error" in read_summary(bench), "summary", read_summary(bench))


def a_sample_that_cannot_be_written_keeps_its_counts() -> None:
    with Workbench(1) as bench:
        taken = pathlib.Path(bench.path("taken.png"))
        (taken / "by-a-folder").mkdir(parents=True)
        run("sample", "--model", bench.model, "--prompt", "a red apple", "--steps", "2", "--output", taken, "--json-summary", bench.path("summary.json"), expect=1)
        summary = read_summary(bench)
        counts = {key: summary["sample"][key] for key in ("rows_asked", "rows_in", "rows_out", "rows_written", "sampler")}
        require(counts == {"rows_asked": 1, "rows_in": 1, "rows_out": 1, "rows_written": 0, "sampler": "pndm"}, "counts", counts)
        require("taken.png" in summary["error"], "error", summary["error"])


def a_stopped_sample_keeps_its_counts_and_writes_nothing() -> None:
    with Workbench(1) as bench:
        arguments = ["sample", "--model", bench.model, "--prompt", "a red apple", "--images", "5000", "--output", bench.path("apple.png")]
        job = subprocess.Popen([str(PROGRAM), *arguments, "--verbose", "--json-summary", bench.path("summary.json")], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        job.stderr.readline()
        time.sleep(2)  # Some are painted by now; none need be.
        job.send_signal(signal.SIGINT)
        message = job.communicate()[1]
        require(job.returncode == 130, "exit code", job.returncode, message[-1000:])
        counts = read_summary(bench)["sample"]
        require(counts["rows_asked"] == 5000 and counts["rows_in"] == counts["rows_out"] < 5000 and counts["rows_written"] == 0, "counts", counts)
        require("error" in read_summary(bench) and not list(bench.folder.glob("apple*")), "summary", read_summary(bench))


def a_sample_shows_a_bar_on_a_terminal() -> None:
    with Workbench(1) as bench:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 140, 0, 0))
        arguments = ["sample", "--model", bench.model, "--prompt", "a red apple", "--images", "5000", "--output", bench.path("apple.png")]
        job = subprocess.Popen([PROGRAM, *arguments], stderr=slave, cwd=ROOT)
        os.close(slave)
        shown = b""
        try:
            while not re.search(rb"sample \[[#-]+\] [1-9]\d*/5000 rows", shown) and select.select([master], [], [], 60)[0]:
                shown += os.read(master, 65_536)
        except OSError:
            pass  # The job has ended.
        job.send_signal(signal.SIGINT)
        job.wait(timeout=60)
        os.close(master)
        require(re.search(rb"sample \[[#-]+\] [1-9]\d*/5000 rows", shown) is not None and job.returncode == 130, "shown", job.returncode, shown[-500:])


def stopped_at_its_second_pipe(arguments: list, pipes: list[pathlib.Path]) -> str:
    """What a job prints that reads two pipes after other inputs and gets SIGINT when it waits for somebody to open the second one."""
    for pipe in pipes:
        os.mkfifo(pipe)
    job = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    ends = []
    while not ends and job.poll() is None:
        try:
            ends.append(os.open(pipes[0], os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            time.sleep(0.02)  # The job has not come to it yet.
    job.send_signal(signal.SIGINT)
    require(any("second signal" in line for line in job.stderr), "the job ended before it was stopped")
    ends.append(os.open(pipes[1], os.O_RDWR))
    printed = job.communicate(timeout=60)[0]
    for end in ends:
        os.close(end)
    require(job.returncode == 130, "exit code", job.returncode)
    return printed


def a_stopped_transform_keeps_its_counts_and_writes_nothing() -> None:
    with Workbench(1) as bench:
        picture = next((bench.folder / "corpus" / "pictures").iterdir())
        pipes = [bench.folder / "first.png", bench.folder / "second.png"]
        flags = ["--resolution", "32", "--output", bench.path("out.safetensors"), "--json-summary", bench.path("summary.json")]
        stopped_at_its_second_pipe(["transform", picture, *pipes, bench.path("never.png"), *flags], pipes)
        summary = read_summary(bench)
        require(summary["rows_in"] in (2, 3) and summary["rows_out"] == 1 and "stopped" in summary["error"], "summary", summary)
        require(not pathlib.Path(bench.path("out.safetensors")).exists(), "an output was written")


def a_stopped_verification_says_what_it_found() -> None:
    with temporary_folder() as folder:
        (folder / "rows").mkdir()
        for name in ("a.parquet", "d.parquet"):
            (folder / "rows" / name).write_text("no table")
        flags = ["--verify", "--json-summary", folder / "summary.json"]
        printed = stopped_at_its_second_pipe(["inspect", folder / "rows", *flags], [folder / "rows" / "b.parquet", folder / "rows" / "c.parquet"])
        summary = json.loads((folder / "summary.json").read_text())
        require(summary["num_damages"] in (2, 3) and "a.parquet" in summary["damage"][0] and "stopped" in summary["error"], "summary", summary)
        require("damage: " in printed and "a.parquet" in printed and "d.parquet" not in printed, "printed", printed)


def a_stopped_tokenize_keeps_its_counts() -> None:
    with temporary_folder() as folder:
        flags = ["--tokenizer", ROOT / "models" / "tiny" / "tokenizer", "--tokenizer-dialect", "open_clip", "--json-summary", folder / "summary.json"]
        job = subprocess.Popen([PROGRAM, "tokenize", *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
        job.stdin.write("a red apple\nsch\u00c3\u00b6n\n".encode())  # The second is UTF-8 that was taken for Latin-1.
        job.stdin.flush()
        require(all(len(job.stdout.readline().split()) == 77 for _ in range(2)), "ids")
        job.send_signal(signal.SIGINT)
        require(job.wait(timeout=60) == 130, "exit code", job.returncode)
        summary = json.loads((folder / "summary.json").read_text())
        require(summary["captions"] == 2 and summary["unported"] == {"mojibake": 1, "new_character": 0} and "error" in summary, "summary", summary)


def a_stopped_demo_keeps_the_counts_of_its_stage() -> None:
    with temporary_folder() as folder:
        arguments = ["demo", folder / "demo", "--json-summary", folder / "summary.json"]
        environment = {**os.environ, "DARKROOM_PYTHON": sys.executable}
        job = subprocess.Popen([PROGRAM, *arguments], stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        require(any("rows of" in line for line in job.stderr), "the demo ended before it downloaded")
        job.send_signal(signal.SIGINT)
        message = job.communicate(timeout=120)[1]
        require(job.returncode == 130, "exit code", job.returncode, message[-1000:])
        summary = json.loads((folder / "summary.json").read_text())
        require(summary["corpus"]["rows_in"] > 0 and "rows_in" in summary["download"] and "stage download" in summary["error"], "summary", summary)


def tokenize_obeys_the_first_signal_while_it_waits() -> None:
    job = subprocess.Popen([PROGRAM, "tokenize", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    job.stdin.write(b"a red apple\n")
    job.stdin.flush()
    require(len(job.stdout.readline().split()) == 77, "the ids of a line come before the next line is there")
    job.send_signal(signal.SIGINT)
    require(job.wait(timeout=60) == 130, "exit code", job.returncode)
    require(b"after 1 captions" in job.stderr.read(), "message")


def tokenize_obeys_the_first_signal_between_captions_without_end() -> None:
    endless = subprocess.Popen(["yes", "a red apple"], stdout=subprocess.PIPE)
    job = subprocess.Popen([PROGRAM, "tokenize", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer"], stdin=endless.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    require(len(job.stdout.readline().split()) == 77, "ids")
    job.send_signal(signal.SIGTERM)
    message = job.communicate(timeout=60)[1]
    endless.kill()
    endless.wait()
    require(job.returncode == 143 and b"captions: stopped" in message, "exit code", job.returncode, message[-500:])


def bench_obeys_the_first_signal() -> None:
    job = subprocess.Popen([PROGRAM, "bench", "encode-text", "--repeats", "1e9"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    time.sleep(3)  # Until it measures; a signal before that ends it likewise.
    job.send_signal(signal.SIGTERM)
    require(job.wait(timeout=120) == 143, "exit code", job.returncode, job.stderr.read()[-500:])


if __name__ == "__main__":
    main([
        a_path_that_is_no_utf8_does_not_abort,
        train_without_its_dataset_leaves_no_run_folder,
        a_stopped_run_keeps_its_counts,
        a_sample_that_cannot_be_written_keeps_its_counts,
        a_stopped_sample_keeps_its_counts_and_writes_nothing,
        a_sample_shows_a_bar_on_a_terminal,
        a_stopped_transform_keeps_its_counts_and_writes_nothing,
        a_stopped_verification_says_what_it_found,
        a_stopped_tokenize_keeps_its_counts,
        a_stopped_demo_keeps_the_counts_of_its_stage,
        tokenize_obeys_the_first_signal_while_it_waits,
        tokenize_obeys_the_first_signal_between_captions_without_end,
        bench_obeys_the_first_signal,
        a_finished_job_ends_with_0_and_its_counts,
        a_failed_job_ends_with_1_and_its_message,
        a_wrong_flag_ends_with_2,
        a_picture_whose_name_is_no_tensors_costs_only_itself,
        a_summary_that_will_be_lost_is_told_of_at_once,
        a_job_over_its_error_budget_ends_with_3_and_keeps_what_is_good,
        sigint_ends_with_130,
        sigterm_ends_with_143,
        a_second_signal_stops_at_once,
    ])
