"""The endpoint under load, lines 4 and 5 (docs/testing.md), over a stub whose calls take a fixed time (stub_server.cpp): overload, clients that drip, that
leave, that are hostile, and who waits for whom. Where calls are counted instead of seconds, the stub makes one when it is told to, so nothing depends on
the machine. Whoever asks by the clock counts its seconds from the moment at which it meant to ask, so a sender that falls behind hides nothing."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import time

from harness import ROOT, build, judges, require
from serve_test import GENERATIONS, INVOCATIONS, PATIENCE, Server, pixels

WANTS_PNG = {"Accept": "image/png"}
BATCH = 8
SIDE = 64
COST_OF_STEP = SIDE * SIDE
COST_AROUND_STEPS = 2  # Of a picture, in steps (PictureSpec::cost).


def asked(seed: int, steps: int = 4, **fields) -> dict:
    return {"prompt": f"picture {seed}", "seed": seed, "num_inference_steps": steps, **fields}


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def counted(outcomes: list[str]) -> dict[str, int]:
    return {name: outcomes.count(name) for name in sorted(set(outcomes))}


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


def post_of(path: str, body: bytes, kind: str = "application/json", accept: str = "*/*") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\nAccept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def stub_server() -> pathlib.Path:
    return build("stub_server")


class StubServer(Server):
    """The server over a stub: calls of `call_ms` with up to BATCH pictures, and room for so many steps of pictures (SIDE x SIDE)."""

    def __init__(self, call_ms: int = 0, room_for_steps: float = 1e9):
        self.tls = None
        command = [stub_server(), str(call_ms), str(BATCH), str(room_for_steps * COST_OF_STEP)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.await_start()

    def resident_mb(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6

    def tell(self, words: str, answer: str) -> None:
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        self.await_answer(answer)

    def await_answer(self, answer: str) -> None:
        said = self.process.stdout.readline().strip()
        require(said == answer, "the stub's answer, want:", answer, "got:", said)

    def begin_hold(self, num_calls: int) -> None:
        """No call is made after this one."""
        self.tell(f"hold {num_calls}", "held")

    def await_held(self, num_calls: int) -> None:
        """One more has begun and waits."""
        self.await_answer(str(num_calls))

    def hold(self, num_calls: int) -> None:
        self.begin_hold(num_calls)
        self.await_held(num_calls)

    def go(self) -> None:
        self.tell("go", "go")

    def open_steps(self) -> float:
        return self.metric("darkroom_serve_open_cost") / COST_OF_STEP

    def calls(self, fields: dict) -> tuple[int, int]:
        """Paints a picture; the numbers of its first and its last call."""
        status, _, body = self.ask("POST", INVOCATIONS, fields, WANTS_PNG)
        require(status == 200, "painting", fields, status, body[:500])
        first, last = ((int(red) << 16) + (int(green) << 8) + int(blue) for red, green, blue in pixels(body)[0, :2])
        return first, last


# -- Line 4: who waits for whom, in calls --


LONG_STEPS, SHORT_STEPS = 50, 4
SHORT_BOUND = 1.5


class HeldOrders:
    """Requests to a stub that waits in a call: each is taken before the next is sent, so the order in which they come is that of the test."""

    def __init__(self, server: StubServer, clients: concurrent.futures.Executor):
        self.server, self.clients = server, clients

    def begin(self, fields: dict) -> concurrent.futures.Future:
        before = self.server.open_steps()
        painting = self.clients.submit(self.server.calls, fields)
        limit = time.monotonic() + PATIENCE
        while self.server.open_steps() <= before:
            require(time.monotonic() < limit and not painting.done(), "a request is not taken", fields)
        return painting


def paint_shorts_beside_longs(num_shorts: int, sides: list[int]) -> dict:
    """Requests of few steps come at random calls to a server that has more of 50 steps than fit into a call, of one size or two. The call that runs when
    one comes counts as a whole."""
    draw = random.Random(num_shorts)
    with StubServer() as server, concurrent.futures.ThreadPoolExecutor(8 * BATCH) as clients:
        alone = server.calls(asked(0, SHORT_STEPS))
        num_alone = alone[1] - alone[0] + 1
        orders = HeldOrders(server, clients)
        server.begin_hold(num_alone)
        longs = [clients.submit(server.calls, asked(0, LONG_STEPS))]
        server.await_held(num_alone)
        at, shorts = num_alone, []
        while len(shorts) < num_shorts:
            while sum(not one.done() for one in longs) < 3 * BATCH:
                longs.append(orders.begin(asked(len(longs), LONG_STEPS, width=sides[len(longs) % len(sides)], height=SIDE)))
            at += draw.randint(1, BATCH)
            server.hold(at)
            require(server.open_steps() > BATCH * LONG_STEPS / 2, "the long requests are too few")
            shorts.append((at, orders.begin(asked(at, SHORT_STEPS))))
        server.go()
        waited = [one.result(PATIENCE)[1] - came for came, one in shorts]
        for one in longs:
            one.result(PATIENCE)
    return {"alone": num_alone, "p50": percentile(waited, 0.5), "p99": percentile(waited, 0.99), "worst": max(waited)}


@judges(stub_server)
def shorts(trials) -> None:
    count = trials.count(100, 1000)
    found = {name: trials.trial(name, lambda: paint_shorts_beside_longs(count, sides)) for name, sides in (("one size", [SIDE]), ("two sizes", [SIDE, 2 * SIDE]))}
    trials.figures.update(shorts=count, calls=found)
    for name, one in found.items():
        require(one["alone"] == SHORT_STEPS and one["p99"] <= SHORT_BOUND * SHORT_STEPS, "calls of a short request beside long ones", name, one)


COMING_AT_A_CALL = [0, 1, 2, 5]  # Of few steps they are as much as the server can do, and the long ones are beside them.
LONG_SHARE = 0.03
SHARE_BOUND = 1  # Calls: the one that runs when a request comes takes it in only at its end.


def shared_equally(comings: list[tuple[int, float]], work: list[float]) -> list[int]:
    """The last call of each of the (calls before it came, cost), if what each call did had gone in equal parts to all that are there; one after all of
    them where it would not be done by then."""
    left = [cost for _, cost in comings]
    last = [0] * len(comings)
    for call, amount in enumerate(work, 1):
        here = sorted((i for i, (came, _) in enumerate(comings) if came < call and not last[i]), key=lambda i: left[i])
        for place, i in enumerate(here):
            part = min(left[i], amount / (len(here) - place))
            left[i] -= part
            amount -= part
            last[i] = call if left[i] <= 1e-6 else 0
    return [one or len(work) + 1 for one in last]


def paint_by_turns(count: int) -> dict:
    """Requests of few and many steps come at random calls, more than the server can do; each against equal sharing of what was done."""
    draw = random.Random(count)
    everlasting = (0, 500)
    comings, work = [everlasting], []
    with StubServer() as server, concurrent.futures.ThreadPoolExecutor(400) as clients:  # The server has room for 512.
        orders = HeldOrders(server, clients)
        server.begin_hold(0)
        painting = [clients.submit(server.calls, asked(0, everlasting[1]))]
        server.await_held(0)
        while len(painting) <= count or not all(one.done() for one in painting[1:]):
            for _ in range(min(draw.choice(COMING_AT_A_CALL), count + 1 - len(painting))):
                steps = LONG_STEPS if draw.random() < LONG_SHARE else draw.choice([2, 4, 6])
                painting.append(orders.begin(asked(len(painting), steps)))
                comings.append((len(work), steps))
            before = server.open_steps()
            server.hold(len(work) + 1)
            work.append(before - server.open_steps())
        server.go()
        lasts = [one.result(PATIENCE)[1] for one in painting]
    want = shared_equally([(came, steps + COST_AROUND_STEPS) for came, steps in comings], work)
    late, slower, slower_shared = [], [], []
    for (came, steps), last, equal in list(zip(comings, lasts, want, strict=True))[1:]:
        late.append(last - equal)
        slower.append((last - came) / steps)
        slower_shared.append((equal - came) / steps)
    return {"worst_calls_later": max(late), "times_its_steps": round(sum(slower) / count, 2), "times_its_steps_shared_equally": round(sum(slower_shared) / count, 2)}


@judges(stub_server)
def shares(trials) -> None:
    count = trials.count(300, 3000)
    found = trials.trial("by turns", lambda: paint_by_turns(count))
    trials.figures.update(requests=count, **found)
    require(found["worst_calls_later"] <= SHARE_BOUND, "a request was done later than if all had shared equally", found)


# -- Line 5 --


OVERLOAD_MS, OVERLOAD_STEPS = 50, 5
NUM_CLIENTS = 2 * BATCH
GOODPUT, REJECT_SECONDS = 0.95, 0.05  # Of the peak. The short form runs beside compilers: what it measures is written down alone.


async def reply_to(port: int, request: bytes) -> bytes:
    """Empty where there is none."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), PATIENCE)
    except (OSError, asyncio.TimeoutError):
        return b""
    finally:
        writer.close()


def end_of(reply: bytes) -> str:
    """As outcome() has it."""
    head, _, body = reply.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d+) ", head)
    length = re.search(rb"(?i)\ncontent-length: (\d+)", head)
    is_whole = found is not None and length is not None and len(body) == int(length[1])
    require(not is_whole or found[1] != b"429" or b"retry-after:" in head.lower(), "429 without Retry-After")
    return found[1].decode() if is_whole else "lost"


def picture_request(seed: int, steps: int) -> bytes:
    return post_of(INVOCATIONS, json.dumps(asked(seed, steps)).encode(), accept="image/png")


def paint_by_the_clock(port: int, rate: float, seconds: float, steps: int) -> list[dict]:
    """Requests at their moments whatever became of those before: how each ended, when, how long after the moment at which it was to be sent, and how late
    it was sent."""

    async def all_of() -> list[dict]:
        clock = asyncio.get_running_loop().time
        began = clock() + 0.1

        async def one(i: int) -> dict:
            due = began + i / rate
            await asyncio.sleep(due - clock())
            sent = clock()
            reply = await reply_to(port, picture_request(i, steps))
            ended = clock()
            return {"end": end_of(reply), "at": ended - began, "seconds": ended - due, "late": sent - due}

        return await asyncio.gather(*(one(i) for i in range(int(rate * seconds))))

    return asyncio.run(all_of())


def paint_as_fast_as_it_goes(port: int, seconds: float) -> float:
    """Pictures a second of clients who ask again at once."""

    async def all_of() -> float:
        clock = asyncio.get_running_loop().time
        began = clock()

        async def paint(client: int) -> int:
            num_done = 0
            while clock() < began + seconds:
                num_done += end_of(await reply_to(port, picture_request(client, OVERLOAD_STEPS))) == "200"
            return num_done

        num_done = sum(await asyncio.gather(*(paint(client) for client in range(NUM_CLIENTS))))
        return num_done / (clock() - began)

    return asyncio.run(all_of())


def load_ten_times(seconds: float) -> dict:
    with StubServer(OVERLOAD_MS, NUM_CLIENTS * (OVERLOAD_STEPS + COST_AROUND_STEPS)) as server:
        peak = paint_as_fast_as_it_goes(server.port, seconds)
        rounds = []
        for _ in range(2):
            found = paint_by_the_clock(server.port, 10 * peak, seconds, OVERLOAD_STEPS)
            rejects = [one["seconds"] for one in found if one["end"] == "429"]
            rounds.append({"per_second": round(sum(one["end"] == "200" and one["at"] <= seconds for one in found) / seconds, 2), "ends": counted([one["end"] for one in found]),
                           "reject_p99_seconds": round(percentile(rejects, 0.99), 4), "sent_late_p99_seconds": round(percentile([one["late"] for one in found], 0.99), 4),
                           "resident_mb": round(server.resident_mb(), 1)})
        require(server.ask("GET", "/ping")[0] == 200, "it no longer answers")
    return {"peak_per_second": round(peak, 2), "rounds": rounds, "grown_mb": round(rounds[1]["resident_mb"] - rounds[0]["resident_mb"], 1)}


@judges(stub_server)
def overload(trials) -> None:
    found = trials.trial("ten times the peak", lambda: load_ten_times(trials.count(3, 60)))
    goodput = min(one["per_second"] for one in found["rounds"]) / found["peak_per_second"]
    trials.figures.update(found, goodput=round(goodput, 3), could_be_per_second=1000 * BATCH / (OVERLOAD_MS * OVERLOAD_STEPS))
    for one in found["rounds"]:
        require(set(one["ends"]) == {"200", "429"}, "replies other than pictures and refusals", one["ends"])
    require(found["grown_mb"] <= 8, "memory grows under the same load (MB):", found["grown_mb"])
    worst = max(one["reject_p99_seconds"] for one in found["rounds"])
    require(not trials.is_full or (goodput >= GOODPUT and worst <= REJECT_SECONDS), "goodput, or the time of a refusal", goodput, worst)


NUM_DRIPS = 2000
DRIPS_MS, DRIPS_STEPS = 10, 4
DRIPS_A_SECOND = 8  # Good requests.
DRIPS_RATIO = 1.2  # As GOODPUT.


@contextlib.contextmanager
def dripping(port: int):
    """2,000 connections that drip; gives a list that holds how many the server has ended, once they are gone."""
    told = []
    clients = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("endpoint_load_drips.py"), str(port), str(NUM_DRIPS)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        require(clients.stdout.readline() == "open\n", "the slow connections cannot be opened")
        yield told
        told.append(int(clients.communicate(timeout=PATIENCE)[0]))
    finally:
        clients.kill()
        clients.wait()


def paint_beside_drips(seconds: float) -> dict:
    with StubServer(DRIPS_MS) as server:
        paint_by_the_clock(server.port, DRIPS_A_SECOND, 1, DRIPS_STEPS)
        alone = paint_by_the_clock(server.port, DRIPS_A_SECOND, seconds, DRIPS_STEPS)
        with dripping(server.port) as told:
            beside = paint_by_the_clock(server.port, DRIPS_A_SECOND, seconds, DRIPS_STEPS)
    p99 = [percentile([one["seconds"] for one in some], 0.99) for some in (alone, beside)]
    return {"ends": counted([one["end"] for one in alone + beside]), "slow_ended": told[0], "p99_alone": round(p99[0], 4), "p99_beside": round(p99[1], 4)}


@judges(stub_server)
def drips(trials) -> None:
    found = trials.trial("drips", lambda: paint_beside_drips(trials.count(4, 60)))
    trials.figures.update(found, slow=NUM_DRIPS)
    require(list(found["ends"]) == ["200"] and found["slow_ended"] >= NUM_DRIPS - 512, "good requests beside slow connections, of which the server has room for 512", found)
    require(not trials.is_full or found["p99_beside"] <= DRIPS_RATIO * found["p99_alone"], "slow connections slow others down", found)


LEAVER_STEPS = 40
LEAVERS = [(INVOCATIONS, "image/png", {"num_inference_steps": LEAVER_STEPS}), (INVOCATIONS, "text/event-stream", {"num_inference_steps": LEAVER_STEPS}),
           (GENERATIONS, "*/*", {"steps": LEAVER_STEPS}), (GENERATIONS, "*/*", {"steps": LEAVER_STEPS, "stream": True, "partial_images": 2}),
           ("/sdapi/v1/txt2img", "*/*", {"steps": LEAVER_STEPS}), ("/imagine", "*/*", {"steps": LEAVER_STEPS})]


def leave(server: StubServer, seed: int) -> int:
    """Calls that are made for a client who has gone in one of its picture's calls, that one among them."""
    draw = random.Random(seed)
    path, accept, fields = draw.choice(LEAVERS)
    query = "".join(f"&{name}={value}" for name, value in fields.items())
    imagine = f"GET {path}?prompt=x{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    begun_in = int(server.metric("darkroom_serve_calls_total")) + draw.randrange(LEAVER_STEPS)
    server.begin_hold(begun_in)
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        connection.sendall(imagine if path == "/imagine" else post_of(path, json.dumps({"prompt": "x", **fields}).encode(), accept=accept))
        server.await_held(begun_in)
    for _ in range(2):  # By the second answer the server's one thread for connections has seen that this one is gone.
        require(server.ask("GET", "/ping")[0] == 200, "ping")
    server.go()
    limit = time.monotonic() + PATIENCE
    while server.open_steps() > 0:
        require(time.monotonic() < limit, "it goes on for nobody")
    return int(server.metric("darkroom_serve_calls_total")) - begun_in


@judges(stub_server)
def leavers(trials) -> None:
    count = trials.count(60, 200)

    def all_of() -> list[int]:
        with StubServer(1) as server:
            return [leave(server, seed) for seed in range(count)]

    taken = trials.trial("leavers", all_of)
    trials.figures.update(leavers=count, calls_after=counted([str(one) for one in taken]))
    require(max(taken) == 1, "calls for a client who has gone, beside the one that ran:", taken)


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
SMUGGLING = [b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
             b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", b"Content-Length: +4\r\n\r\nabcd", b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
             b"Transfer-Encoding: xchunked\r\n\r\n", b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"]
HOSTILE = [(b"POST /invocations HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + vector + SMUGGLED, {400}) for vector in SMUGGLING] + [
    (post_of(INVOCATIONS, b"{"), {400}), (post_of(INVOCATIONS, b'{"prompt":' + b"[" * 5000), {400}), (post_of(INVOCATIONS, b'{"prompt":"x","num_inference_steps":1e400}'), {400}),
    (post_of(INVOCATIONS, b'{"prompt":"x","width":1e9}'), {400}), (post_of(INVOCATIONS, b"x", "text/html"), {400, 415}), (post_of("/sdapi/v1/png-info", b'{"image":"AAAA"}'), {400}),
    (b"GET /%00/../..%2f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", {400, 404}), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", {400}),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", {400, 413, 431}), (b"GET / HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n", {403, 421})]
GOOD = [(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(), {200}) for path in ("/v1/facts", "/ping", "/sdapi/v1/samplers", "/v2")] + [
    (picture_request(1, 1), {200})]
HOSTILE_SHARE = 0.2
HOSTILE_SLOPE_MB = (5, 1)  # Per 1e5 requests.


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
    with StubServer() as server, concurrent.futures.ThreadPoolExecutor(4) as clients:

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
        before = server.resident_mb()
        wrong += all_of(first + count // 10, first + count)
        grown = server.resident_mb() - before
    return {"wrong": len(wrong), "examples": sorted(set(wrong))[:5], "grown_mb": round(grown, 2)}


@judges(stub_server)
def hostile(trials) -> None:
    count, block = trials.count(20_000, 1_000_000), trials.count(20_000, 100_000)
    found = [trials.trial(f"requests from {first}", lambda: ask_hostile(first, block)) for first in range(0, count, block)]
    slope = max(one["grown_mb"] for one in found) / (0.9 * block) * 1e5
    trials.figures.update(requests=count, wrong=sum(one["wrong"] for one in found), worst_mb_per_1e5=round(slope, 2))
    require(trials.figures["wrong"] == 0, "replies other than wanted:", *[one["examples"] for one in found])
    require(slope <= trials.count(*HOSTILE_SLOPE_MB), "memory grows by MB per 1e5 requests:", slope)


LOAD_CHECKS = [(f"endpoint.{check.__name__}", check) for check in (shorts, shares, overload, drips, leavers, hostile)]
