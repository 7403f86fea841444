"""A test script of the fixture; DARKROOM_PLANTED says what it does wrong."""

import os
import pathlib
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


def tears_its_report() -> None:
    if PLANTED == "script torn report":
        pathlib.Path(os.environ["DARKROOM_TEST_REPORT"]).write_text('{"passed": ["fails", ')
        os._exit(0)


if __name__ == "__main__":
    main([] if PLANTED == "no script tests" else [fails, is_skipped, ends, dies, tears_its_report])
