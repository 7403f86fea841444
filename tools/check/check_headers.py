#!/usr/bin/env python3
"""Checks that each public header compiles alone, with the flags of its module.

usage: check_headers.py BUILD_FOLDER
Needs a configured folder whose precompiled torch header is built. A header that stands alone gets the compiler as far as the failing
static_assert behind it; there it stops, before it spends seconds on the instances of torch's templates. Prints what does not compile and exits 1 then.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
END = "the header stands alone"


def commands_by_module(build: pathlib.Path) -> dict[str, tuple[list[str], str]]:
    """The compiler's flags and folder for each module's own library."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        library = re.search(r" -o \S*darkroom_(\w+)\.dir/\S+ -c (\S+)$", entry["command"])
        if library:
            words = shlex.split(entry["command"][:library.start()])
            commands[library[1]] = (words, entry["directory"])
    return commands


def fault_of(header: pathlib.Path, command: tuple[list[str], str], folder: str) -> str:
    """What the compiler says against the header; empty when it stands alone."""
    name = header.relative_to(ROOT / "include")
    source = pathlib.Path(folder) / ("_".join(name.parts) + ".cpp")
    source.write_text(f'#include "{name}"\nstatic_assert(false, "{END}");\n', encoding="utf-8")
    words, directory = command
    result = subprocess.run([*words, "-Wfatal-errors", "-fsyntax-only", str(source)], cwd=directory, capture_output=True, text=True, check=False)
    first_error = next((line for line in result.stderr.splitlines() if " error: " in line), result.stderr or "the compiler said nothing")
    return "" if first_error.endswith(f"static assertion failed: {END}") else f"{name}: {first_error}"


def main() -> None:
    build = pathlib.Path(sys.argv[1]).resolve()
    commands = commands_by_module(build)
    headers = sorted((ROOT / "include" / "darkroom").glob("*/*.h"))
    checked = [header for header in headers if header.parent.name in commands]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(lambda header: fault_of(header, commands[header.parent.name], folder), checked) if fault]
    for module in sorted({header.parent.name for header in headers} - commands.keys()):
        faults.append(f"{module}: this build has no library of the module, so its headers were not compiled")
    for fault in faults:
        print(fault)
    print(f"headers: {len(checked)} of {len(headers)} compiled alone, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
