"""Acceptance 5: bodies without end, drips, lies about lengths, bombs of headers, loops; slow hosts."""

import contextlib
import os
import socket
import threading
import time
import zlib

from harness import FastWeb, Trials, heads_of_requests, peak_of, require, summary_of, temporary_folder, write_url_lines
from hostile_test import png  # Of tests/integration.

ROWS_OF_EACH = 12
TIMEOUT = (20, 5)  # Seconds, of the short and of the full form.


class HostileWeb:
    """One thread a connection; each path misbehaves as it is called."""

    def __init__(self):
        self.picture = png(64, 64)
        self.gzip = zlib.compress(bytes(50_000_000), 9)
        self.seen: dict[str, list[float]] = {}  # By row: when its first request came, and when its last request or answer came or ended.
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # The client goes where it has enough.
            for head in heads_of_requests(connection):
                path = head.split(b" ")[1]
                row = path.decode().rstrip("x")
                self.see(row)
                try:
                    goes_on = getattr(self, "serve_" + row.split("/")[1])(connection, path)
                finally:
                    self.see(row)
                if not goes_on:
                    return

    def see(self, row: str) -> None:
        self.seen.setdefault(row, [time.monotonic()])[1:] = [time.monotonic()]

    def seconds_of(self, row: str) -> float:
        """From its first request to the end of its last answer, which a client that has enough breaks off; without end where there was none."""
        first, last = (self.seen.get(row, []) + [float("inf")] * 2)[:2]
        return last - first if first < float("inf") else float("inf")

    def answer(self, connection: socket.socket, status: str, headers: str, body: bytes) -> bool:
        connection.sendall(f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return True

    def serve_good(self, connection: socket.socket, path: bytes) -> bool:
        return self.answer(connection, "200 OK", "Content-Type: image/png\r\n", self.picture)

    def serve_endless(self, connection: socket.socket, path: bytes, status: str = "200 OK") -> bool:
        connection.sendall(f"HTTP/1.1 {status}\r\nLocation: {path.decode()}x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        while True:
            connection.sendall(b"10000\r\n" + bytes(65_536) + b"\r\n")

    def serve_endlessredirect(self, connection: socket.socket, path: bytes) -> bool:
        return self.serve_endless(connection, path, "302 Found")

    def serve_drip(self, connection: socket.socket, path: bytes) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            connection.sendall(b"x")
            time.sleep(0.5)

    def serve_silent(self, connection: socket.socket, path: bytes) -> bool:
        connection.recv(1)
        return False

    def serve_long(self, connection: socket.socket, path: bytes) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n" + self.picture)
        return False

    def serve_short(self, connection: socket.socket, path: bytes) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + self.picture[:50])
        return False

    def serve_gzip(self, connection: socket.socket, path: bytes) -> bool:
        return self.answer(connection, "200 OK", "Content-Encoding: gzip\r\nContent-Type: image/png\r\n", self.gzip)

    def serve_headers(self, connection: socket.socket, path: bytes) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in range(100_000):
            connection.sendall(b"X-%d: " % number + b"h" * 1000 + b"\r\n")
        return False

    def serve_header(self, connection: socket.socket, path: bytes) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(1_600):
            connection.sendall(b"h" * 65_536)
        return False

    def serve_loop(self, connection: socket.socket, path: bytes) -> bool:
        return self.answer(connection, "302 Found", f"Location: {path.decode()}\r\n", b"")

    def serve_chain(self, connection: socket.socket, path: bytes) -> bool:
        return self.answer(connection, "302 Found", f"Location: {path.decode()}x\r\n", bytes(1_000_000))


KINDS = ["endless", "endlessredirect", "drip", "silent", "long", "short", "gzip", "headers", "header", "loop", "chain"]


def hostile_bodies_cost_their_rows_alone(trials: Trials) -> None:
    web = HostileWeb()
    timeout = trials.count(*TIMEOUT)
    base = f"http://127.0.0.1:{web.port}"
    common = ["--timeout", timeout, "--retries", "0", "--max-park", "0", "--allow-private", f"127.0.0.1/32:{web.port}", "--error-budget", "100", "--per-host", "512", "--memory", "64MB", "--max-bytes", "4MB"]
    with temporary_folder() as folder:
        good = [f"{base}/good/{i}" for i in range(200)]
        hostile = [f"{base}/{kind}/{i}" for i in range(ROWS_OF_EACH) for kind in KINDS]
        clean, _ = peak_of("download", folder / "clean", "--metadata", write_url_lines(folder / "clean.jsonl", good), *common)
        peak, seconds = peak_of("download", folder / "hostile", "--metadata", write_url_lines(folder / "hostile.jsonl", good + hostile), *common, "--json-summary", folder / "summary.json")
        summary = summary_of(folder / "summary.json", "download")
        trials.figures.update(rows=len(good + hostile), peak_mb=round(peak), clean_peak_mb=round(clean), seconds=round(seconds, 1), rows_by_error=summary["rows_by_error"])
        require(summary["rows_out"] == len(good), "good rows", summary["rows_out"])
        require(sum(summary["rows_by_error"].values()) == len(hostile), "each hostile row ends with its error", summary)
        require(peak <= clean + 64 + trials.slack_mb, "memory grew (MB, of a clean run)", peak, clean)
        lasted = {row: web.seconds_of(row.removeprefix(base)) for row in hostile}
        longest = max(lasted, key=lasted.get)
        trials.figures.update(longest_row_seconds=round(lasted[longest], 2), longest_row=longest.removeprefix(base))
        require(lasted[longest] <= timeout + trials.count(20, 2), "a row ended late (seconds, of a deadline of)", longest, lasted[longest], timeout)
        # All of them run side by side.
        require(seconds <= 4 * timeout + 10, "rows ended late (seconds)", seconds)


NUM_HOSTS = 997  # A prime: each has slow rows.


def on_one_core(arguments: list) -> tuple[float, float]:
    """Seconds and peak of the program on core 0; the server is elsewhere where there is another core."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        peak, seconds = peak_of(*arguments)
        return seconds, peak
    finally:
        os.sched_setaffinity(0, before)


def slow_hosts_do_not_stall_the_rest(trials: Trials) -> None:
    """A tenth of each host's URLs drips or is silent for a deadline of 20 s; the rest goes on at nearly its own rate."""
    num_rows = trials.count(6_000, 60_000)
    with temporary_folder() as folder:
        (folder / "a.png").write_bytes(png(64, 64))
        routes = {f"/{i}": {"file": "a.png", **({"trouble": "slow_drip" if i % 20 == 0 else "hang", "bytes_per_second": 1} if i % 10 == 0 else {})} for i in range(num_rows)}
        routes |= {f"/clean/{i}": {"file": "a.png"} for i in range(num_rows)}
        with FastWeb(folder, routes) as web:
            common = ["--timeout", "20", "--retries", "0", "--max-park", "0", "--allow-private", f"127.0.0.0/8:{web.port}", "--error-budget", "100", "--per-host", "1000"]
            hosts = [f"http://127.0.{number // 250}.{number % 250 + 1}:{web.port}" for number in range(NUM_HOSTS)]
            table = write_url_lines(folder / "slow.jsonl", [f"{hosts[i % NUM_HOSTS]}/{i}" for i in range(num_rows)])
            clean = write_url_lines(folder / "clean.jsonl", [f"{hosts[i % NUM_HOSTS]}/clean/{i}" for i in range(num_rows)])
            clean_seconds, _ = on_one_core(["download", folder / "clean", "--metadata", clean, *common])
            seconds, peak = on_one_core(["download", folder / "out", "--metadata", table, *common, "--json-summary", folder / "summary.json"])
        summary = summary_of(folder / "summary.json", "download")
        rate = num_rows / max(0.001, seconds - 20)
        trials.figures.update(rows=num_rows, seconds=round(seconds, 1), clean_rows_per_second=round(num_rows / clean_seconds), rows_per_second=round(rate), peak_mb=round(peak))
        require(summary["rows_out"] == num_rows - num_rows // 10, "good rows", summary["rows_out"])
        require(sum(summary["rows_by_error"].values()) == num_rows // 10, "slow rows", summary["rows_by_error"])
        if trials.is_full:
            require(rate >= 3_000, "rows per second beside the deadline", rate)
        else:
            require(seconds <= clean_seconds + 60, "slow rows held the others up (seconds, clean)", seconds, clean_seconds)


CHECKS = [
    ("hostile_web.bodies", hostile_bodies_cost_their_rows_alone),
    ("hostile_web.slow_hosts", slow_hosts_do_not_stall_the_rest),
]
