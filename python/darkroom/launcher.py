"""The command `darkroom` of the wheel: becomes the program that lies in the package."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).resolve().parent / "bin" / "darkroom"
    # The demo's corpus tool runs under the Python that has the wheel's dependencies.
    os.environ.setdefault("DARKROOM_PYTHON", sys.executable)
    os.execv(program, [sys.argv[0], *sys.argv[1:]])
