#!/usr/bin/env python3
"""The acceptance of `darkroom serve`, lines 3 to 5 (docs/testing.md): starts, pings, stops, pictures in company and keys of the program over a model here,
what wants a model of a fixed time in endpoint_load.py.

usage: endpoint.py [--full] [--results FILE] [KIND...]    KIND: starts, pings, stops, mixed, keys, shorts, shares, overload, drips, leavers, hostile; all
Also checks of acceptance.py. Counts are judged in both forms, times and memory more widely in the short one. A run that was cut goes on.
"""

import concurrent.futures
import contextlib
import http.client
import json
import random
import signal
import socket
import sys
import threading
import time

import numpy as np

from endpoint_load import LOAD_CHECKS, WANTS_PNG, asked, counted, outcome
from harness import main_of_kinds, require, temporary_folder
from serve_test import INVOCATIONS, PATIENCE, Server, model, pixels

SAMPLERS = ["euler_a", "dpmpp_2m", "pndm", "unipc", "ddim", "dpmpp_2m_karras", "euler"]
NUM_CLIENTS = 16
NO_BOUND = ("--deadline", "3600", "--queue-cost", "1e15")


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


CHECKS = [(f"endpoint.{check.__name__}", check) for check in (starts, pings, stops, mixed, keys)] + LOAD_CHECKS

if __name__ == "__main__":
    sys.exit(main_of_kinds(__doc__, CHECKS, "endpoint", []))
