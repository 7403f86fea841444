#!/usr/bin/env python3
"""The acceptance of `darkroom serve` under load, lines 3 to 5 (docs/testing.md): lost replies, wrong pictures, refusals, memory.

usage: endpoint.py [--full] [--results FILE] [KIND...]    KIND: starts, pings, stops, mixed, overload, drips, leavers, hostile, keys; all
Counts are judged in both forms, times and memory in the full one, on a machine that does nothing else. A run that was cut goes on.
"""

import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import resource
import selectors
import signal
import socket
import sys
import threading
import time

import numpy as np

from harness import ROOT, main_of_kinds, require, temporary_folder
from serve_test import INVOCATIONS, PATIENCE, Server, model, pixels

WANTS_PNG = {"Accept": "image/png"}
SAMPLERS = ["euler_a", "dpmpp_2m", "pndm", "unipc", "ddim", "dpmpp_2m_karras", "euler"]
NUM_CLIENTS = 16
NO_BOUND = ("--deadline", "3600", "--queue-cost", "1e15")


def asked(seed: int, steps: int = 4, **fields) -> dict:
    return {"prompt": f"picture {seed}", "seed": seed, "num_inference_steps": steps, **fields}


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def resident_mb(server: Server) -> float:
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def outcome(server: Server, fields: dict) -> tuple[str, float]:
    """How a request ended: "200", "429", ..., or "lost" without a whole reply; and its seconds."""
    began = time.monotonic()
    try:
        status, headers, body = server.ask("POST", INVOCATIONS, fields, WANTS_PNG)
        if status == 200:
            pixels(body)
        require(status != 429 or "retry-after" in headers, "429 without Retry-After")
        return str(status), time.monotonic() - began
    except (OSError, http.client.HTTPException):
        return "lost", time.monotonic() - began


def counted(outcomes: list[str]) -> dict[str, int]:
    return {name: outcomes.count(name) for name in sorted(set(outcomes))}


# -- Line 3 --


def starts(trials) -> None:
    def start() -> float:
        began = time.monotonic()
        with Server(model()) as server:
            require(server.ask("GET", "/ping")[0] == 200, "it says where it listens and is not ready")
            return time.monotonic() - began

    seconds = [trials.trial(f"start {i}", start) for i in range(trials.count(2, 10))]
    trials.figures.update(starts=len(seconds), worst_seconds=round(max(seconds), 2))
    require(not trials.is_full or max(seconds) <= 10, "a cold start took", max(seconds))


def ping_while_it_paints(num_pings: int) -> dict:
    bad, connects, wholes = 0, [], []
    with Server(model(), *NO_BOUND) as server, concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as clients:
        is_over = threading.Event()

        def paint(client: int) -> list[str]:
            ends = []
            while not is_over.is_set():
                ends.append(outcome(server, asked(client, 5))[0])
            return ends

        painting = [clients.submit(paint, client) for client in range(NUM_CLIENTS)]
        try:
            for _ in range(num_pings):
                began = time.monotonic()
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
                    connects.append(time.monotonic() - began)
                    connection.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    bad += not connection.makefile("rb").read().startswith(b"HTTP/1.1 200 ")
                wholes.append(time.monotonic() - began)
        finally:
            is_over.set()
        painted = counted([end for one in painting for end in one.result()])
    return {"bad": bad, "worst_connect_seconds": round(max(connects), 4), "worst_seconds": round(max(wholes), 4), "painted": painted}


def pings(trials) -> None:
    num_pings = trials.count(50, 10_000)
    found = trials.trial("pings", lambda: ping_while_it_paints(num_pings))
    trials.figures.update(pings=num_pings, **found)
    require(found["bad"] == 0 and list(found["painted"]) == ["200"], "pings or pictures failed", found)
    require(not trials.is_full or (found["worst_connect_seconds"] <= 0.25 and found["worst_seconds"] <= 2), "too slow", found)


def stop_while_it_paints(seed: int) -> dict:
    """Requests that were sent before the signal are painted or refused in whole replies."""
    draw = random.Random(seed)
    with Server(model(), *NO_BOUND) as server, concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as clients:
        is_stopped = threading.Event()

        def ask(client: int) -> list[str]:
            ends = []
            while not is_stopped.is_set():
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
                was_before = False
                with contextlib.closing(connection):
                    try:
                        connection.request("POST", INVOCATIONS, json.dumps(asked(client, 2 + client % 4)), {"Content-Type": "application/json", **WANTS_PNG})
                        was_before = not is_stopped.is_set()
                        reply = connection.getresponse()
                        body = reply.read()
                        if reply.status == 200:
                            pixels(body)
                        ends.append(str(reply.status))
                    except (OSError, http.client.HTTPException):
                        ends.append("lost" if was_before else "turned away")
            return ends

        painting = [clients.submit(ask, client) for client in range(NUM_CLIENTS)]
        limit = time.monotonic() + PATIENCE
        while server.metric("darkroom_serve_pictures_total") < 1 and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(draw.random())
        is_stopped.set()
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(PATIENCE)
        seconds = time.monotonic() - began
        ends = counted([end for one in painting for end in one.result()])
    require(code == 143, "exit code", code, server.log[-1000:])
    return {"seconds": round(seconds, 2), **ends}


def stops(trials) -> None:
    num_stops = trials.count(2, 100)
    found = [trials.trial(f"stop {i}", lambda: stop_while_it_paints(i)) for i in range(num_stops)]
    totals = {name: sum(one.get(name, 0) for one in found) for name in sorted(set().union(*found) - {"seconds"})}
    worst = max(one["seconds"] for one in found)
    trials.figures.update(stops=num_stops, replies=totals, worst_seconds=worst)
    require(set(totals) <= {"200", "503", "turned away"}, "replies that are lost, or neither pictures nor refusals:", totals)
    require(not trials.is_full or worst <= 30, "a stop took", worst)


# -- Line 4 --


def mixed_request(seed: int) -> dict:
    draw = random.Random(seed)
    side = draw.choice([32, 64, 96])
    fields = asked(seed, draw.randint(1, 6), sampler=draw.choice(SAMPLERS), guidance_scale=draw.choice([1, 3.5, 7.5]), width=side, height=draw.choice([side, 64]))
    return {**fields, "negative_prompt": draw.choice(["", "blurry"])}


def paint_mixed(first: int, count: int) -> dict:
    """Pictures in company against the same ones painted alone by a server that never shares a network call."""
    requests = [mixed_request(seed) for seed in range(first, first + count)]
    with Server(model(), "--max-batch", "8", *NO_BOUND) as together, Server(model(), "--max-batch", "1", *NO_BOUND) as alone:
        with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as clients:
            company = list(clients.map(together.paint, requests))
        calls, steps = together.metric("darkroom_serve_calls_total"), together.metric("darkroom_serve_steps_total")
        distances = [int(np.abs(picture - alone.paint(fields)).max()) for fields, picture in zip(requests, company, strict=True)]
    require(steps > calls, "no call was shared")
    return {"wrong": sum(one > 1 for one in distances), "equal_bits": distances.count(0), "calls": calls, "steps": steps}


def mixed(trials) -> None:
    count, block = trials.count(12, 500), trials.count(12, 50)
    found = [trials.trial(f"requests from {first}", lambda: paint_mixed(first, block)) for first in range(0, count, block)]
    trials.figures.update(requests=count, **{name: sum(one[name] for one in found) for name in found[0]})
    require(trials.figures["wrong"] == 0, "pictures differ from those painted alone by more than 1 of 255:", trials.figures)


# -- Line 5 --


OVERLOAD_STEPS = 2  # A fixed service time: of the tiny model's pictures of two steps, as many at a time as there is room for.


def open_loop(server: Server, rate: float, seconds: float) -> dict:
    """Requests by the clock, whatever became of those before."""
    ends = []
    with concurrent.futures.ThreadPoolExecutor(256) as clients:
        began = time.monotonic()
        for i in range(int(rate * seconds)):
            time.sleep(max(0.0, began + i / rate - time.monotonic()))
            ends.append(clients.submit(outcome, server, asked(i, OVERLOAD_STEPS)))
        sent_seconds = time.monotonic() - began
        done_by_then = sum(one.done() and one.result()[0] == "200" for one in ends)
        outcomes = [one.result() for one in ends]
    rejects = [took for end, took in outcomes if end == "429"]
    return {"per_second": done_by_then / sent_seconds, "asked_per_second": len(ends) / sent_seconds, "reject_p99_seconds": round(percentile(rejects, 0.99), 4),
            "ends": counted([end for end, _ in outcomes]), "resident_mb": round(resident_mb(server), 1)}


def load_ten_times(seconds: float) -> dict:
    most_open = 64 * 64 * (OVERLOAD_STEPS + 2) * NUM_CLIENTS
    with Server(model(), "--deadline", "3600", "--queue-cost", str(most_open)) as server:
        with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as clients:
            num_warm = len(list(clients.map(lambda i: outcome(server, asked(i, OVERLOAD_STEPS)), range(NUM_CLIENTS))))
            began = time.monotonic()
            until = began + seconds

            def paint(client: int) -> int:
                num_done = 0
                while time.monotonic() < until:
                    num_done += outcome(server, asked(client, OVERLOAD_STEPS))[0] == "200"
                return num_done

            num_done = sum(clients.map(paint, range(NUM_CLIENTS)))
            peak = num_done / (time.monotonic() - began)
        rounds = [open_loop(server, 10 * peak, seconds) for _ in range(2)]
        require(server.ask("GET", "/ping")[0] == 200 and num_warm > 0, "it no longer answers")
    return {"peak_per_second": round(peak, 2), "rounds": rounds, "grown_mb": round(rounds[1]["resident_mb"] - rounds[0]["resident_mb"], 1)}


def overload(trials) -> None:
    found = trials.trial("ten times the peak", lambda: load_ten_times(trials.count(3, 60)))
    goodput = min(one["per_second"] for one in found["rounds"]) / found["peak_per_second"]
    trials.figures.update(found, goodput=round(goodput, 3))
    for one in found["rounds"]:
        require(set(one["ends"]) == {"200", "429"}, "replies other than pictures and refusals", one["ends"])
    require(found["grown_mb"] <= 8 + trials.slack_mb, "memory grows under the same load (MB):", found["grown_mb"])
    worst = max(one["reject_p99_seconds"] for one in found["rounds"])
    require(not trials.is_full or (goodput >= 0.95 and worst <= 0.05), "goodput or the time of a refusal", goodput, worst)


class Drips:
    """Connections that send a byte of a request now and then; one that the server has ended is opened again."""

    HEAD = b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 10_000

    def __init__(self, port: int, count: int):
        self.port, self.count, self.num_ended, self.is_over = port, count, 0, threading.Event()
        self.all_open = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> "Drips":
        self.thread.start()
        require(self.all_open.wait(PATIENCE), "the slow connections cannot be opened")
        return self

    def __exit__(self, *unused) -> None:
        self.is_over.set()
        self.thread.join()

    def run(self) -> None:
        with contextlib.ExitStack() as held, selectors.DefaultSelector() as ended:
            open_ones = {}
            while not self.is_over.is_set():
                while len(open_ones) < self.count:
                    connection = held.enter_context(socket.create_connection(("127.0.0.1", self.port), PATIENCE))
                    ended.register(connection, selectors.EVENT_READ)
                    open_ones[connection] = 0
                self.all_open.set()
                for connection, num_sent in list(open_ones.items()):
                    with contextlib.suppress(OSError):
                        connection.send(self.HEAD[num_sent:num_sent + 1])
                    open_ones[connection] = num_sent + 1
                for key, _ in ended.select(0):
                    ended.unregister(key.fileobj)
                    key.fileobj.close()
                    del open_ones[key.fileobj]
                    self.num_ended += 1
                self.is_over.wait(0.5)


def paint_beside_drips(num_drips: int, num_pictures: int) -> dict:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    require(most > num_drips + 200, "this process may not open so many connections:", most)
    with Server(model()) as server:
        outcome(server, asked(0))
        alone = [outcome(server, asked(i)) for i in range(num_pictures)]
        with Drips(server.port, num_drips) as drips:
            beside = [outcome(server, asked(i)) for i in range(num_pictures)]
            limit = time.monotonic() + PATIENCE  # They look every half a second.
            while drips.num_ended < num_drips - 512 and time.monotonic() < limit:
                time.sleep(0.05)
        p99 = [percentile([took for _, took in some], 0.99) for some in (alone, beside)]
    return {"ends": counted([end for end, _ in alone + beside]), "slow_ended": drips.num_ended, "p99_alone": round(p99[0], 4), "p99_beside": round(p99[1], 4)}


def drips(trials) -> None:
    num_drips = trials.count(600, 2000)  # More than the server has room for (512), in both.
    found = trials.trial("drips", lambda: paint_beside_drips(num_drips, trials.count(8, 500)))
    trials.figures.update(found, slow=num_drips)
    require(list(found["ends"]) == ["200"] and found["slow_ended"] >= num_drips - 512, "good requests beside slow connections", found)
    require(not trials.is_full or found["p99_beside"] <= 1.2 * found["p99_alone"], "slow connections slow others down", found)


def leave(server: Server, seed: int) -> int:
    """Steps that were taken for a client after it was gone, those included that the look at the counter took."""
    draw = random.Random(seed)
    text = json.dumps(asked(seed, 500, width=256, height=256)).encode()
    first = server.metric("darkroom_serve_steps_total")
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        connection.sendall(b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        limit = time.monotonic() + PATIENCE
        until = first + draw.randint(1, 12)
        while server.metric("darkroom_serve_steps_total") < until:
            require(time.monotonic() < limit, "nothing is painted")
    before = server.metric("darkroom_serve_steps_total")  # Read when it is gone: a slow look at the counter costs no step.
    while server.metric("darkroom_serve_open_cost") > 0:
        require(time.monotonic() < limit, "it goes on for nobody")
    return int(server.metric("darkroom_serve_steps_total") - before)


def leavers(trials) -> None:
    count, block = trials.count(5, 200), trials.count(5, 20)

    def some(first: int) -> list[int]:
        with Server(model(), *NO_BOUND) as server:
            return [leave(server, seed) for seed in range(first, first + block)]

    taken = [steps for first in range(0, count, block) for steps in trials.trial(f"from {first}", lambda: some(first))]
    trials.figures.update(leavers=count, steps_after=counted([str(one) for one in taken]))
    require(max(taken) <= 2, "steps after the client was gone (one that was begun, one that the look at the counter saw begin):", taken)


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
SMUGGLING = [b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
             b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", b"Content-Length: +4\r\n\r\nabcd", b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
             b"Transfer-Encoding: xchunked\r\n\r\n", b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"]


def post_of(path: str, body: bytes, kind: str = "application/json") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


HOSTILE = [(b"POST /invocations HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + vector + SMUGGLED, {400}) for vector in SMUGGLING] + [
    (post_of(INVOCATIONS, b"{"), {400}), (post_of(INVOCATIONS, b'{"prompt":' + b"[" * 5000), {400}), (post_of(INVOCATIONS, b'{"prompt":"x","num_inference_steps":1e400}'), {400}),
    (post_of(INVOCATIONS, b'{"prompt":"x","width":1e9}'), {400}), (post_of(INVOCATIONS, b"x", "text/html"), {400, 415}), (post_of("/sdapi/v1/png-info", b'{"image":"AAAA"}'), {400}),
    (b"GET /%00/../..%2f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", {400, 404}), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", {400}),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", {400, 413, 431}), (b"GET / HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n", {403, 421})]
GOOD = [(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(), {200}) for path in ("/v1/facts", "/ping", "/sdapi/v1/samplers", "/v2")]
HOSTILE_SHARE = 0.2


def said(port: int, request: bytes) -> list[int]:
    """The statuses of all replies on the connection until the server ends it."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(request)
        while piece := connection.recv(65_536):
            received += piece
    return [int(part.split(b" ", 1)[0]) for part in received.split(b"HTTP/1.1 ")[1:]]


def ask_hostile(first: int, count: int) -> dict:
    """Memory is looked at after a first tenth, by whose end all that is made once is there."""
    with Server(model()) as server, concurrent.futures.ThreadPoolExecutor(4) as clients:

        def some(seeds: range) -> list[str]:
            wrong = []
            for seed in seeds:
                draw = random.Random(seed)
                request, want = draw.choice(HOSTILE if draw.random() < HOSTILE_SHARE else GOOD)
                statuses = said(server.port, request)
                if len(statuses) != 1 or statuses[0] not in want:
                    wrong.append(f"{request[:120]!r}: {statuses}")
            return wrong

        def all_of(begin: int, end: int) -> list[str]:
            return [one for part in clients.map(some, [range(begin + i, end, 4) for i in range(4)]) for one in part]

        wrong = all_of(first, first + count // 10)
        before = resident_mb(server)
        wrong += all_of(first + count // 10, first + count)
        grown = resident_mb(server) - before
    return {"wrong": len(wrong), "examples": sorted(set(wrong))[:5], "grown_mb": round(grown, 2)}


def hostile(trials) -> None:
    count, block = trials.count(3000, 1_000_000), trials.count(3000, 250_000)
    found = [trials.trial(f"requests from {first}", lambda: ask_hostile(first, block)) for first in range(0, count, block)]
    slope = max(one["grown_mb"] for one in found) / (0.9 * block) * 1e5
    trials.figures.update(requests=count, wrong=sum(one["wrong"] for one in found), worst_mb_per_1e5=round(slope, 2))
    require(trials.figures["wrong"] == 0, "replies other than wanted:", *[one["examples"] for one in found])
    require(not trials.is_full or slope <= 1, "memory grows by MB per 1e5 requests:", slope)


def ask_with_wrong_keys() -> dict:
    key = "a-key-of-more-than-16-characters"
    headers = [{}, *({"Authorization": text} for text in ("Bearer", "Bearer ", f"Bearer {key[:-1]}", f"Bearer {key}x", f"Basic {key}", key, "Bearer wrong-key-of-more-than-16"))]
    with temporary_folder() as folder:
        (folder / "keys").write_text(key + "\n")
        with Server(model(), "--keys", folder / "keys") as server:
            document = json.loads(server.ask("GET", "/openapi.json", headers={"Authorization": f"Bearer {key}"})[2])
            closed = [(method.upper(), path) for path, methods in document["paths"].items() for method, operation in methods.items() if operation.get("security") != []]
            let_in = [(*route, header) for route in closed for header in headers if server.ask(*route, headers=header)[0] != 401]
    return {"routes": len(closed), "keys": len(headers), "let_in": let_in}


def keys(trials) -> None:
    found = trials.trial("matrix", ask_with_wrong_keys)
    trials.figures.update(found)
    require(found["routes"] >= 30 and not found["let_in"], "routes that answer without a key:", found)


CHECKS = [(f"endpoint.{check.__name__}", check) for check in (starts, pings, stops, mixed, overload, drips, leavers, hostile, keys)]

if __name__ == "__main__":
    sys.exit(main_of_kinds(__doc__, CHECKS, "endpoint", []))
