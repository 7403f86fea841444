"""trial_launcher.py SOCKET COMMAND...: stands for the command, a trial of a search, which the search's driver runs on the cluster. It says what the
trial says, hands SIGTERM on, and ends with the trial's exit code.

A process of its own a trial, run by its path with -I -S: it starts in hundredths of a second, and knows neither Ray nor the rest of this package.
"""

import contextlib
import json
import signal
import socket
import sys

EXIT_STOPPED = 128 + signal.SIGTERM  # A search takes it for a trial that goes on later.


def stand_for(connection: socket.socket, command: list[str]) -> int:
    """The command's exit code. Errors: OSError, where the driver is gone."""

    def ask(number: int, frame) -> None:
        with contextlib.suppress(OSError):  # Whoever waits for lines sees it.
            connection.sendall(b'{"stop": true}\n')

    connection.sendall((json.dumps({"command": command}) + "\n").encode())
    signal.signal(signal.SIGTERM, ask)  # Before, it ends this process, and the driver sees that.
    with connection.makefile("r", encoding="utf-8") as heard:
        for line in heard:
            message = json.loads(line)
            if "exit_code" in message:
                return message["exit_code"]
            print(message["said"], flush=True)
    raise OSError("it has closed the socket")


def main() -> int:
    """Where the driver was killed, the search is about to be: it must not write down yet that the trial has failed."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # Whatever the locale: a letter must not end a trial.
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(sys.argv[1])
            return stand_for(connection, sys.argv[2:])
    except OSError as error:
        print(f"error: the driver of the search is gone: {error}", flush=True)
        return EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(main())
