#!/usr/bin/env python3
"""What a replica of `darkroom-ray serve` does with bodies of requests, without Ray's cluster: they go on as they come, and its server decides.

usage: ray_serve_bodies_test.py
"""

import contextlib
import http.client
import json
import os
import pathlib
import select
import socket
import subprocess
import time

from cases import Skipped, main, made_once, require, temporary_folder
from ray_bench import RAY_PYTHON
from workbench import PROGRAM

PATIENCE = 120  # Seconds; a limit, no measure.
SOON = 60.0
KEY = "a-key-of-more-than-16-characters"
ESTABLISHED = "01"  # A socket's state in /proc/net/tcp.
resources = contextlib.ExitStack()


class Replica:
    """ray_replica.py at work; its server has no model yet."""

    def __init__(self) -> None:
        if not RAY_PYTHON.exists():
            raise Skipped("there is no .venv-ray; tools/build/setup.sh ray installs it")
        folder = resources.enter_context(temporary_folder())
        (folder / "keys.txt").write_text(KEY + "\n")
        (folder / "models").mkdir()
        command = [RAY_PYTHON, pathlib.Path(__file__).with_name("ray_replica.py"), folder / "models", folder / "keys.txt"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "DARKROOM_PROGRAM": str(PROGRAM)})
        resources.callback(self.end)
        require(bool(select.select([self.process.stdout], [], [], PATIENCE)[0]), "the replica does not start")
        about = json.loads(self.process.stdout.readline())
        self.port, self.server = about["port"], about["server"]

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(PATIENCE)

    def connections(self) -> int:
        """Of the server."""
        fields = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
        return sum(one[1].endswith(f":{self.server:04X}") and one[3] == ESTABLISHED for one in fields)


the_replica = made_once(Replica)


@contextlib.contextmanager
def asking(*more: str, key: str = KEY, path: str = "/models"):
    """A connection on which the head of a request was sent."""
    with socket.create_connection(("127.0.0.1", the_replica().port), PATIENCE) as connection:
        lines = [f"POST {path} HTTP/1.1", "Host: h", f"Authorization: Bearer {key}", "Content-Type: application/json", *more]
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        yield connection


def reply_of(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body."""
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    return reply.status, reply.read()


def chunk(piece: bytes) -> bytes:
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


def a_key_is_asked_for_before_a_body() -> None:
    for framing in ("Content-Length: 100000", "Transfer-Encoding: chunked"):
        with asking(framing, key="wrong") as connection:
            require(reply_of(connection)[0] == 401, "without a byte of its body", framing)


def a_body_that_is_declared_too_long_is_refused_unread() -> None:
    with asking("Content-Length: 100000000") as connection:
        require(reply_of(connection)[0] == 413, "a declared length")


def a_body_that_becomes_too_long_is_refused_where_it_does() -> None:
    with asking("Transfer-Encoding: chunked") as connection:
        for _ in range(5):
            connection.sendall(chunk(b"x" * 64_000))
        require(reply_of(connection)[0] == 413, "a body without an end")


def a_body_that_stalls_is_given_up() -> None:
    with asking("Content-Length: 1000") as connection:
        connection.sendall(b"{")
        status, body = reply_of(connection)
        require(status == 408 and b"did not arrive in time" in body, "the server's reply", status, body)


def a_body_arrives_whole_however_it_comes() -> None:
    body = json.dumps({"model_name": "m", "url": "/no/such/" + "x" * 150_000}).encode()
    pieces = [body[at : at + 40_000] for at in range(0, len(body), 40_000)]
    for framing, sent in ((f"Content-Length: {len(body)}", pieces), ("Transfer-Encoding: chunked", [*map(chunk, pieces), b"0\r\n\r\n"])):
        with asking(framing) as connection:
            for piece in sent:
                connection.sendall(piece)
                time.sleep(0.05)
            status, said = reply_of(connection)
            require(status == 400 and b"url must be a text" in said, "what the server read", framing, status, said[:300])
    with asking("Content-Length: 0") as connection:
        require(reply_of(connection)[0] == 400, "no body")


def a_peer_that_goes_while_it_sends_ends_the_servers_request() -> None:
    replica = the_replica()
    before = replica.connections()  # One of which is kept for the next request.
    with contextlib.ExitStack() as peers:
        for _ in range(3):
            peers.enter_context(asking("Content-Length: 200000")).sendall(b"{")
        wait_for(lambda: replica.connections() > before, "the server's requests")
    wait_for(lambda: replica.connections() <= before, "their end", 8.0)  # Sooner than the server would give them up.


def wait_for(is_so, what: str, seconds: float = SOON) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        require(time.monotonic() < end, "never came:", what)
        time.sleep(0.02)


if __name__ == "__main__":
    with resources:
        main(
            [
                a_key_is_asked_for_before_a_body,
                a_body_that_is_declared_too_long_is_refused_unread,
                a_body_that_becomes_too_long_is_refused_where_it_does,
                a_body_that_stalls_is_given_up,
                a_body_arrives_whole_however_it_comes,
                a_peer_that_goes_while_it_sends_ends_the_servers_request,
            ]
        )
