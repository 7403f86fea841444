"""The program that does items for a task or an encoder."""

import time

from darkroom import item_child
from darkroom_ray.prices import priced_here
from darkroom_ray.program import child_environment, find_program, stop_program
from darkroom_ray.request import Request
from darkroom_ray.watched import ProgramWatch


class ItemChild(item_child.ItemChild):
    """That of a request."""

    def __init__(self, request: Request, more: list[str] | None = None, environment: dict[str, str] | None = None) -> None:
        """`more`: words of the command line besides."""
        request = priced_here(request)
        self._began = time.monotonic()
        watch = ProgramWatch(request, request.verb)
        command = [find_program(request.program), *request.command(*watch.words, *(more or []))]
        super().__init__(command, request.folder, child_environment(request, environment), watch.hear)
        watch.follow(self._child)

    def seconds(self) -> float:
        """Since it was started: what its place is paid for."""
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Ends it in order."""
        stop_program(self._child)
