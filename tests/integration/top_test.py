#!/usr/bin/env python3
"""`darkroom top`: one frame as text, and a terminal that is drawn on until `q` comes.

usage: top_test.py
"""

import contextlib
import http.server
import json
import os
import pathlib
import pty
import select
import signal
import socket
import subprocess
import termios
import threading
import time

from cases import temporary_folder
from workbench import PROGRAM, ROOT, Orders, Workbench, main, numbers_at, require

PATIENCE = 300  # Seconds; a limit, no measure.
PAGE = """darkroom_build_info{verb="download",version="0.1.0"} 1
darkroom_process_uptime_seconds 10
darkroom_job_rows 1000
darkroom_job_rows_done 250
darkroom_row_errors_total{code="http_404"} 12
darkroom_rows_total{stage="fetch"} 200
darkroom_stage_seconds_total{stage="fetch",state="busy"} 1
darkroom_queue_items{stage="fetch"} 17
"""


@contextlib.contextmanager
def metrics_server(page: str = PAGE, status: int = 200):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *unused):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def top(*arguments, expect: int = 0, **environment: str) -> subprocess.CompletedProcess:
    done = subprocess.run([str(PROGRAM), "top", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL)
    require(done.returncode == expect, "exit code", done.returncode, done.stdout, done.stderr)
    return done


def one_frame_is_plain_text() -> None:
    with metrics_server() as port:
        for arguments in ((port, "--once"), (f"127.0.0.1:{port}", "--once"), (f"http://127.0.0.1:{port}", "--once"), (port,)):  # Without a terminal it is one frame, too.
            text = top(*arguments).stdout
            for part in ("download at ", "rows done 250 of 1000 (25 %)", "http_404 12", "fetch                200        20.0", "\n  stage "):
                require(part in text, "missing:", part, text)
            require("\x1b" not in text, "escapes without a terminal", text)


def a_folder_leads_to_the_process_that_works_in_it() -> None:
    with temporary_folder() as folder, metrics_server() as port:
        (folder / "_metrics").mkdir()
        (folder / "_metrics" / "host-1.json").write_text(json.dumps({"address": f"127.0.0.1:{port}"}))
        require("rows done 250 of 1000" in top(folder, "--once").stdout, "no frame")


def a_run_without_an_address_tells_its_last_line() -> None:
    with temporary_folder() as folder:
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
        text = top(folder, "--once").stdout
        require("step 2  loss 0.2500" in text, "no line", text)


def what_cannot_be_looked_at_is_named() -> None:
    with socket.socket() as silent, metrics_server("<html>") as foreign, metrics_server(status=500) as broken, temporary_folder() as folder:
        silent.bind(("127.0.0.1", 0))  # Nobody listens.
        port = silent.getsockname()[1]
        for target, words in ((port, str(port)), (foreign, "no metrics"), (broken, "status 500"), (folder, "--metrics-port")):
            done = top(target, "--once", expect=1)
            require(words in done.stdout and words in done.stderr, "the reason of", target, done.stdout, done.stderr)
        with metrics_server() as good:
            require("rows done 250" in top(port, good, "--once").stdout, "one that answers is shown beside one that does not")


@contextlib.contextmanager
def terminal(*arguments, **environment: str):
    """The program on a pseudo-terminal of its own: (process, descriptor of the other side)."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 60))
    before = termios.tcgetattr(its)
    process = subprocess.Popen([str(PROGRAM), "top", *map(str, arguments)], stdin=its, stdout=its, stderr=its, cwd=ROOT, env={**os.environ, "TERM": "xterm", **environment}, start_new_session=True)
    try:
        yield process, ours, its, before
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)
        os.close(its)


def read_until(descriptor: int, wanted: str) -> str:
    text = ""
    begin = time.monotonic()
    while wanted not in text:
        require(time.monotonic() - begin < PATIENCE, "never shown:", wanted, repr(text))
        if select.select([descriptor], [], [], 1)[0]:
            text += os.read(descriptor, 65536).decode(errors="replace")
    return text


def q_ends_the_view_and_the_terminal_is_as_before() -> None:
    with metrics_server() as port, terminal(port, "--interval", "0.1") as (process, ours, its, before):
        text = read_until(ours, "q: quit")
        require(text.startswith("\x1b[?1049h") and "\x1b[1mdownload at" in text, "the first frame", repr(text))
        require(all(len(line) < 80 for line in text.split("\r\n")), "a line is not cut to the terminal", repr(text))
        read_until(ours, "q: quit")  # Drawn again.
        os.write(ours, b"xq")
        text = read_until(ours, "\x1b[?1049l")
        require(process.wait(PATIENCE) == 0, "exit code", process.returncode)
        require(termios.tcgetattr(its) == before, "the terminal's settings")


def colours_are_left_out_where_nobody_wants_them() -> None:
    with metrics_server() as port, terminal(port, NO_COLOR="1") as (process, ours, _, _before):
        text = read_until(ours, "q: quit")
        require("\x1b[1m" not in text, "bold", repr(text))
        os.write(ours, b"q")
        require(process.wait(PATIENCE) == 0, "exit code", process.returncode)
    with metrics_server() as port, terminal(port, TERM="dumb") as (process, ours, _, _before):
        text = read_until(ours, "     17")  # The queue, at the frame's end.
        require("\x1b[?" not in text and "\x1b[1m" not in text, "escapes on a terminal that has none", repr(text))
        require(process.wait(PATIENCE) == 0, "exit code", process.returncode)


def a_signal_ends_the_view_too() -> None:
    with metrics_server() as port, terminal(port, "--interval", "3600") as (process, ours, its, before):
        read_until(ours, "q: quit")
        process.send_signal(signal.SIGTERM)
        read_until(ours, "\x1b[?1049l")
        require(process.wait(PATIENCE) == 143, "exit code", process.returncode)
        require(termios.tcgetattr(its) == before, "the terminal's settings")


def catches(process: subprocess.Popen, number: int) -> bool:
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def a_second_signal_leaves_the_terminal_as_it_was() -> None:
    with metrics_server() as port, terminal(port, "--interval", "0.1") as (process, ours, its, before):
        read_until(ours, "q: quit")
        termios.tcflow(its, termios.TCOOFF)  # It cannot say its last words yet.
        process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        while not catches(process, signal.SIGTERM):  # The first one was read.
            require(process.poll() is None and time.monotonic() - begin < PATIENCE, "the first signal ended it", process.returncode)
        process.send_signal(signal.SIGTERM)
        termios.tcflow(its, termios.TCOON)
        read_until(ours, "\x1b[?1049l")
        require(process.wait(PATIENCE) == 143, "exit code", process.returncode)
        require(termios.tcgetattr(its) == before, "the terminal's settings")


def addresses_in(folder: pathlib.Path) -> list[str]:
    return [json.loads(path.read_text())["address"] for path in (folder / "_metrics").glob("*.json")]


def a_job_leaves_its_address_and_takes_it_back() -> None:
    with Workbench(8) as bench:
        out = pathlib.Path(bench.path("images"))
        job = Orders("download", out, "--metadata", bench.write_url_table(1), "--rows-per-file", "4", "--metrics-port", "0")
        (address,) = addresses_in(out)
        require("darkroom_build_info" in numbers_at(address), "nobody answers at the address that was left", address)
        job.end()
        require(addresses_in(out) == [], "the address is there behind the job's end", addresses_in(out))


def a_job_that_cannot_begin_leaves_nothing() -> None:
    """A download whose table cannot be found fails after it began to serve."""
    with temporary_folder() as folder:
        out = folder / "images"
        done = subprocess.run([str(PROGRAM), "download", out, "--metadata", folder / "none.parquet", "--metrics-port", "0"], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
        require(done.returncode == 1 and "/metrics" in done.stderr, "exit code", done.returncode, done.stderr)
        require(not pathlib.Path(out).exists(), "a folder is left")


def a_price_is_dollars_or_of_the_catalogue_and_the_summary_has_the_cost() -> None:
    """Of jobs whose inputs are not there: what they cost until they failed is told, too."""
    with temporary_folder() as folder:
        download = [str(PROGRAM), "download", folder / "images", "--metadata", folder / "none.parquet"]
        process = [str(PROGRAM), "process", folder / "none", folder / "latents", "--model", ROOT / "models" / "tiny"]
        for price, words in (("p4de.24xlarge:cheap", "p4de.24xlarge:spot"), ("-3", "0 or more"), ("1*2", "share of the machine"), ("1*-0.5", "share of the machine"), ("*0.5", "must be dollars"), ("1*x", "share of the machine")):
            done = subprocess.run([*download, "--price-per-hour", price], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
            require(done.returncode == 2 and words in done.stderr, "want a refusal that says", words, done.returncode, done.stderr)
        for job, price, dollars in ((download, "36e6", 36e6), (download, "p4de.24xlarge*0.25", 40.96 / 4), (download, "36e6*0.5*0.25", 45e5), (process, "36e6*0.5", 18e6)):
            path = folder / "summary.json"
            done = subprocess.run([*job, "--price-per-hour", price, "--json-summary", path], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
            stage = json.loads(path.read_text())[job[1]]
            require(done.returncode == 1 and stage["dollars_per_hour"] == dollars and 0 < stage["dollars"] < dollars and "this has cost $" in done.stderr, "the cost", stage, done.stderr)
            subprocess.run([*job, "--json-summary", path], capture_output=True, timeout=PATIENCE, cwd=ROOT)
            require("dollars" not in json.loads(path.read_text())[job[1]], "a cost without a price")


if __name__ == "__main__":
    main([one_frame_is_plain_text, a_folder_leads_to_the_process_that_works_in_it, a_run_without_an_address_tells_its_last_line, what_cannot_be_looked_at_is_named, q_ends_the_view_and_the_terminal_is_as_before,
          colours_are_left_out_where_nobody_wants_them, a_signal_ends_the_view_too, a_second_signal_leaves_the_terminal_as_it_was, a_job_leaves_its_address_and_takes_it_back, a_job_that_cannot_begin_leaves_nothing, a_price_is_dollars_or_of_the_catalogue_and_the_summary_has_the_cost])
