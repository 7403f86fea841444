"""SIGINT and SIGTERM to the driver: noted, and looked at between two steps."""

import signal
import threading


class Stopped(Exception):
    """Somebody asked the driver to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


class StopWatch:
    """REQUIRES: made by the main thread. A second signal ends the process at once."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._number = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, frame) -> None:
        self._number = number
        self._asked.set()
        signal.signal(number, signal.SIG_DFL)

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    @property
    def number(self) -> int:
        return self._number

    def check(self) -> None:
        """Errors: Stopped."""
        if self._asked.is_set():
            raise Stopped(self._number)

    def pause(self, seconds: float) -> None:
        """Waits so long, or until somebody asks for the end. Errors: Stopped."""
        self._asked.wait(seconds)
        self.check()
