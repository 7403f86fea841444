"""Where the launchers of a search's trials ask the driver: a socket of this machine, and a thread a launcher. Knows no Ray."""

import contextlib
import json
import os
import pathlib
import shlex
import socket
import sys
import threading
from collections.abc import Callable

from darkroom_ray.flags import Refused

LAUNCHER = pathlib.Path(__file__).with_name("trial_launcher.py")
SOCKET_BYTES = 107  # As Linux has them.
ACCEPT_SECONDS = 0.2  # Until a launcher that could not be heard is tried again.
END_SECONDS = 30.0  # That an end waits for what serves the launchers.


class Launch:
    """One trial that a launcher stands for. Thread safety: any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._telling = threading.Lock()
        self._changed = threading.Event()
        self.is_asked = False  # It is to end with a checkpoint.
        self.is_gone = False  # The launcher was killed: the trial is to end at once.

    @property
    def is_ending(self) -> bool:
        return self.is_asked or self.is_gone

    def ask(self) -> None:
        self.is_asked = True
        self._changed.set()

    def leave(self) -> None:
        self.is_gone = True
        self._changed.set()

    def pause(self, seconds: float) -> None:
        """Waits so long, or until the trial is to end."""
        self._changed.wait(seconds)

    def say(self, line: str) -> None:
        """A line of the trial's log."""
        self.tell({"said": line.rstrip("\n")})

    def tell(self, message: dict) -> None:
        with self._telling, contextlib.suppress(OSError):  # It was killed; the thread that listens sees it.
            self._connection.sendall((json.dumps(message) + "\n").encode())


class TrialDesk:
    """Serves launchers until it is left."""

    def __init__(self, folder: str, run: Callable[[list[str], Launch], int]) -> None:
        """`run`: runs a command to its end, on a thread of its own, and gives the exit code. Errors: Refused."""
        self._path = os.path.join(folder, "trials")
        if len(self._path.encode()) > SOCKET_BYTES:
            raise Refused(f"a socket's path may have {SOCKET_BYTES} bytes: set TMPDIR to a shorter folder than that of {self._path}")
        self._run = run
        self._launches: list[tuple[Launch, threading.Thread]] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self._path)
        self._server.listen(64)
        self._is_over = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def launcher(self) -> str:
        """For `darkroom tune --launcher`."""
        return shlex.join([sys.executable, "-I", "-S", str(LAUNCHER), self._path])

    def __enter__(self) -> "TrialDesk":
        self._accepting.start()
        return self

    def __exit__(self, *error) -> None:
        self._is_over.set()
        self._server.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._server.close()
        for launch, _ in self._launches:
            launch.leave()
        for _, thread in self._launches:
            thread.join(END_SECONDS)

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                connection = self._server.accept()[0]
            except OSError:  # The end; or too many files are open here, and the launcher waits.
                self._is_over.wait(ACCEPT_SECONDS)
                continue
            launch = Launch(connection)
            thread = threading.Thread(target=self._serve, args=(connection, launch), daemon=True)
            self._launches = [one for one in self._launches if one[1].is_alive()] + [(launch, thread)]
            thread.start()

    def _serve(self, connection: socket.socket, launch: Launch) -> None:
        with connection, connection.makefile("r", encoding="utf-8") as heard:
            line = heard.readline()
            if not line:
                return
            threading.Thread(target=self._listen, args=(heard, launch), daemon=True).start()
            try:
                code = self._run(json.loads(line)["command"], launch)
            except Exception as error:  # Costs this trial, and its log tells.
                launch.say(f"error: the trial cannot be run on the cluster: {error}")
                code = 1
            launch.tell({"exit_code": code})
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # Ends the thread that listens.

    @staticmethod
    def _listen(heard, launch: Launch) -> None:
        with contextlib.suppress(OSError, ValueError):  # Closed meanwhile.
            for _ in heard:
                launch.ask()
        launch.leave()
