#!/usr/bin/env python3
"""Clients that drip, in a process of their own: each connection sends a byte of a request twice a second, and is opened again where the server ends it.

usage: endpoint_load_drips.py PORT COUNT    says "open" once all are, and how many were ended when its input ends
"""

import contextlib
import resource
import selectors
import socket
import sys
import threading

HEAD = b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 10_000
SECONDS_A_BYTE = 0.5
PATIENCE = 120  # Seconds; a limit, no measure.


def drip(port: int, count: int, is_over: threading.Event) -> int:
    """Connections that the server has ended."""
    num_ended, has_told = 0, False
    open_ones: dict[socket.socket, int] = {}  # And the bytes that each has sent.
    with selectors.DefaultSelector() as ended:
        while not is_over.is_set():
            while len(open_ones) < count:
                connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
                connection.setblocking(False)
                ended.register(connection, selectors.EVENT_READ)
                open_ones[connection] = 0
            if not has_told:
                has_told = True
                print("open", flush=True)
            for connection, num_sent in open_ones.items():
                with contextlib.suppress(OSError):
                    connection.send(HEAD[num_sent:num_sent + 1])
                open_ones[connection] = num_sent + 1
            for key, _ in ended.select(0):
                ended.unregister(key.fileobj)
                key.fileobj.close()
                del open_ones[key.fileobj]
                num_ended += 1
            is_over.wait(SECONDS_A_BYTE)
    return num_ended


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    print(drip(int(sys.argv[1]), int(sys.argv[2]), is_over), flush=True)


if __name__ == "__main__":
    main()
