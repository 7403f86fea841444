"""What the integration tests share: the program, a small corpus, a loopback web, runs that are killed, digests of folders."""

import contextlib
import fcntl
import functools
import hashlib
import http.client
import http.server
import io
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import threading
import time
import urllib.request

import pyarrow as pa
import pyarrow.parquet as pq

from cases import Skipped, main, require, temporary_folder  # noqa: F401: the scripts take their whole vocabulary from here.

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build" / "darkroom"
ORDERS_PATIENCE = 300  # Seconds; a limit, no measure.


def said_on_a_terminal(command: list, environment: dict[str, str], columns: int) -> tuple[int, str]:
    """The exit code, and what stderr shows where it is a terminal."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    job = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # The program has ended.
        while part := os.read(terminal, 65_536):
            shown += part
    os.close(terminal)
    return job.wait(timeout=120), shown.decode()


def numbers_at(address: str, patience: float = 60, headers: dict[str, str] | None = None) -> str:
    """The page of /metrics that a process serves there; empty where nobody answers within `patience` seconds."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        with urllib.request.urlopen(urllib.request.Request(f"http://{address}/metrics", headers=headers or {}), timeout=patience) as reply:
            return reply.read().decode()
    return ""


class Workbench:
    """A temporary folder with a corpus of `num_pictures` pictures; everything in it is removed at the end."""

    def __init__(self, num_pictures: int, seed: int = 1):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="darkroom-test-"))
        self.seed = seed
        corpus_maker = [sys.executable, ROOT / "tools" / "corpus" / "make_corpus.py", self.folder / "corpus", "--limit", str(num_pictures), "--trouble-rate", "0"]
        subprocess.run(corpus_maker, check=True, stdout=subprocess.DEVNULL)
        self.model = self.path("tiny")  # Random weights: these tests are about bytes, not about pictures.
        run("models", "init", "--preset", "tiny", self.model, "--tokenizer", ROOT / "models" / "tiny" / "tokenizer")

    def __enter__(self) -> "Workbench":
        return self

    def __exit__(self, *unused) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def write_image_dataset(self, name: str, rows_per_file: int, bad_rows: dict[int, bytes | None] | None = None) -> str:
        """An image dataset as `download` writes it, straight from the corpus; `bad_rows` replaces the bytes of some rows."""
        rows = pq.read_table(self.folder / "corpus" / "urls.parquet").to_pylist()
        out = self.folder / name
        out.mkdir()
        for first in range(0, len(rows), rows_per_file):
            part = rows[first : first + rows_per_file]
            images = [(self.folder / "corpus" / "pictures" / row["URL"].rsplit("/", 1)[1]).read_bytes() for row in part]
            for offset in range(len(part)):
                if bad_rows and first + offset in bad_rows:
                    images[offset] = bad_rows[first + offset]
            table = pa.table(
                {
                    "key": [f"{first + i:012d}" for i in range(len(part))],
                    "url": [row["URL"] for row in part],
                    "caption": [row["TEXT"] for row in part],
                    "image": pa.array(images, pa.binary()),
                    "width": pa.array([int(row["WIDTH"]) for row in part], pa.int32()),
                    "height": pa.array([int(row["HEIGHT"]) for row in part], pa.int32()),
                    "mime": ["image/png"] * len(part),
                }
            )
            pq.write_table(table, out / f"part-{first // rows_per_file:06d}.parquet")
        return str(out)

    def write_url_table(self, port: int) -> str:
        table = pq.read_table(self.folder / "corpus" / "urls.parquet")
        urls = [f"http://127.0.0.1:{port}/pictures/{url.rsplit('/', 1)[1]}" for url in table["URL"].to_pylist()]
        table = table.set_column(table.schema.get_field_index("URL"), "URL", pa.array(urls))
        path = self.folder / "urls.parquet"
        pq.write_table(table, path)
        return str(path)


def write_tars(folder: str, rows: list[dict], rows_per_tar: int) -> str:
    """Rows of an image dataset as img2dataset writes them: a .png, a .json and a .txt each."""
    os.makedirs(folder)
    for first in range(0, len(rows), rows_per_tar):
        with tarfile.open(pathlib.Path(folder) / f"{first // rows_per_tar:05d}.tar", "w") as archive:
            for row in rows[first : first + rows_per_tar]:
                about = {name: row[name] for name in ("key", "url", "caption", "width", "height")}
                for ending, data in (("png", row["image"]), ("json", json.dumps(about).encode()), ("txt", row["caption"].encode())):
                    info = tarfile.TarInfo(f"{row['key']}.{ending}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return folder


class LoopbackWeb:
    """Serves a folder over HTTP on a free port of 127.0.0.1, each reply after `delay` seconds."""

    def __init__(self, folder: str, delay: float = 0.0):
        class Handler(http.server.SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                time.sleep(delay)
                super().do_GET()

            def log_message(self, *unused):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # A killed client breaks its connections.

        self.server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> "LoopbackWeb":
        return self

    def __exit__(self, *unused) -> None:
        self.server.shutdown()


class Orders:
    """A program of `--items -` at the other end of two pipes."""

    def __init__(self, *arguments, environment: dict[str, str] | None = None):
        self.process = subprocess.Popen([str(PROGRAM), *map(str, arguments), "--items", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        self.first = self.heard()

    def heard(self) -> dict:
        line = self.process.stdout.readline()
        require(bool(line), "the program ended early", self.process.stderr.read()[-3000:] if not line else "")
        return json.loads(line)

    def ask(self, line) -> dict:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.heard()

    def end(self, expect: int = 0) -> str:
        """Nothing is asked for any more. What it said."""
        said, errors = self.process.communicate(timeout=ORDERS_PATIENCE)
        require(self.process.returncode == expect, "exit code", self.process.returncode, "want", expect, errors[-3000:])
        require(said == "", "answers that nobody asked for", said)
        return errors


def run(*arguments: str, expect: int = 0) -> subprocess.CompletedProcess:
    """Runs the program to its end and requires the exit code."""
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=600, cwd=ROOT)  # A path in a message need not be UTF-8.
    if done.returncode != expect:
        raise AssertionError(f"darkroom {' '.join(map(str, arguments))}\nexit code {done.returncode}, want {expect}\n{done.stderr[-4000:]}")
    return done


def run_killed(arguments: list[str], num_kills: int, full_seconds: float, generator: random.Random, done=None) -> int:
    """Runs the program, SIGKILLs it at `num_kills` random moments of its life, then lets it finish. Returns the kills that hit. done(), the share of the
    work that is there (1: the last piece is under way), lets each kill but the first come in its own part of the work, however long that takes; else moments
    are drawn from a run's time."""
    hits = 0
    for number in range(num_kills):
        process = subprocess.Popen([str(PROGRAM), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        try:
            if done is None or number == 0:
                # Measured on a machine that may have been slower then: a kill that comes after the end leaves nothing to the others.
                process.wait(generator.uniform(0.05, (0.7 if hits else 0.3) * full_seconds))
            else:
                await_share(process, done, (number + generator.random()) / num_kills)
                process.wait(generator.uniform(0, 0.02 * full_seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            hits += 1
        process.wait()
    run(*arguments)
    return hits


def await_share(process: subprocess.Popen, done, share: float) -> None:
    """Until done() reaches it or the process has ended."""
    while process.poll() is None and done() < share:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)


def share_of_parts(folder: str, reference: str):
    """done() of a job that writes parts into `folder`."""
    whole = len(list(pathlib.Path(reference).glob("part-*.parquet")))
    return lambda: len(list(pathlib.Path(folder).glob("part-*.parquet"))) / (whole - 1)


def is_alive(pid: int) -> bool:
    return life_of(pid) is not None


def parent_of(pid: int) -> int:
    """0: it has ended."""
    return life_of(pid) or 0


def life_of(pid: int) -> int | None:
    """The parent of a process; None: it has ended, though nobody may have waited for it."""
    with contextlib.suppress(OSError):
        state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return None if state == "Z" else int(parent)
    return None


def children(pid: int) -> list[int]:
    found = [int(folder.name) for folder in pathlib.Path("/proc").glob("[0-9]*")]
    return [one for one in found if parent_of(one) == pid]


def timed_run(*arguments: str) -> float:
    start = time.monotonic()
    run(*arguments)
    return time.monotonic() - start


def digests(folder: str, pattern: str) -> dict[str, str]:
    """SHA-256 of every file of a folder that matches a glob pattern, by relative path."""
    root = pathlib.Path(folder)
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(root.glob(pattern)) if path.is_file()}


def read_losses(run_folder: str) -> list[tuple[int, str]]:
    """(step, loss as written) of metrics.jsonl; the text is compared, so bits are."""
    lines = (pathlib.Path(run_folder) / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_float=str) for line in lines]
    return [(record["step"], record["loss"]) for record in records if "loss" in record]
