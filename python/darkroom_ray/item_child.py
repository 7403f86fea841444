"""The program that does items for a task or an encoder."""

import collections
import os
import time

from darkroom import item_child
from darkroom_ray.items import MOST_CODES, ROW_FAILED
from darkroom_ray.prices import priced_here
from darkroom_ray.program import child_environment, find_program, stop_program
from darkroom_ray.request import Request
from darkroom_ray.run_notes import TIMED
from darkroom_ray.shares import memory_here
from darkroom_ray.watched import ProgramWatch

# Of the child, whatever a file of settings says: why rows fail is no warning, and the summary is the job's.
OWN_WORDS = ("--quiet=false", "--json-summary", os.devnull)


class ItemChild(item_child.ItemChild):
    """That of a request."""

    def __init__(self, request: Request, more: list[str] | None = None, environment: dict[str, str] | None = None) -> None:
        """`more`: words of the command line besides."""
        request = priced_here(request)
        self._began = time.monotonic()
        self._reasons: collections.deque[str] = collections.deque(maxlen=MOST_CODES)  # Why rows failed, until somebody asks.
        watch = ProgramWatch(request, request.verb, self._hear_said)
        command = [find_program(request.program), *request.command(*OWN_WORDS, *memory_here(request), *watch.words, *(more or []))]
        super().__init__(command, request.folder, child_environment(request, environment), watch.hear)
        watch.follow(self._child)

    def _hear_said(self, line: str) -> None:
        sentence = TIMED.sub("", line.rstrip("\n"), count=1)
        if ROW_FAILED.match(sentence):
            self._reasons.append(sentence)

    def new_reasons(self) -> list[str]:
        """Why rows failed, as the program has told since the last call: of each code the first one."""
        return [self._reasons.popleft() for _ in range(len(self._reasons))]

    def finish(self) -> list[str]:
        """As the other's, and reasons that nobody has asked for yet."""
        return [*super().finish(), *self.new_reasons()]

    def seconds(self) -> float:
        """Since it was started: what its place is paid for."""
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Ends it in order."""
        stop_program(self._child)
