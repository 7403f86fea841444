"""The `darkroom serve` behind a replica: started, waited for, ended. Knows no Ray."""

import queue
import re
import signal
import time

from darkroom.child_process import ProgramFailed
from darkroom_ray.prices import priced_here
from darkroom_ray.program import start_child
from darkroom_ray.request import Request

LISTENING = re.compile(r"serving .* at http://127\.0\.0\.1:(\d+)")
# Of the child, whatever a file of settings says: the line that names the port is no warning.
OWN_WORDS = ("--host", "127.0.0.1", "--port", "0", "--quiet=false")
START_SECONDS = 3600.0  # Until it listens: models of other places are fetched before.
# The child ends what it paints within 30 s (docs/serve.md).
DRAIN_SECONDS = 35.0


class ServeChild:
    """`darkroom serve` on a free port of loopback."""

    def __init__(self, request: Request) -> None:
        self._told: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._child = start_child(request, priced_here(request).command(*OWN_WORDS), on_said=self._hear)

    def _hear(self, line: str) -> None:
        if found := LISTENING.search(line):
            self._told.put(int(found[1]))

    def wait_for_port(self, seconds: float = START_SECONDS) -> int:
        """Once it listens. Errors: ProgramFailed when it ends before; TimeoutError, with its last words, when it neither ends nor listens."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self._told.get(timeout=0.2)
            except queue.Empty:
                self.check()
            if time.monotonic() >= end:
                self._child.end(signal.SIGKILL)
                self._child.wait()
                raise TimeoutError(f"the server does not listen after {seconds:g} s; its last words:\n{self._child.last_words()}")

    def check(self) -> None:
        """Errors: ProgramFailed when it has ended."""
        if self._child.poll() is not None:
            raise ProgramFailed(self._child.wait(), self._child.last_words())

    def end(self) -> None:
        """It paints what it has, then ends."""
        self._child.end(signal.SIGTERM)
        try:
            self._child.wait(DRAIN_SECONDS)
        except Exception:  # It does not end by itself.
            self._child.end(signal.SIGKILL)
