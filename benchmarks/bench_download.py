#!/usr/bin/env python3
"""Rows per CPU second of `darkroom download` beside img2dataset and urllib: plain bodies to Parquet, new https connections, full validation.

  benchmarks/bench_download.py [--rounds 3] [--peers PYTHON] [--judge] [NAME...]      NAME: bodies loops https full process; without one all

The servers run on the last core, what is measured on the others. A figure is the CPU seconds (user and system, children included) of a
large run less those of a small one, so that the start of a program does not count. Both take turns. Every answer is checked before its
time counts: all rows are there, and the bytes of ours are those of the server. PYTHON is an environment with img2dataset
(pip install img2dataset==1.47.0); without it only darkroom and urllib run. The last table sets the figures of this run, each the median of
its rounds, beside the goals; with --judge the exit code is 1 when one of them was not reached, or not measured.
"""
import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pyarrow
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "acceptance"))

from harness import PROGRAM, FastWeb  # noqa: E402

BODY_BYTES = 132_000
NUM_BODIES = 8
URLLIB_THREADS = 16
ROUTE = 100_000  # Different paths of the server; each names one of the bodies.

Rates = dict[str, list[float]]

OURS, ALL_CORES = "darkroom", "darkroom, all cores"
UNENCODED, AS_SHIPPED = "img2dataset 1.47.0, no re-encoding", "img2dataset 1.47.0 as shipped"
URLLIB_SHARED = "urllib, one shared TLS context"


@dataclasses.dataclass(frozen=True)
class Goal:
    """What acceptance line 8 of the data plane asks of one bench: rows per CPU second of ours, or their ratio to another's."""

    bench: str
    words: str
    limit: float
    over: str = ""  # Whose rate ours is divided by; none: the rate itself.
    is_most: bool = False  # The limit is the most that the figure may be.

    def figure(self, rates: Rates) -> float | None:
        """None: the other one did not run."""
        if self.over and self.over not in rates:
            return None
        return statistics.median(ours / theirs for ours, theirs in zip(rates[OURS], rates[self.over])) if self.over else statistics.median(rates[OURS])

    def is_reached(self, figure: float | None) -> bool:
        return figure is not None and (figure <= self.limit if self.is_most else figure >= self.limit)


GOALS = (
    Goal("bodies", "132 kB bodies over plain HTTP, header validation, to Parquet: >= 8,000 rows", 8_000),
    Goal("bodies", "132 kB bodies over plain HTTP: >= 3x img2dataset", 3, over=UNENCODED),
    Goal("https", "new https connections: >= 2x Python's urllib with one shared TLS context", 2, over=URLLIB_SHARED),
    Goal("https", "new https connections: >= 10x img2dataset as shipped", 10, over=AS_SHIPPED),
    Goal("full", "full validation (600x825 JPEG): >= 600 rows", 600),
    Goal("loops", "several loops cost <= 1.1x the CPU seconds a row of one loop", 1.1, over=ALL_CORES, is_most=True),
    Goal("process", "process's own share (read, decode, transform, write, no encoder) of 600x825 -> 256: >= 400 rows", 400),
)


def judge(measured: dict[str, Rates]) -> bool:
    """Prints goal, figure and whether it was reached, of the benches that ran; whether all were."""
    rows = []
    for goal in GOALS:
        if goal.bench in measured:
            figure = goal.figure(measured[goal.bench])
            said = "--peers" if figure is None else f"{figure:,.2f}" if goal.limit < 100 else f"{figure:,.0f}"
            rows.append((goal.words, said, "not measured" if figure is None else "yes" if goal.is_reached(figure) else "NO"))
    width = max(len(words) for words, _, _ in rows)
    print(f"\n{'goal, per CPU second of ours':{width}}  {'measured':>10}  reached")
    for words, said, reached in rows:
        print(f"{words:{width}}  {said:>10}  {reached}")
    return all(reached == "yes" for _, _, reached in rows)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Of this process's children, waited for, while `work` runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def run(command: list, environment: dict, cores: set[int]) -> None:
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    if done.returncode != 0:
        sys.exit(f"bench_download: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stderr[-2000:]}")


def write_table(path: pathlib.Path, urls: list[str]) -> pathlib.Path:
    pq.write_table(pyarrow.table({"url": urls, "caption": [f"picture {i}" for i in range(len(urls))]}), path)
    return path


class Darkroom:
    def __init__(self, folder: pathlib.Path, environment: dict, cores: set[int], flags: list[str]):
        self.folder, self.environment, self.cores, self.flags = folder, environment, cores, flags

    def seconds(self, table: pathlib.Path, count: int, bodies: set[str]) -> float:
        output = self.folder / "ours"
        shutil.rmtree(output, ignore_errors=True)
        command = [PROGRAM, "download", output, "--metadata", table, "--per-host", 100_000, "--quiet", *self.flags]
        seconds = cpu_seconds(lambda: run(command, self.environment, self.cores))
        images = [row for part in sorted(output.glob("part-*.parquet")) for row in pq.read_table(part, columns=["image"])["image"]]
        if len(images) != count or any(hashlib.sha256(row.as_buffer()).hexdigest() not in bodies for row in images):
            sys.exit(f"bench_download: {len(images)} of {count} rows, or other bytes")
        shutil.rmtree(output)
        return seconds


class Img2dataset:
    def __init__(self, folder: pathlib.Path, environment: dict, cores: set[int], python: pathlib.Path, flags: list[str]):
        self.folder, self.environment, self.cores, self.python, self.flags = folder, environment, cores, python, flags

    def seconds(self, table: pathlib.Path, count: int, _bodies: set[str]) -> float:
        output = self.folder / "theirs"
        shutil.rmtree(output, ignore_errors=True)
        command = [self.python.parent / "img2dataset", "--url_list", table, "--input_format", "parquet", "--url_col", "url", "--caption_col", "caption"]
        command += ["--output_folder", output, "--output_format", "parquet", "--processes_count", 1, "--thread_count", URLLIB_THREADS, "--enable_wandb", False, *self.flags]
        seconds = cpu_seconds(lambda: run(command, self.environment, self.cores))
        found = sum(pq.read_table(part, columns=["status"])["status"].to_pylist().count("success") for part in output.glob("*.parquet"))
        if found != count:
            sys.exit(f"bench_download: img2dataset wrote {found} of {count} rows")
        shutil.rmtree(output)
        return seconds


class BareLoop:
    """benchmarks/bare_fetch.c: what connecting, receiving and writing alone cost on this machine."""

    def __init__(self, folder: pathlib.Path, environment: dict, cores: set[int], port: int):
        self.folder, self.environment, self.cores, self.port = folder, environment, cores, port
        subprocess.run(["cc", "-O2", ROOT / "benchmarks" / "bare_fetch.c", "-o", folder / "bare_fetch"], check=True)

    def seconds(self, _table: pathlib.Path, count: int, _bodies: set[str]) -> float:
        spent = cpu_seconds(lambda: run([self.folder / "bare_fetch", self.port, count, self.folder / "bare"], self.environment, self.cores))
        (self.folder / "bare").unlink()
        return spent


URLLIB = """import concurrent.futures, ssl, sys, urllib.request
context = ssl.create_default_context()
urls = open(sys.argv[1]).read().split()
def fetch(url):
    with urllib.request.urlopen(url, timeout=20, context=context) as answer:
        return len(answer.read())
with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as pool:
    sizes = list(pool.map(fetch, urls))
sys.exit(0 if len(sizes) == len(urls) and min(sizes) > 0 else 1)
"""


class Urllib:
    """Python's urllib in threads with one shared TLS context: fetches and writes nothing."""

    def __init__(self, folder: pathlib.Path, environment: dict, cores: set[int]):
        self.folder, self.environment, self.cores = folder, environment, cores

    def seconds(self, table: pathlib.Path, _count: int, _bodies: set[str]) -> float:
        urls = self.folder / "urls.txt"
        urls.write_text("\n".join(pq.read_table(table)["url"].to_pylist()), encoding="utf-8")
        return cpu_seconds(lambda: run([sys.executable, "-c", URLLIB, urls, URLLIB_THREADS], self.environment, self.cores))


def measure(who: dict[str, object], folder: pathlib.Path, urls: list[str], sizes: tuple[int, int], bodies: set[str], rounds: int) -> Rates:
    """Rows per CPU second of each in every round, in turn."""
    small, large = (write_table(folder / f"{size}.parquet", urls[:size]) for size in sizes)
    rates: Rates = {name: [] for name in who}
    for _ in range(rounds):
        for name, program in who.items():
            spent = program.seconds(large, sizes[1], bodies) - program.seconds(small, sizes[0], bodies)
            rates[name].append((sizes[1] - sizes[0]) / spent)
    return rates


def report(title: str, rates: Rates) -> Rates:
    print(f"\n{title}: rows per CPU second, min / median / max; darkroom's rate / theirs, median")
    ours = rates[OURS]
    for name, values in rates.items():
        ratio = "" if name == OURS else f"   {statistics.median(a / b for a, b in zip(ours, values)):.2f}"
        print(f"  {name:44} {min(values):8.0f} / {statistics.median(values):8.0f} / {max(values):8.0f}{ratio}", flush=True)
    return rates


def padded(picture: bytes, seed: int) -> bytes:
    """A JPEG of BODY_BYTES: what follows its end is no picture, and no reader of headers or of the whole minds."""
    return picture + hashlib.shake_256(bytes([seed])).digest(BODY_BYTES - len(picture))


def serve_bodies(folder: pathlib.Path, bodies: list[bytes]) -> tuple[FastWeb, list[str], set[str]]:
    for i, body in enumerate(bodies):
        (folder / f"{i}.jpg").write_bytes(body)
    web = FastWeb(folder, {f"/{i}.jpg": {"file": f"{i % len(bodies)}.jpg"} for i in range(ROUTE)})
    os.sched_setaffinity(web.process.pid, {max(os.sched_getaffinity(0))})
    for thread in pathlib.Path(f"/proc/{web.process.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {max(os.sched_getaffinity(0))})
    return web, [f"http://127.0.0.1:{web.port}/{i}.jpg" for i in range(ROUTE)], {hashlib.sha256(body).hexdigest() for body in bodies}


def photographs() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "benchmarks" / "pictures").glob("*.jpg"))]


def jpegs_of_600x825() -> list[bytes]:
    """The photographs at the size of the published corpus, quality 85, 4:2:0."""
    import io

    from PIL import Image

    pictures = []
    for body in photographs():
        encoded = io.BytesIO()
        Image.open(io.BytesIO(body)).convert("RGB").resize((600, 825), Image.Resampling.LANCZOS).save(encoded, "JPEG", quality=85, subsampling=2)
        pictures.append(encoded.getvalue())
    return pictures


class Bench:
    def __init__(self, arguments: argparse.Namespace, folder: pathlib.Path):
        self.folder, self.rounds, self.peers, self.shrink = folder, arguments.rounds, arguments.peers, arguments.shrink
        self.cores = os.sched_getaffinity(0) - {max(os.sched_getaffinity(0))} or os.sched_getaffinity(0)
        self.environment = dict(os.environ)

    def allowed(self, web: FastWeb) -> list[str]:
        return ["--allow-private", f"127.0.0.1/32:{web.port}"]

    def sizes(self, small: int, large: int) -> tuple[int, int]:
        return max(1, small // self.shrink), max(2, large // self.shrink)

    def bodies(self) -> Rates:
        """132 kB over plain HTTP, headers looked at, to Parquet; img2dataset with its re-encoding off."""
        picture = photographs()[0]
        with contextlib.ExitStack() as stack:
            web, urls, digests = serve_bodies(self.folder, [padded(picture, i) for i in range(NUM_BODIES)])
            stack.enter_context(web)
            who: dict[str, object] = {OURS: Darkroom(self.folder, self.environment, self.cores, self.allowed(web))}
            if self.peers:
                off = ["--resize_mode", "no", "--disable_all_reencoding", True]
                who[UNENCODED] = Img2dataset(self.folder, self.environment, self.cores, self.peers, off)
            who["a bare loop in C"] = BareLoop(self.folder, self.environment, self.cores, web.port)
            return report(f"{BODY_BYTES} bytes over HTTP to Parquet", measure(who, self.folder, urls, self.sizes(2_000, 12_000), digests, self.rounds))

    def loops(self) -> Rates:
        """The same on one core and on all: several loops must cost hardly more CPU a row."""
        picture = photographs()[0]
        web, urls, digests = serve_bodies(self.folder, [padded(picture, i) for i in range(NUM_BODIES)])
        with web:
            every = os.sched_getaffinity(0)
            who = {OURS: Darkroom(self.folder, self.environment, self.cores, self.allowed(web)), ALL_CORES: Darkroom(self.folder, self.environment, every, self.allowed(web))}
            return report("one loop and several", measure(who, self.folder, urls, self.sizes(2_000, 12_000), digests, self.rounds))

    def full(self) -> Rates:
        """JPEGs of 600x825, every picture decoded in the sandbox."""
        web, urls, digests = serve_bodies(self.folder, jpegs_of_600x825())
        with web:
            who = {OURS: Darkroom(self.folder, self.environment, self.cores, [*self.allowed(web), "--validate", "full"])}
            return report("full validation of 600x825", measure(who, self.folder, urls, self.sizes(500, 3_000), digests, self.rounds))

    def process(self) -> Rates:
        """What `process` spends beside its encoders on 600x825 to 256: all CPU seconds less those of the encoders."""
        pictures, sizes = jpegs_of_600x825(), self.sizes(100, 500)

        def own_seconds(count: int) -> float:
            table, output, summary = self.folder / f"images-{count}", self.folder / "latents", self.folder / "summary.json"
            if not table.exists():
                table.mkdir()
                images = pyarrow.array([pictures[i % len(pictures)] for i in range(count)], pyarrow.binary())
                keys, captions = ([f"{word}{i:08}" for i in range(count)] for word in ("", "picture "))
                pq.write_table(pyarrow.table({"key": keys, "caption": captions, "image": images}), table / "images.parquet")
            command = [PROGRAM, "process", table, output, "--model", ROOT / "models" / "tiny", "--resolution", 256, "--num-encoders", 1, "--num-transformers", 1, "--num-readers", 1]
            spent = cpu_seconds(lambda: run([*command, "--json-summary", summary, "--quiet"], self.environment, os.sched_getaffinity(0)))
            if sum(pq.ParquetFile(part).metadata.num_rows for part in output.glob("part-*.parquet")) != count:
                sys.exit("bench_download: process lost rows")
            shutil.rmtree(output)
            stages = json.loads(summary.read_text())["process"]["stages"]
            return spent - sum(stage["cpu_seconds"] for stage in stages if stage["name"] == "encode")

        rates = [(sizes[1] - sizes[0]) / (own_seconds(sizes[1]) - own_seconds(sizes[0])) for _ in range(self.rounds)]
        return report("process without its encoder, 600x825 to 256", {OURS: rates})

    def https(self) -> Rates:
        """A new connection each; the trusted roots are the system's and one more, as they would be for anybody."""
        with TlsWeb(self.folder) as web:
            environment = {**self.environment, "SSL_CERT_FILE": str(web.roots)}
            who: dict[str, object] = {OURS: Darkroom(self.folder, environment, self.cores, ["--allow-private", f"127.0.0.1/32:{web.port}"])}
            who[URLLIB_SHARED] = Urllib(self.folder, environment, self.cores)
            if self.peers:
                who[AS_SHIPPED] = Img2dataset(self.folder, environment, self.cores, self.peers, [])
            urls = [f"https://127.0.0.1:{web.port}/{i}.jpg" for i in range(ROUTE)]
            return report("new https connections", measure(who, self.folder, urls, self.sizes(100, 1_100), {hashlib.sha256(web.body).hexdigest()}, self.rounds))


TLS_SERVER = """import os, socket, ssl, sys, threading
body = open(sys.argv[2], "rb").read()
answer = b"HTTP/1.1 200 OK\\r\\nContent-Type: image/jpeg\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
def serve(connection):
    try:
        with context.wrap_socket(connection, server_side=True) as secure:
            received = b""
            while b"\\r\\n\\r\\n" not in received:
                piece = secure.recv(65536)
                if not piece:
                    return
                received += piece
            secure.sendall(answer)
    except OSError:
        pass
def work():
    while True:
        serve(listener.accept()[0])
for _ in range(64):
    threading.Thread(target=work, daemon=True).start()
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


class TlsWeb:
    """One picture behind TLS 1.3, a connection a request, with a certificate that only `roots` knows."""

    def __init__(self, folder: pathlib.Path):
        self.body = photographs()[0][:]
        (folder / "tls.jpg").write_bytes(self.body)
        both, self.roots = folder / "tls.pem", folder / "roots.pem"
        key, certificate = folder / "tls.key", folder / "tls.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate, "-days", "2"]
                       + ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        self.roots.write_bytes(pathlib.Path("/etc/ssl/certs/ca-certificates.crt").read_bytes() + certificate.read_bytes())
        last = {max(os.sched_getaffinity(0))}
        self.process = subprocess.Popen([sys.executable, "-c", TLS_SERVER, both, folder / "tls.jpg"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, last))
        self.port = int(self.process.stdout.readline())

    def __enter__(self) -> "TlsWeb":
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.kill()
        self.process.wait()


BENCHES = {"bodies": Bench.bodies, "loops": Bench.loops, "https": Bench.https, "full": Bench.full, "process": Bench.process}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", type=pathlib.Path, help="a Python with img2dataset")
    parser.add_argument("--judge", action="store_true", help="exit with 1 when a goal of what ran was not reached or not measured")
    parser.add_argument("--shrink", type=int, default=1, metavar="N", help="an N-th of the rows, to see that it works: such figures say nothing")
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []])
    arguments = parser.parse_args()
    memory = pathlib.Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        measured = {name: BENCHES[name](Bench(arguments, pathlib.Path(folder))) for name in arguments.names or BENCHES}
    return 0 if judge(measured) or not arguments.judge else 1


if __name__ == "__main__":
    sys.exit(main())
