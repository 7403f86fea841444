"""The program darkroom as a child process: where it lies, what it says of a command line, and that it ends with whoever started it."""

import collections
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

from darkroom_ray.flags import Refused
from darkroom_ray.request import Request

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


def find_program(named: str = "") -> str:
    """Errors: Refused."""
    named = named or os.environ.get("DARKROOM_PROGRAM", "")
    if named:
        if not os.access(named, os.X_OK):
            raise Refused(f"the program that --program or DARKROOM_PROGRAM names cannot be run here: {named}")
        return named
    of_wheel = pathlib.Path(__file__).resolve().parent.parent / "darkroom" / "bin" / "darkroom"
    found = str(of_wheel) if of_wheel.exists() else shutil.which("darkroom")
    if found is None:
        raise Refused("there is no program darkroom here: install the wheel on every node, or name it with --program PATH")
    return found


def program_version(program: str) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"it does not start ({done.stderr.strip().splitlines()[-1:] or done.returncode})"


def read_arguments(request: Request) -> dict[str, list[str]]:
    """What the program makes of a command line: the words of each flag and positional. Errors: Refused, with the program's own sentence."""
    program = find_program(request.program)
    line = json.dumps(request.command()) + "\n"
    done = subprocess.run([program, "help", "--parse"], input=line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{program} does not start: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    if answer["exit_code"] != 0:
        raise Refused(f"{answer['message']}; {answer['hint']}" if answer.get("hint") else answer["message"])
    return answer["given"]


class Child:
    """A process that ends when this one does, and whose last words are kept. Thread safety: any thread."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None, folder: str = "", is_fed: bool = False,
                 on_line: Callable[[str], bool] | None = None) -> None:
        """`on_line`: is given each line of the standard output; whether it was one for it. Others are said, like the standard error's."""
        self.said: collections.deque[str] = collections.deque(maxlen=SAID_LINES)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(BOUND_PROCESS), str(os.getpid()), *command],
            stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE if on_line else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder if folder and os.path.isdir(folder) else None,
            env={**os.environ, **(environment or {})},
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        self._reading = threading.Thread(target=self._read, args=(on_line,), daemon=True) if on_line else None
        if self._reading:
            self._reading.start()

    def _listen(self) -> None:
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))

    def _read(self, on_line: Callable[[str], bool]) -> None:
        for line in self.process.stdout:
            if not on_line(line):
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
        self._listening.join()
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
        return [line.split(" ", 1)[1] for line in list(self.said) if line[8:].startswith((" warning: ", " error: "))]


def run_to_summary(request: Request) -> tuple[int, dict, str]:
    """Runs a verb to its end: exit code, summary, last words. Errors: ProgramFailed when it was killed."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "summary.json")
        child = Child([find_program(request.program), *request.command("--json-summary", str(path))], None, request.folder)
        code = child.wait()
        if was_killed(code):
            raise ProgramFailed(code, child.last_words(), socket.gethostname())
        summary = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return code, summary, child.last_words()
