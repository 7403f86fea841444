"""trial_launcher.py SOCKET COMMAND...: stands for the command, a trial of a search, which the search's driver runs on the cluster. It says what the
trial says, hands SIGTERM on, and ends with the trial's exit code.

A process of its own a trial, run by its path with -I -S: it starts in hundredths of a second, and knows neither Ray nor the rest of this package.
"""

import json
import signal
import socket
import sys

EXIT_FAILED = 1


def stand_for(connection: socket.socket, command: list[str]) -> int:
    """The command's exit code."""
    connection.sendall((json.dumps({"command": command}) + "\n").encode())
    signal.signal(signal.SIGTERM, lambda *unused: connection.sendall(b'{"stop": true}\n'))  # Before this line it ends the process, and the driver sees that.
    with connection.makefile("r", encoding="utf-8") as heard:
        for line in heard:
            message = json.loads(line)
            if "exit_code" in message:
                return message["exit_code"]
            print(message["said"], flush=True)
    print("error: the driver of the search is gone", flush=True)
    return EXIT_FAILED


def main() -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        return stand_for(connection, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
