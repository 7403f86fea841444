#!/usr/bin/env python3
"""What an ELF program links: for the installed tree, the wheel, and whoever wants to know.

    shared_libraries.py PROGRAM [--within FOLDER]...

Prints each library that the program opens at its start, where the loader finds it, and the newest versions of the C and C++
library that program and libraries ask for. Exits 1 when one is missing or, with --within, comes neither from these folders nor
from NEVER_COPIED (auditwheel's question); or when the program's own search path is absolute.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys

# The machine's own: the C and C++ runtime, which must fit its kernel and its name services.
NEVER_COPIED = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libutil.so.1", "libresolv.so.2",
                "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2", "linux-vdso.so.1"}
SEARCH_PATH = re.compile(r"\((RPATH|RUNPATH)\)\s+Library r(?:un)?path: \[(.*)\]")
VERSION = re.compile(r"Name: (GLIBC|GLIBCXX)_([0-9.]+)")


def run(*command) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"shared_libraries: {' '.join(str(word) for word in command)} failed: {done.stderr.strip()}")
    return done.stdout


def all_libraries(program: pathlib.Path) -> dict[str, pathlib.Path | None]:
    """{name: where the loader finds it, None when it does not} of every library that is opened at the start."""
    found: dict[str, pathlib.Path | None] = {}
    for line in run("ldd", program.resolve()).splitlines():  # ldd takes $ORIGIN from the name, the kernel from the file.
        name, _, place = line.strip().partition(" => ")
        if place.startswith("not found"):
            found[name] = None
        elif place:
            found[name] = pathlib.Path(place.rsplit(" (", 1)[0])
    return found


def needed_by(program: pathlib.Path) -> dict[str, pathlib.Path]:
    """Those of them that a copy of the program takes along."""
    libraries = {name: path for name, path in all_libraries(program).items() if name not in NEVER_COPIED}
    missing = [name for name, path in libraries.items() if path is None]
    if missing:
        sys.exit(f"shared_libraries: {program} does not find {', '.join(missing)}")
    return libraries


def rpath_of(program: pathlib.Path) -> str:
    match = SEARCH_PATH.search(run("readelf", "-d", program))
    return match.group(2) if match else ""


def set_rpath(program: pathlib.Path, rpath: str) -> None:
    """Writes a search path over the one that the linker left, which must be as long at least."""
    script = program.with_name(program.name + ".rpath.cmake")
    script.write_text(f"file(RPATH_CHANGE FILE [==[{program}]==] OLD_RPATH [==[{rpath_of(program)}]==] NEW_RPATH [==[{rpath}]==])\n",
                      encoding="utf-8")
    try:
        run("cmake", "-P", script)
    finally:
        script.unlink()


def newest_versions(files: list[pathlib.Path]) -> dict[str, str]:
    newest: dict[str, tuple[int, ...]] = {}
    for file in files:
        for library, version in VERSION.findall(run("readelf", "-V", file)):
            number = tuple(int(part) for part in version.split("."))
            newest[library] = max(newest.get(library, (0,)), number)
    return {library: ".".join(map(str, number)) for library, number in sorted(newest.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--within", type=pathlib.Path, action="append", default=[], help="folders that libraries may come from")
    options = parser.parse_args()
    folders = [folder.resolve() for folder in options.within]
    libraries = all_libraries(options.program)
    findings = []
    for name, path in sorted(libraries.items()):
        verdict = "the machine's" if name in NEVER_COPIED else "copied"
        if path is None:
            verdict = "MISSING"
        elif name not in NEVER_COPIED and folders and not any(path.resolve().is_relative_to(folder) for folder in folders):
            verdict = "OUTSIDE"
        if verdict.isupper():
            findings.append(f"{name}: {verdict.lower()}")
        print(f"{name:<28}{verdict:<15}{path or ''}")
    search_path = rpath_of(options.program)
    print(f"search path: {search_path}")
    findings += [f"the search path is absolute: {entry}" for entry in search_path.split(":") if entry.startswith("/")]
    own = [path for name, path in libraries.items() if path and name not in NEVER_COPIED]
    for library, version in newest_versions([options.program, *own]).items():
        print(f"needs {library} {version} or newer")
    for finding in findings:
        print(f"finding: {finding}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
