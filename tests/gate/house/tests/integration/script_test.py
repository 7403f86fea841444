"""A test script of the fixture; DARKROOM_PLANTED says what it does wrong."""

import os

from cases import Skipped, main

PLANTED = os.environ.get("DARKROOM_PLANTED")


def fails() -> None:
    assert PLANTED != "script failure", "planted"


def is_skipped() -> None:
    if PLANTED == "script skip":
        raise Skipped("this machine lacks a thing")


def dies() -> None:
    if PLANTED == "script death":
        os._exit(0)


if __name__ == "__main__":
    main([fails, is_skipped, dies])
