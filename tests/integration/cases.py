"""How a test script runs its cases and tells the gate (tools/check/run_tests.py) what it ran, and what it did not."""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")


class Skipped(Exception):
    """Raised by a case that this machine cannot run; the reason is counted and printed."""

    def __init__(self, reason: str):
        assert reason, "a skip says why"
        super().__init__(reason)


def require(condition: bool, what: str, *values) -> None:
    if not condition:
        raise AssertionError(" ".join([what, *map(str, values)]))


def made_once(make: Callable[[], Made]) -> Callable[[], Made]:
    """What cases share: made when the first of them asks. Errors: Skipped, told to each."""

    @functools.cache
    def made() -> Made | Skipped:
        try:
            return make()
        except Skipped as skip:
            return skip

    def get() -> Made:
        found = made()
        if isinstance(found, Skipped):
            raise found
        return found

    return get


@contextlib.contextmanager
def temporary_folder():
    """A new folder that goes with all that is in it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="darkroom-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def write_report(report: dict[str, list]) -> None:
    """Where the gate asks for it: names of what passed, (name, reason) of what failed or was skipped."""
    path = os.environ.get("DARKROOM_TEST_REPORT")
    if path:
        pathlib.Path(path).write_text(json.dumps(report), encoding="utf-8")


def main(tests: list) -> None:
    """Runs test functions, prints a line for each and the closing counts; exits 1 when one failed."""
    report: dict[str, list] = {"passed": [], "failed": [], "skipped": []}
    for test in tests:
        start = time.monotonic()
        try:
            test()
            report["passed"].append(test.__name__)
            print(f"ok      {test.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
        except Skipped as skip:
            report["skipped"].append((test.__name__, str(skip)))
            print(f"skipped {test.__name__}: {skip}", flush=True)
        except Exception as error:  # Each test is a boundary: the next one runs whatever happened.
            report["failed"].append((test.__name__, str(error)))
            print(f"FAILED  {test.__name__}: {error}", flush=True)
    write_report(report)
    print(f"{len(report['passed'])} passed, {len(report['failed'])} failed, {len(report['skipped'])} skipped")
    sys.exit(1 if report["failed"] else 0)
