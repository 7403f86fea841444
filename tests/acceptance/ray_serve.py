#!/usr/bin/env python3
"""`darkroom-ray serve` on a cluster of one node: the pictures of `sample`, a second service, streams, a replica that is killed, several replicas, a stop.

usage: ray_serve.py
"""

import atexit
import contextlib
import functools
import http.client
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

from cases import made_once  # noqa: E402
from ports import free_port  # noqa: E402
from ray_bench import PATIENCE, RAY_PYTHON, RayCluster, kill, programs  # noqa: E402
from workbench import PROGRAM, ROOT, Skipped, main, numbers_at, require, run  # noqa: E402

LISTENS = "0A"  # A socket's state in /proc/net/tcp.
GIVEN_UP = 'darkroom_serve_orders_total{result="given_up"}'
KEY = "a-key-of-more-than-16-characters"
TARGET_COST = 1e7  # Above the open cost of every case but one.
LONG = {"num_inference_steps": 500, "width": 128, "height": 128}  # Costs 8.2e6: seconds of work.
PROMPT = {"prompt": "a red apple", "num_inference_steps": 4, "seed": 7}


@functools.cache
def folder() -> pathlib.Path:
    made = pathlib.Path(tempfile.mkdtemp(prefix="darkroom-test-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    run("models", "init", "--preset", "tiny", made / "tiny", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer")
    (made / "keys.txt").write_text(KEY + "\n")
    return made


def pixels(png) -> bytes:
    return Image.open(png).convert("RGB").tobytes()


class Service:
    """`darkroom-ray serve` at work, on a cluster of its own or on that of another one and through its proxies."""

    def __init__(self, *flags, beside: "Service | None" = None, path: str = "", has_model: bool = True) -> None:
        self.cluster = beside.cluster if beside else RayCluster(kinds=("cpu",))
        if not beside:
            atexit.register(self.cluster.close)
        self.port = beside.port if beside else free_port()
        self.path = path
        self.models = [folder() / "tiny"] if has_model else []
        self.said = tempfile.TemporaryFile("w+")
        command = [*self.command(), *flags]
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.said, stderr=self.said, cwd=ROOT, env=self.cluster.environment())
        atexit.register(self.end)
        self.wait_for(lambda: "serving at" in self.words(), "the service")

    def command(self) -> list:
        return [RAY_PYTHON, "-m", "darkroom_ray", "serve", *self.models, "--port", self.port, "--threads", "1", "--num-cpus-per-task", "0.25", "--keys", folder() / "keys.txt"]

    def words(self) -> str:
        self.said.seek(0)
        return self.said.read()

    def wait_for(self, is_so, what: str):
        end = time.monotonic() + PATIENCE
        while not (found := is_so()):
            require(self.process.poll() is None, "the command ended before", what, self.words()[-4000:])
            require(time.monotonic() < end, "never came:", what, self.words()[-4000:])
            time.sleep(0.05)
        return found

    def ask(self, method: str, path: str, body: dict | None = None, headers: dict | None = None) -> tuple[int, dict, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, self.path + path, json.dumps(body) if body else None, {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", **(headers or {})})
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()

    def children(self) -> list[int]:
        return programs("serve", folder() / "tiny")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


the_service = made_once(lambda: Service("--max-replicas", "2", "--target-cost", str(TARGET_COST), "--queue-cost", "1e9", "--deadline", "86400"))


def what_would_let_others_in_is_refused() -> None:
    if not RAY_PYTHON.exists():
        raise Skipped("there is no .venv-ray")
    for flags, words in ((["--host", "0.0.0.0"], "--keys FILE"), (["--min-replicas", "3", "--max-replicas", "2"], "--max-replicas 2 is less"), (["--steps", "3"], "--steps")):
        done = subprocess.run([RAY_PYTHON, "-m", "darkroom_ray", "serve", folder() / "tiny", *flags], capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "DARKROOM_PROGRAM": str(PROGRAM)}, timeout=PATIENCE)
        require(done.returncode == 2 and words in done.stderr, "the sentence is missing", flags, done.returncode, done.stderr[-2000:])


def a_picture_is_that_of_sample_and_failures_are_the_programs() -> None:
    service = the_service()
    status, headers, body = service.ask("POST", "/invocations", PROMPT, {"Accept": "image/png"})
    require(status == 200 and headers["content-type"] == "image/png" and headers["x-darkroom-seed"] == "7", "painting", status, headers, body[:500])
    run("sample", "--model", folder() / "tiny", "--prompt", PROMPT["prompt"], "--steps", "4", "--seed", "7", "--output", folder() / "sample.png")
    require(pixels(io.BytesIO(body)) == pixels(folder() / "sample.png"), "the picture is not that of sample")
    require(service.ask("GET", "/imagine?prompt=a%20red%20apple&img_size=64&steps=2&seed=1")[1]["content-type"] == "image/png", "a query")
    require(service.ask("GET", "/v1/models", headers={"Authorization": "Bearer wrong"})[0] == 401, "a wrong key was taken")
    status, _, body = service.ask("POST", "/invocations", {"prompt": "x", "no_such_field": 1})
    require(status == 400 and b"no_such_field" in body, "a wrong field", status, body)
    for path in ("/v1/jobs", "/metrics"):
        status, _, body = service.ask("GET", path)
        require(status == 501 and b"--max-replicas 1" in body, "what is one server's among several", path, status, body)


def bodies_are_the_servers_to_refuse() -> None:
    """Through Ray's proxy: without a key before a byte of it came, and where it stalls."""
    service = the_service()
    for key, want in (("wrong", 401), (KEY, 408)):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.putrequest("POST", "/invocations")
            for name, value in (("Content-Type", "application/json"), ("Authorization", f"Bearer {key}"), ("Content-Length", "1000")):
                connection.putheader(name, value)
            connection.endheaders()
            require((status := connection.getresponse().status) == want, "a body that does not come", key, status)


def another_service_has_a_name_and_ends_alone() -> None:
    service = the_service()
    again = subprocess.run([str(word) for word in service.command()], capture_output=True, text=True, cwd=ROOT, env=service.cluster.environment(), timeout=PATIENCE)
    require(again.returncode == 2 and "another command serves darkroom" in again.stderr, "a second service of the name", again.returncode, again.stderr[-2000:])
    want = service.ask("POST", "/invocations", PROMPT, {"Accept": "image/png"})
    other = Service("--name", "other", beside=service, path="/other")
    got = other.ask("POST", "/invocations", PROMPT, {"Accept": "image/png"})
    require(got[0] == want[0] == 200 and got[2] == want[2], "the pictures", got[:2], want[:2])
    require(other.ask("GET", "/v1/jobs")[0] == 200 and service.ask("GET", "/v1/jobs")[0] == 501, "whose routes they are")
    other.process.send_signal(signal.SIGTERM)
    require(other.process.wait(PATIENCE) == 128 + signal.SIGTERM, "exit code", other.process.returncode, other.words()[-3000:])
    require(service.ask("POST", "/invocations", PROMPT, {"Accept": "image/png"})[0] == 200, "the other's end ended this one")


def a_server_whose_models_come_by_requests_starts() -> None:
    other = Service("--name", "loaded", "--multi-model", folder(), beside=the_service(), path="/loaded", has_model=False)
    require(other.ask("GET", "/v1/facts")[0] == 404, "facts of no model")
    status, _, body = other.ask("POST", "/models", {"model_name": "small", "url": str(folder() / "tiny")})
    require(status == 200, "loading", status, body)
    status, _, body = other.ask("POST", "/models/small/invoke", PROMPT, {"Accept": "image/png"})
    require(status == 200 and body.startswith(b"\x89PNG"), "a picture", status, body[:500])
    other.process.send_signal(signal.SIGTERM)
    require(other.process.wait(PATIENCE) == 128 + signal.SIGTERM, "exit code", other.process.returncode, other.words()[-3000:])


def port_of(pid: int) -> int:
    """Where a server listens; 0: it does not yet, or is gone."""
    with contextlib.suppress(OSError):
        sockets = {os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and f"socket:[{fields[9]}]" in sockets:
                return int(fields[1].partition(":")[2], 16)
    return 0


def open_cost(service: Service) -> float:
    return metric(service, "darkroom_serve_open_cost")


def metric(service: Service, name: str) -> float:
    """Of all servers together, each asked by itself: Ray's proxies would ask any one of them."""
    total = 0.0
    for port in filter(None, map(port_of, service.children())):
        page = numbers_at(f"127.0.0.1:{port}", PATIENCE, {"Authorization": f"Bearer {KEY}"})
        found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
        total += float(found[1]) if found else 0.0
    return total


@contextlib.contextmanager
def asked(service: Service, fields: dict, accept: str):
    """A connection on which a picture was asked for."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("POST", "/invocations", json.dumps({**PROMPT, **fields}), {"Content-Type": "application/json", "Accept": accept, "Authorization": f"Bearer {KEY}"})
        yield connection


def require_given_up(service: Service, before: float) -> None:
    service.wait_for(lambda: open_cost(service) == 0 and metric(service, GIVEN_UP) == before + 1, "that the order is given up")


def streams_come_event_by_event() -> None:
    service = the_service()
    with asked(service, {"num_inference_steps": 10, "preview_every": 5}, "text/event-stream") as connection:
        reply = connection.getresponse()
        require(reply.status == 200 and reply.getheader("Content-Type").startswith("text/event-stream"), "the stream's head", reply.status)
        events = re.findall(r"^event: (.*)", reply.read().decode(), re.MULTILINE)
    require(events[-1] == "done" and "progress" in events and "preview" in events, "events", events)
    before = metric(service, GIVEN_UP)
    with asked(service, LONG, "text/event-stream") as connection:
        require(connection.getresponse().readline().startswith(b"event: "), "the first event")
        require(open_cost(service) > 0, "the first event came with the last one")
    require_given_up(service, before)


def a_client_that_goes_is_painted_for_no_more() -> None:
    service = the_service()
    before = metric(service, GIVEN_UP)
    with asked(service, LONG, "image/png"):
        service.wait_for(lambda: open_cost(service) > 0, "the order")
    require_given_up(service, before)


def a_killed_server_is_replaced() -> None:
    service = the_service()
    [child] = service.children()
    require(kill(child), "nothing was killed")
    service.wait_for(lambda: [pid for pid in service.children() if pid != child], "another server")
    service.wait_for(lambda: service.ask("POST", "/invocations", PROMPT, {"Accept": "image/png"})[0] == 200, "a picture of it")


def much_open_work_brings_another_server() -> None:
    service = the_service()
    require(len(service.children()) == 1, "servers before", service.children())
    with contextlib.ExitStack() as orders:

        def is_there() -> bool:
            if len(service.children()) < 2 and open_cost(service) < 2 * TARGET_COST:  # Ray counts the mean of ten seconds, and an order's cost shrinks as it is painted.
                orders.enter_context(asked(service, {"num_inference_steps": 500, "num_images_per_prompt": 10}, "application/json"))  # Twice what a replica is meant for.
            return len(service.children()) == 2

        service.wait_for(is_there, "another server")


def a_stop_sends_every_reply_and_ends_the_servers() -> None:
    service = the_service()
    found: list = []
    asking: list[threading.Thread] = []

    def is_at_work() -> bool:
        if not asking or not asking[-1].is_alive():  # A reply that came before anybody looked.
            found.clear()
            asking.append(threading.Thread(target=lambda: found.append(service.ask("POST", "/invocations", {**PROMPT, "num_inference_steps": 100}, {"Accept": "image/png"}))))
            asking[-1].start()
        return open_cost(service) > 0

    service.wait_for(is_at_work, "the order")
    service.process.send_signal(signal.SIGTERM)
    require(service.process.wait(PATIENCE) == 128 + signal.SIGTERM, "exit code", service.process.returncode, service.words()[-3000:])
    asking[-1].join()
    require(found and found[0][0] == 200 and found[0][2].startswith(b"\x89PNG"), "the reply", found[0][:2] if found else "none")
    require(not service.children(), "a server outlives its service")


if __name__ == "__main__":
    main(
        [
            what_would_let_others_in_is_refused,
            a_picture_is_that_of_sample_and_failures_are_the_programs,
            bodies_are_the_servers_to_refuse,
            another_service_has_a_name_and_ends_alone,
            a_server_whose_models_come_by_requests_starts,
            streams_come_event_by_event,
            a_client_that_goes_is_painted_for_no_more,
            a_killed_server_is_replaced,
            much_open_work_brings_another_server,
            a_stop_sends_every_reply_and_ends_the_servers,
        ]
    )
