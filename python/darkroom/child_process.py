"""The program darkroom as a child process: it ends with whoever started it, and its last words are kept."""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

SAID_LINES = 40  # Of the standard error, kept for whoever asks why it ended.
SIGNAL_CODES = 128  # An exit code of more: the number of a signal, and this.
BOUND_PROCESS = pathlib.Path(__file__).with_name("bound_process.py")


class ProgramFailed(Exception):
    """The program ended with an exit code that is no success, or was killed."""

    def __init__(self, code: int, said: str, where: str = "") -> None:
        super().__init__(code, said, where)
        self.code = code
        self.said = said
        self.where = where

    @property
    def was_killed(self) -> bool:
        """It did not end by itself: another try may bring it to its end."""
        return was_killed(self.code)

    def __str__(self) -> str:
        how = f"was killed by signal {-self.code}" if self.code < 0 else f"ended with exit code {self.code}"
        return f"the program {how}{f' on {self.where}' if self.where else ''}; its last words:\n{self.said}"


def was_killed(code: int) -> bool:
    """By a signal, or after one that it took (a spot notice, a drained node)."""
    return code < 0 or code > SIGNAL_CODES


FED: weakref.WeakSet[subprocess.Popen] = weakref.WeakSet()  # Programs that end when nobody holds their standard input.


def let_inputs_go() -> None:
    """In a process that was forked, as for the workers of a DataLoader: it would keep them from ending."""
    nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    for process in list(FED):
        with contextlib.suppress(OSError, ValueError):  # Closed already.
            os.dup2(nothing, process.stdin.fileno(), inheritable=False)  # The number stays this object's, until it closes it.
    os.close(nothing)


os.register_at_fork(after_in_child=let_inputs_go)


class Child:
    """A process that ends when this one does, and whose last words are kept. Thread safety: any thread."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None, folder: str = "", is_fed: bool = False,
                 on_line: Callable[[str], bool] | None = None, on_said: Callable[[str], None] | None = None, has_own_group: bool = False) -> None:
        """`on_line`: is given each line of the standard output; whether it was one for it. Others are said, like the standard error's.
        `on_said`: is given each line of the standard error. `has_own_group`: Ctrl-C does not reach it."""
        self._on_said = on_said or (lambda line: None)
        self.said: collections.deque[str] = collections.deque(maxlen=SAID_LINES)
        self.process = self._start_by_a_thread_that_stays(
            [sys.executable, "-I", "-S", str(BOUND_PROCESS), str(os.getpid()), *command],
            stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE if on_line else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder if folder and os.path.isdir(folder) else None,
            env={**os.environ, **(environment or {})},
            process_group=0 if has_own_group else None,
        )
        if is_fed:
            FED.add(self.process)
        self._reading = threading.Thread(target=self._read, args=(on_line,), daemon=True) if on_line else None
        if self._reading:
            self._reading.start()

    def _start_by_a_thread_that_stays(self, command: list[str], **options) -> subprocess.Popen:
        """To the kernel the parent is the thread that forked: one of a pool may end long before this process does."""
        started: queue.SimpleQueue[subprocess.Popen | BaseException] = queue.SimpleQueue()

        def keep() -> None:
            try:
                process = subprocess.Popen(command, **options)
            except BaseException as error:  # Raised by whoever waits for it.
                started.put(error)
                return
            started.put(process)
            for line in process.stderr:
                self.said.append(line.rstrip("\n"))
                with contextlib.suppress(Exception):  # As a full disk behind a log: this thread's end would be the program's.
                    self._on_said(line)
            process.wait()

        self._keeping = threading.Thread(target=keep, daemon=True)
        self._keeping.start()
        found = started.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def _read(self, on_line: Callable[[str], bool]) -> None:
        for line in self.process.stdout:
            is_taken = False
            with contextlib.suppress(Exception):  # Who reads no more lets the program stand at a full pipe.
                is_taken = on_line(line)
            if not is_taken:
                self.said.append(line.rstrip("\n"))

    def write(self, text: str) -> None:
        """Errors: OSError when it has ended."""
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def close_input(self) -> None:
        try:
            self.process.stdin.close()
        except OSError:
            pass  # It has ended; wait() tells how.

    def poll(self) -> int | None:
        return self.process.poll()

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code, once all that it said is read. Errors: subprocess.TimeoutExpired."""
        code = self.process.wait(seconds)
        self._keeping.join()
        if self._reading:
            self._reading.join()
        return code

    def end(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def last_words(self) -> str:
        return "\n".join(self.said)

    def warnings(self) -> list[str]:
        """Its sentences that somebody should see, without their times."""
        sentences = (line.partition(" ")[2] for line in list(self.said))
        return [sentence for sentence in sentences if sentence.startswith(("warning: ", "error: "))]
