"""Ports of loopback for the programs of the tests that cannot be asked for a free one themselves."""

import socket


def free_port() -> int:
    """Nobody's at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
