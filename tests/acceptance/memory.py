"""Acceptance 5: large bodies and pictures in little memory; memory that does not grow with the number of rows."""

import contextlib
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import threading
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from decoder import whole_webp
from harness import PROGRAM, ROOT, FastWeb, Skipped, Trials, Workbench, heads_of_requests, peak_of, require, summary_of, temporary_folder, write_url_lines
from hostile_test import png  # Of tests/integration.
from workbench import children

MEMORY_MB, PROGRAM_MB = 256, 128
NUM_BOUNDS = 4  # Of download's memory, of which each may be exceeded by one row.
NUM_ROUTES = 1_000
ROWS_OF_A_GROUP = 10_000
LARGE_EVERY, LARGE_BYTES = 100, 1_000_000
FREE_BYTES = 5_000_000_000  # That stay free on the disk.
BATCH_ROWS = 64  # Of process, without --batch-size.
DECODER_MB = 32  # What a decoder has besides: itself, its slots and what it keeps for the next picture.


def large_bodies_stay_within_the_memory(trials: Trials) -> None:
    """600 bodies of 4 MB, some of them slow, under --memory 256MB: all rows, and at most 128 MB of the program itself beside the 256."""
    num_rows = trials.count(200, 600)

    def fetch() -> dict:
        with temporary_folder() as folder:
            (folder / "a.png").write_bytes(png(64, 64) + os.urandom(4_000_000))
            routes = {f"/{i}": {"file": "a.png", "trouble": "none" if i % 50 else "slow_drip", "bytes_per_second": 1_000_000} for i in range(num_rows)}
            with FastWeb(folder, routes) as web:
                table = write_url_lines(folder / "urls.jsonl", [f"http://127.0.0.1:{web.port}/{i}" for i in range(num_rows)])
                flags = ["--allow-private", f"127.0.0.1/32:{web.port}", "--memory", f"{MEMORY_MB}MB", "--timeout", "60", "--per-host", "1000"]
                # Who stalls ends here: 2.4 GB of loopback are some ten seconds.
                peak, seconds = peak_of("download", folder / "out", "--metadata", table, *flags, "--json-summary", folder / "summary.json", timeout=300)
            return {"peak_mb": round(peak), "seconds": round(seconds, 1), "rows_out": summary_of(folder / "summary.json", "download")["rows_out"]}

    figures = trials.trial(f"{num_rows} bodies", fetch)
    trials.figures.update(rows=num_rows, **figures)
    require(figures["rows_out"] == num_rows, "rows were lost", figures)
    require(figures["peak_mb"] <= MEMORY_MB + PROGRAM_MB + trials.slack_mb, "peak resident (MB)", figures)


class WebOfHosts:
    """Many hosts (127.0.0.1, 127.0.0.2, ...) at one port; each sends bodies at the limit, one byte beyond it, or without end, whole or in chunks."""

    def __init__(self, num_hosts: int, limit: int):
        self.body = png(64, 64) + bytes(limit - len(png(64, 64)))
        self.listeners = [socket.create_server(("127.0.0.1", 0), backlog=512)]
        self.port = self.listeners[0].getsockname()[1]
        self.listeners += [socket.create_server((f"127.0.0.{host}", self.port), backlog=512) for host in range(2, num_hosts + 1)]
        for listener in self.listeners:
            threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # The client goes where it has enough.
            for head in heads_of_requests(connection):
                getattr(self, "send_" + head.split(b" ")[1].split(b"/")[1].decode())(connection)

    def send_whole(self, connection: socket.socket, more: bytes = b"") -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.body) + len(more)}\r\n\r\n".encode())
        connection.sendall(self.body)
        connection.sendall(more)

    def send_beyond(self, connection: socket.socket) -> None:
        self.send_whole(connection, b"x")

    def send_chunks(self, connection: socket.socket, more: int = 0) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(self.body))
        connection.sendall(self.body)
        for _ in range(more):
            connection.sendall(b"\r\n10000\r\n" + bytes(65_536))
        connection.sendall(b"\r\n0\r\n\r\n")

    def send_endless(self, connection: socket.socket) -> None:
        self.send_chunks(connection, 1_000_000)


def bodies_at_the_limit_stay_within_the_memory(trials: Trials) -> None:
    """Many hosts, all of whose bodies are as large as is let in, or larger: what --memory says, beside one row a bound (docs/ingest.md) and the program."""
    num_hosts, rows_of_each, limit_mb = trials.count(16, 64), trials.count(4, 8), trials.count(8, 50)
    kinds = ["whole", "chunks", "whole", "chunks", "whole", "beyond", "chunks", "endless"]

    def fetch() -> dict:
        web = WebOfHosts(num_hosts, limit_mb * 1_000_000)
        with temporary_folder() as folder:
            urls = [f"http://127.0.0.{host}:{web.port}/{kinds[(host + row) % len(kinds)]}/{row}" for row in range(rows_of_each) for host in range(1, num_hosts + 1)]
            flags = ["--allow-private", f"127.0.0.0/8:{web.port}", "--memory", f"{MEMORY_MB}MB", "--max-bytes", f"{limit_mb}MB", "--timeout", "600", "--rows-per-file", "32", "--retries", "0"]
            peak, seconds = peak_of("download", folder / "out", "--metadata", write_url_lines(folder / "urls.jsonl", urls), *flags, "--json-summary", folder / "summary.json", timeout=900)
            summary = summary_of(folder / "summary.json", "download")
        return {"peak_mb": round(peak), "seconds": round(seconds, 1), "rows_in": summary["rows_in"], "rows_out": summary["rows_out"], "rows_by_error": summary["rows_by_error"]}

    figures = trials.trial(f"{num_hosts} hosts, {limit_mb} MB", fetch)
    trials.figures.update(hosts=num_hosts, limit_mb=limit_mb, **figures)
    require(figures["rows_in"] == num_hosts * rows_of_each, "rows", figures)
    want = figures["rows_in"] // len(kinds)
    require(figures["rows_by_error"] == {"too_large": 2 * want}, "the rows beyond the limit", figures)
    require(figures["peak_mb"] <= MEMORY_MB + NUM_BOUNDS * limit_mb + PROGRAM_MB + trials.slack_mb, "peak resident (MB)", figures)


def write_url_groups(path: pathlib.Path, port: int, num_rows: int) -> pathlib.Path:
    """A Parquet table of URLs, the same ones again and again."""
    group = pa.table({"URL": [f"http://127.0.0.1:{port}/{i % NUM_ROUTES}" for i in range(ROWS_OF_A_GROUP)], "TEXT": ["a picture"] * ROWS_OF_A_GROUP})
    with pq.ParquetWriter(path, group.schema) as writer:
        for first in range(0, num_rows, ROWS_OF_A_GROUP):
            writer.write_table(group.slice(0, num_rows - first))
    return path


def require_flat(trials: Trials, what: str, counts: list[int], peak_of_rows) -> None:
    """The last count of rows takes at most 1.1 times the memory of the first, and 16 MB. Each is done once over all starts."""
    peaks = {}
    for num_rows in counts:
        figures = trials.trial(f"{num_rows} {what}", lambda: peak_of_rows(num_rows))
        peaks[num_rows] = figures["peak_mb"]
        trials.figures[f"{num_rows} {what}"] = figures
    few, many = peaks[counts[0]], peaks[counts[-1]]
    require(many <= 1.1 * few + 16 + trials.slack_mb, "the peak grew with the rows (MB of few, of many)", what, few, many)


def peak_of_download(num_rows: int, large_every: int = 0) -> dict:
    """Of small pictures; one in `large_every` has 1 MB."""
    with temporary_folder() as folder:
        (folder / "a.png").write_bytes(png(64, 64))
        (folder / "large.png").write_bytes(png(64, 64) + os.urandom(LARGE_BYTES))
        num_large = num_rows // large_every if large_every else 0
        needed = num_large * LARGE_BYTES + num_rows * 2_000
        if shutil.disk_usage(folder).free < 1.2 * needed + FREE_BYTES:
            raise Skipped(f"{num_rows} rows with large ones take {needed / 1e9:.1f} GB of {folder}, which has no room for them")
        files = {i: "large.png" for i in range(0, NUM_ROUTES, large_every)} if large_every else {}
        with FastWeb(folder, {f"/{i}": {"file": files.get(i, "a.png")} for i in range(NUM_ROUTES)}) as web:
            flags = ["--allow-private", f"127.0.0.1/32:{web.port}", "--memory", f"{MEMORY_MB}MB", "--per-host", "1000", "--rows-per-file", "500"]
            table = write_url_groups(folder / "urls.parquet", web.port, num_rows)
            peak, seconds = peak_of("download", folder / "out", "--metadata", table, *flags, "--json-summary", folder / "summary.json", timeout=3600)
        rows_out = summary_of(folder / "summary.json", "download")["rows_out"]
        written = sum(part.stat().st_size for part in (folder / "out").glob("part-*.parquet"))
    require(rows_out == num_rows, "rows were lost (rows, out)", num_rows, rows_out)
    require(written >= num_large * LARGE_BYTES, "the large bodies were not written (bytes)", written)
    return {"peak_mb": round(peak, 1), "seconds": round(seconds, 1), "gb": round(written / 1e9, 2)}


def many_rows_take_no_more_memory(trials: Trials) -> None:
    """Downloads of 10,000 and 100,000 rows; in the full form of 1,000,000 as well, and the same of which one in a hundred has 1 MB (12 GB of disk)."""
    require_flat(trials, "rows", [10_000, 100_000] + ([1_000_000] if trials.is_full else []), peak_of_download)
    if trials.is_full:
        require_flat(trials, "rows with large ones", [10_000, 1_000_000], lambda num_rows: peak_of_download(num_rows, LARGE_EVERY))


def write_pictures(folder: pathlib.Path, pictures: list[bytes], num_rows: int) -> pathlib.Path:
    """An image dataset of so many rows, the same pictures again and again."""
    folder.mkdir()
    keys = [f"{row:012d}" for row in range(num_rows)]
    images = pa.array([pictures[row % len(pictures)] for row in range(num_rows)], pa.binary())
    pq.write_table(pa.table({"key": keys, "caption": ["a picture"] * num_rows, "image": images}), folder / "part-000000.parquet", row_group_size=500)
    return folder


def process_flags(bench: Workbench) -> list:
    return ["--model", bench.model, "--resolution", "64", "--memory", f"{MEMORY_MB}MB"]


def many_rows_take_no_more_memory_to_process(trials: Trials) -> None:
    """Of 100 and 400 rows, of 2,000 and 20,000 in the full form."""
    with Workbench(100) as bench:
        pictures = [path.read_bytes() for path in sorted(pathlib.Path(bench.path("corpus"), "pictures").iterdir()) if path.suffix == ".png"]

        def encode(num_rows: int) -> dict:
            with temporary_folder() as folder:
                images = write_pictures(folder / "images", pictures, num_rows)
                peak, seconds = peak_of("process", images, folder / "latents", *process_flags(bench), "--rows-per-file", "50", "--json-summary", folder / "summary.json", timeout=3600)
                rows_out = summary_of(folder / "summary.json", "process")["rows_out"]
            require(rows_out == num_rows, "rows were lost (rows, out)", num_rows, rows_out)
            return {"peak_mb": round(peak, 1), "seconds": round(seconds, 1)}

        require_flat(trials, "rows", trials.count([100, 400], [2_000, 20_000]), encode)


def padded_png(num_bytes: int) -> bytes:
    """A small picture of so many bytes: most of them a chunk that decoders pass over."""
    picture, padding = png(64, 64), b"paDd" + os.urandom(num_bytes)
    chunk = struct.pack(">I", num_bytes) + padding + struct.pack(">I", zlib.crc32(padding))
    return picture[:33] + chunk + picture[33:]


def pages_take_their_memory_from_it(trials: Trials) -> None:
    """An image dataset as pyarrow writes it, 1,024 rows a page (short: 200), two readers: what docs/process.md says, one page beyond --memory at most."""
    picture_bytes, num_rows, rows_of_page = 200_000, trials.count(400, 2_048), trials.count(200, 1_024)
    page_mb = 2 * picture_bytes * rows_of_page / 1e6  # As stored and decompressed.

    def encode() -> dict:
        with Workbench(1) as bench, temporary_folder() as folder:
            (folder / "images").mkdir()
            table = pa.table({"key": [f"{row:012d}" for row in range(num_rows)], "caption": ["a picture"] * num_rows, "image": pa.array([padded_png(picture_bytes)] * num_rows, pa.binary())})
            pq.write_table(table, folder / "images" / "part-000000.parquet", row_group_size=num_rows, use_dictionary=False, write_batch_size=rows_of_page)
            (folder / "few").mkdir()
            few = table.slice(0, BATCH_ROWS).set_column(2, "image", pa.array([png(64, 64)] * BATCH_ROWS, pa.binary()))
            pq.write_table(few, folder / "few" / "part-000000.parquet")
            program, _ = peak_of("process", folder / "few", folder / "few-latents", *process_flags(bench))
            flags = ["--rows-per-file", "100", "--num-readers", "2", "--json-summary", folder / "summary.json"]
            peak, seconds = peak_of("process", folder / "images", folder / "latents", *process_flags(bench), *flags, timeout=3600)
            return {"program_mb": round(program), "peak_mb": round(peak), "seconds": round(seconds, 1), "rows_out": summary_of(folder / "summary.json", "process")["rows_out"]}

    figures = trials.trial(f"{num_rows} rows, {rows_of_page} a page", encode)
    trials.figures.update(rows=num_rows, page_mb=round(page_mb), **figures)
    require(figures["rows_out"] == num_rows, "rows were lost", figures)
    rows_mb = MEMORY_MB * 5 / 8
    # The program itself, libraries and networks with what they compute, is what a job of one whole batch of small pictures takes.
    under_way_mb = 2 * BATCH_ROWS * picture_bytes / 1e6 if page_mb > rows_mb else 0  # Beside a page beyond --memory: a batch, as read and as handed on.
    require(figures["peak_mb"] <= MEMORY_MB - rows_mb + max(rows_mb, page_mb) + under_way_mb + figures["program_mb"], "peak resident (MB)", figures)


def resident_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def decoders_share_the_memory(trials: Trials) -> None:
    """Pictures each of which takes more than process has for decoding, by four transformers: one after the other, and all of them."""
    side, num_rows, num_transformers = trials.count(5_000, 10_000), 8, 4

    def encode() -> dict:
        with Workbench(1) as bench, temporary_folder() as folder:
            images = write_pictures(folder / "images", [whole_webp(side, side, has_alpha=True)], num_rows)
            flags = [*process_flags(bench), "--num-transformers", str(num_transformers), "--batch-size", "1", "--json-summary", str(folder / "summary.json")]
            job = subprocess.Popen([str(PROGRAM), "process", str(images), str(folder / "latents"), *map(str, flags)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
            peak = 0.0
            try:
                while job.poll() is None:
                    first = {child: resident_mb(child) for child in children(job.pid)}
                    # No snapshot: one that has ended meanwhile counts for nothing.
                    peak = max(peak, sum(min(held, resident_mb(child)) for child, held in first.items()))
            finally:
                job.kill()
            require(job.wait() == 0, "the job failed", job.returncode)
            return {"decoders_mb": round(peak), "rows_out": summary_of(folder / "summary.json", "process")["rows_out"]}

    figures = trials.trial(f"{num_rows} pictures of {side}", encode)
    one_mb = 8 * side * side / 1e6
    trials.figures.update(picture_mb=round(one_mb), transformers=num_transformers, **figures)
    require(figures["rows_out"] == num_rows, "rows were lost", figures)
    require(figures["decoders_mb"] >= one_mb / 2, "no decoder was seen at work", figures)
    require(figures["decoders_mb"] <= one_mb + num_transformers * DECODER_MB, "what decoders hold together (MB)", figures)


CHECKS = [
    ("memory.large_bodies", large_bodies_stay_within_the_memory),
    ("memory.limit_bodies", bodies_at_the_limit_stay_within_the_memory),
    ("memory.flat", many_rows_take_no_more_memory),
    ("memory.process", many_rows_take_no_more_memory_to_process),
    ("memory.pages", pages_take_their_memory_from_it),
    ("memory.decoders", decoders_share_the_memory),
]
