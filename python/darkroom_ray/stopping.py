"""How a job ends before it is done: it fails, or the driver is told to end by SIGINT or SIGTERM, which is noted and looked at between two steps;
programs that end in order then."""

import contextlib
import signal
import time

SIGNALS = (signal.SIGINT, signal.SIGTERM)
HEAR_SECONDS = 0.2  # Until a pause hears of one.
STOP_SECONDS = 30.0  # That programs have to end in order, before they are killed with their workers.
ENDING = f"the programs end, within {STOP_SECONDS:.0f} s; a second signal kills them"


class JobFailed(Exception):
    """The job ended without being done; the text says why."""

    def __init__(self, text: str, code: int = 1, summary: dict | None = None) -> None:
        """`summary`: of its verb, as far as it is known."""
        super().__init__(text)
        self.code = code
        self.summary = summary or {}


class Stopped(Exception):
    """Somebody asked the driver to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number
        self.summary: dict = {}  # Of the verb, as far as it is known.


class StopWatch:
    """REQUIRES: made by the main thread. A second signal, of either kind, ends the process at once."""

    def __init__(self) -> None:
        self._number = 0  # Of the first signal.
        for number in SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        self._number = self._number or number  # Without a lock, which the interrupted thread could hold.

    @property
    def is_asked(self) -> bool:
        return self._number != 0

    @property
    def number(self) -> int:
        return self._number

    def check(self) -> None:
        """Errors: Stopped."""
        if self._number:
            raise Stopped(self._number)

    def pause(self, seconds: float) -> None:
        """Waits so long, or until somebody asks for the end. Errors: Stopped."""
        end = time.monotonic() + seconds
        while not self._number and (left := end - time.monotonic()) > 0:
            time.sleep(min(HEAR_SECONDS, left))
        self.check()


def wait_for_ends(ray, ends: list) -> None:
    """Until these calls, each of which ends a program in order, are done. A program that is killed leaves its claims, which would hold the same
    command up on other hosts, and its spans unwritten."""
    with contextlib.suppress(ray.exceptions.RayError):
        done = ray.wait(ends, num_returns=len(ends), timeout=STOP_SECONDS)[0] if ends else []
        for end in done:
            with contextlib.suppress(ray.exceptions.RayError):  # Which Ray would print where nobody takes it.
                ray.get(end)
