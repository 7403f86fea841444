"""One view of a job whose work is done by many programs: a line that is kept up to date on a terminal, a plain line now and then elsewhere."""

import collections
import shutil
import sys
import time

LINE_EVERY_SECONDS = 10.0  # Where there is no terminal.
ERASE_LINE = "\r\x1b[2K"
MOST_WARNINGS = 1000  # Different ones that are remembered.


def say(text: str) -> None:
    """What is no part of a job's view."""
    print(f"darkroom-ray: {text}", file=sys.stderr, flush=True)


def errors_text(errors: collections.Counter) -> str:
    return ", ".join(f"{code} {count}" for code, count in sorted(errors.items()))


class Progress:
    """Thread safety: one thread."""

    def __init__(self, verb: str, stream=None, clock=time.monotonic, is_quiet: bool = False) -> None:
        """`is_quiet`: warnings alone."""
        self.verb = verb
        self.is_quiet = is_quiet
        self.stream = stream or sys.stderr
        self.clock = clock
        self.is_terminal = self.stream.isatty()
        self.start = clock()
        self.last_line = self.start
        self.shown = ""
        self.warned: set[str] = set()

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.is_quiet:
            self._write(text)

    def _write(self, text: str) -> None:
        self.clear()
        said_at = time.strftime("%H:%M:%S") if self.is_terminal else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())  # As the program's own lines.
        self.stream.write(f"{said_at} {text}\n")
        self.stream.flush()

    def warn(self, lines: list[str]) -> None:
        """What the programs warned of, each sentence once."""
        for line in lines:
            if line not in self.warned and len(self.warned) < MOST_WARNINGS:
                self.warned.add(line)
                self._write(line)

    def show(self, text: str) -> None:
        """What is so at the moment."""
        if self.is_quiet:
            return
        if self.is_terminal:
            self.stream.write(ERASE_LINE + text[: shutil.get_terminal_size().columns - 1])
            self.stream.flush()
            self.shown = text
        elif self.clock() - self.last_line >= LINE_EVERY_SECONDS:
            self.last_line = self.clock()
            self.say(text)

    def clear(self) -> None:
        if self.shown:
            self.stream.write(ERASE_LINE)
            self.shown = ""

    def seconds(self) -> float:
        return self.clock() - self.start


def items_text(verb: str, plan: dict, book, workers: int, restarts: int, seconds: float) -> str:
    """Of an ItemBook."""
    totals = book.totals
    rate = totals.rows_in / seconds if seconds > 0 else 0.0
    there = plan["items"] - book.num_items + book.num_done
    left = book.num_items - book.num_done
    share = totals.items / seconds if seconds > 0 else 0.0
    text = f"{verb}: {there}/{plan['items']} items, {totals.rows_in} rows of this run, {rate:.1f} rows/s, {workers} workers"
    text += f", {left / share:.0f} s to go" if share > 0 else ""
    text += f", {restarts} restarts" if restarts else ""
    return text + (f"; errors: {errors_text(totals.rows_by_error)}" if totals.rows_by_error else "")
