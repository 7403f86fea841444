#!/usr/bin/env python3
"""Which unit tests ThreadSanitizer has anything to say of.

usage: threaded_tests.py MODULE    prints the sources of tests/unit/MODULE that the preset `tsan` compiles, a line each
A module is tested there if it or its tests start threads, by themselves or through what exists for that; of its tests, those that reach a source that starts
threads: themselves, the headers that they include, the sources of their names, and what these include.
cmake/modules.cmake compiles what this prints; run_tests.py expects a program where it prints anything.
"""

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STARTS = re.compile(r"#include <(thread|future)>|std::(jthread|thread|async)\b")
STARTS_IN_MODULE = re.compile(
    STARTS.pattern + r'|#include "(darkroom/(stream/|web/http)|support/(scripted_server|stub_dns|interleaver|rank_threads|download_web))')
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@functools.cache
def text_of(source: pathlib.Path) -> str:
    return source.read_text(encoding="utf-8")


@functools.cache
def included(source: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Headers of the house that a source includes, and the sources of their names."""
    found = []
    for name in INCLUDE.findall(text_of(source)):
        private = [folder / name for folder in (ROOT / "src", ROOT / "tests", source.parent)]
        of_its_name = [path.with_suffix(".cpp") for path in (ROOT / "src" / name.removeprefix("darkroom/"), *private)]
        found += [path for path in (ROOT / "include" / name, *private, *of_its_name) if path.is_file()]
    return tuple(found)


def starts_threads(test: pathlib.Path) -> bool:
    """Whether a test or anything that it reaches does."""
    seen, pending = {test}, [test]
    while pending:
        source = pending.pop()
        if STARTS.search(text_of(source)):
            return True
        new = [path for path in included(source) if path not in seen]
        seen.update(new)
        pending += new
    return False


def threaded_tests(module: str) -> list[pathlib.Path]:
    """Sources of a module's test program under ThreadSanitizer; none where it has none."""
    folders = (ROOT / "src" / module, ROOT / "include" / "darkroom" / module, ROOT / "tests" / "unit" / module)
    if not any(STARTS_IN_MODULE.search(text_of(path)) for folder in folders for path in folder.rglob("*.*") if path.suffix in (".h", ".cpp")):
        return []
    return [source for source in sorted((ROOT / "tests" / "unit" / module).glob("*.cpp")) if starts_threads(source)]


if __name__ == "__main__":
    for path in threaded_tests(sys.argv[1]):
        print(path)
