"""Ports of loopback for the programs of the tests that cannot be asked for a free one themselves."""

import itertools
import os
import socket

BEGIN, COUNT = 20_000, 12_000
_next = itertools.count(101 * os.getpid())


def free_port() -> int:
    """One that nobody used a moment ago, below those that the system gives to whoever asks for any."""
    for number in itertools.islice(_next, 1000):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", BEGIN + number % COUNT))
                return one.getsockname()[1]
            except OSError:
                pass
    raise RuntimeError(f"no port of {BEGIN} to {BEGIN + COUNT - 1} is free")
