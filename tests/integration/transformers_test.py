#!/usr/bin/env python3
"""`process --transformers`: reading and transforming on other machines than encoding. The parts are those of one program, whoever dies.

usage: transformers_test.py
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

from ports import free_port
from workbench import PROGRAM, ROOT, Workbench, digests, main, require, run

sys.path.append(str(ROOT / "tests" / "acceptance"))

from harness import BUCKET, FakeS3Server  # noqa: E402

NUM_PICTURES = 160
PATIENCE = 300  # Seconds; a limit, no measure.
FLAGS = ["--resolution", "128", "--keep-columns", "url"]


class Transformer:
    """`darkroom transformer` at a port of its own."""

    def __init__(self, images: str, *flags, environment: dict | None = None):
        command = [str(PROGRAM), "transformer", images, *FLAGS, "--num-workers", "1", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        line = self.process.stdout.readline()
        require(line.startswith("transformer ready at "), "the transformer does not start", line, self.process.stderr.read()[-2000:] if not line else "")
        self.address = line.split()[-1]

    def __enter__(self) -> "Transformer":
        return self

    def __exit__(self, *unused) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        said, errors = self.process.communicate(timeout=PATIENCE)
        require(self.process.returncode == 0, "exit code after SIGTERM", self.process.returncode, errors[-2000:])


def process_command(bench: Workbench, images: str, name: str, *more) -> list[str]:
    return ["process", images, bench.path(name), "--model", bench.model, *FLAGS, "--rows-per-file", "10", "--batch-size", "4", *map(str, more)]


def start(*arguments, environment: dict | None = None) -> subprocess.Popen:
    return subprocess.Popen([str(PROGRAM), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


def wait_for(what, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def hold_at_a_part(bench: Workbench, job: subprocess.Popen) -> None:
    """What is held does not end while something is killed."""
    wait_for(lambda: list(pathlib.Path(bench.path("apart")).glob("part-*.parquet")), job)
    job.send_signal(signal.SIGSTOP)
    require(job.poll() is None, "the job was done before it could be held")


def require_same_parts(bench: Workbench, name: str) -> None:
    require(digests(bench.path(name), "part-*") == digests(bench.path("alone"), "part-*"), "other parts than those of one program", name)


def with_dataset(work) -> None:
    with Workbench(NUM_PICTURES) as bench:
        images = bench.write_image_dataset("images", 25, {5: b"no picture", 31: None})
        run(*process_command(bench, images, "alone"))
        work(bench, images)


def a_transformer_that_is_killed_costs_no_row() -> None:
    def work(bench: Workbench, images: str) -> None:
        with Transformer(images) as one, Transformer(images) as other:
            job = start(*process_command(bench, images, "apart", "--transformers", f"{one.address},{other.address}", "--json-summary", bench.path("summary.json")))
            hold_at_a_part(bench, job)
            one.process.kill()
            job.send_signal(signal.SIGCONT)
            _, said = job.communicate(timeout=PATIENCE)
            require(job.returncode == 0, "the job failed", said[-3000:])
            summary = json.loads(pathlib.Path(bench.path("summary.json")).read_text())["process"]
            require(summary["rows_in"] == NUM_PICTURES and summary["rows_by_error"] == {"not_an_image": 1, "null_image": 1}, "rows", summary)
            require_same_parts(bench, "apart")
            other.end()

    with_dataset(work)


def transformers_are_replaced_in_a_file() -> None:
    """All of them go; the job waits until the file names others. It begins where none is up yet."""

    def work(bench: Workbench, images: str) -> None:
        addresses = pathlib.Path(bench.path("addresses"))
        addresses.write_text("# none yet\n")
        job = start(*process_command(bench, images, "apart", "--transformers", f"@{addresses}"))
        with Transformer(images) as first:
            addresses.write_text(f"{first.address}\n")
            hold_at_a_part(bench, job)
        job.send_signal(signal.SIGCONT)
        with Transformer(images) as second:
            addresses.write_text(f"{second.address}\n")
            _, said = job.communicate(timeout=PATIENCE)
        require(job.returncode == 0, "the job failed", said[-3000:])
        require_same_parts(bench, "apart")

    with_dataset(work)


class Relay:
    """A port behind which a server is, unless it is away."""

    def __init__(self, endpoint: str):
        self.server = (endpoint.split(":")[0], int(endpoint.split(":")[1]))
        self.port = free_port()
        self.connections: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self.accept, args=[self.listener], daemon=True).start()

    def accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # It is closed.
            while True:
                client = listener.accept()[0]
                server = socket.create_connection(self.server)
                self.connections += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self.pass_on, args=(source, target), daemon=True).start()

    def pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def go_away(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in self.connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def come_back(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self.accept, args=[self.listener], daemon=True).start()


def a_store_that_is_away_is_waited_for() -> None:
    """By who reads, as by a job that reads itself."""

    def work(bench: Workbench, images: str) -> None:
        with FakeS3Server() as store:
            require(store.tell(f"load {images} images") == "ok", "the pictures")
            relay = Relay(store.endpoint)
            environment = store.environment(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{relay.port}")
            with Transformer(f"s3://{BUCKET}/images", environment=environment) as transformer:
                job = start(*process_command(bench, images, "apart", "--transformers", transformer.address))
                hold_at_a_part(bench, job)
                relay.go_away()
                job.send_signal(signal.SIGCONT)
                threading.Thread(target=lambda: (job.wait(), transformer.process.kill()), daemon=True).start()  # Nobody waits for its words then.
                said = next((line for line in transformer.process.stderr if "the store cannot be reached; waiting" in line), "")
                require(said, "the job did not wait", job.poll())
                relay.come_back()
                _, said = job.communicate(timeout=PATIENCE)
                require(job.returncode == 0, "the job failed", said[-3000:])
                require_same_parts(bench, "apart")

    with_dataset(work)


def strangers_get_nothing() -> None:
    def work(bench: Workbench, images: str) -> None:
        secret = {**os.environ, "DARKROOM_ENCODER_TOKEN": "a canary"}
        summary = pathlib.Path(bench.path("transformer.json"))
        with Transformer(images, "--json-summary", summary, environment=secret) as transformer:
            command = process_command(bench, images, "apart", "--transformers", transformer.address)
            refused = subprocess.run([str(PROGRAM), *command], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
            require(refused.returncode == 1 and "token" in refused.stderr, "a job without the token", refused.returncode, refused.stderr[-2000:])
            let_in = subprocess.run([str(PROGRAM), *command], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, env=secret)
            require(let_in.returncode == 0, "a job with the token", let_in.stderr[-2000:])
            require("canary" not in refused.stderr + let_in.stderr, "the token was said")
            require_same_parts(bench, "apart")
            transformer.end()
            require(json.loads(summary.read_text())["transformer"]["rows"] == NUM_PICTURES, "rows of a stopped one", summary.read_text())
        done = subprocess.run([str(PROGRAM), "transformer", bench.path("absent"), *FLAGS, "--json-summary", summary], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
        counted = json.loads(summary.read_text())
        require(done.returncode == 1 and counted["transformer"]["rows"] == 0 and counted["error"], "the summary of one that fails", done.returncode, counted)
        done = subprocess.run([str(PROGRAM), "transformer", images, *FLAGS, "--listen", "0.0.0.0:0"], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
        require(done.returncode == 2 and "DARKROOM_ENCODER_TOKEN" in done.stderr, "beyond loopback without a token", done.returncode, done.stderr[-2000:])

    with_dataset(work)


if __name__ == "__main__":
    main([a_transformer_that_is_killed_costs_no_row, transformers_are_replaced_in_a_file, a_store_that_is_away_is_waited_for, strangers_get_nothing])
