"""A test script of the fixture; DARKROOM_PLANTED says what it does wrong."""

import os
import time

from cases import Skipped, main

PLANTED = os.environ.get("DARKROOM_PLANTED")


def fails() -> None:
    assert PLANTED != "script failure", "planted"


def is_skipped() -> None:
    if PLANTED == "script skip":
        raise Skipped("this machine lacks a thing")


def ends() -> None:
    if PLANTED == "hang":
        time.sleep(3600)


def dies() -> None:
    if PLANTED == "script death":
        os._exit(0)


if __name__ == "__main__":
    main([] if PLANTED == "no script tests" else [fails, is_skipped, ends, dies])
