#!/usr/bin/env python3
"""Checks that each public header compiles alone, with the flags of its module.

usage: check_headers.py BUILD_FOLDER
Needs a configured folder whose precompiled torch header is built. Only headers that include torch, themselves or through another of ours, are compiled
with it, which changes nothing but the time: what they would lack without it is missed by no header that goes without. A header that stands alone gets the
compiler as far as the failing static_assert behind it; there it stops, before it spends seconds on the instances of torch's templates. Prints what does
not compile and exits 1 then.
"""

import concurrent.futures
import dataclasses
import functools
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
TORCH = "<torch/torch.h>"  # What is precompiled.
INCLUDE = re.compile(r'^#include (<[^>]+>|"darkroom/[^"]+")', re.MULTILINE)
PRECOMPILED = re.compile(r"-include (\S+cmake_pch\.hxx) ")


@dataclasses.dataclass(frozen=True)
class Compiler:
    """How a module's own library is compiled, and where."""

    words: list[str]
    folder: str


def read_compilers(build: pathlib.Path) -> tuple[dict[str, Compiler], list[str]]:
    """Of each module, without the precompiled header; and the words that take that."""
    compilers, precompiled = {}, []
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        command = entry["command"]
        library = re.search(r" -o \S*darkroom_(\w+)\.dir/\S+ -c (\S+)$", command)
        if library:
            header = PRECOMPILED.search(command)
            precompiled = ["-include", header[1]] if header else precompiled
            if header or library[1] not in compilers:  # A source without it may have flags with which the compiler does not take it.
                words = shlex.split(PRECOMPILED.sub("", command[:library.start()] + " "))
                compilers[library[1]] = Compiler(words, entry["directory"])
    return compilers, precompiled


@functools.cache
def includes_torch(header: pathlib.Path) -> bool:
    """Itself, or through another public header."""
    included = INCLUDE.findall(header.read_text(encoding="utf-8")) if header.exists() else []
    return TORCH in included or any(includes_torch(ROOT / "include" / name.strip('"')) for name in included if name.startswith('"'))


def fault_of(header: pathlib.Path, compiler: Compiler, precompiled: list[str], folder: str) -> str:
    """What the compiler says against the header; empty when it stands alone."""
    name = header.relative_to(ROOT / "include")
    source = pathlib.Path(folder) / ("_".join(name.parts) + ".cpp")
    source.write_text(f'#include "{name}"\nstatic_assert(false, "{END}");\n', encoding="utf-8")
    command = [*compiler.words, *(precompiled if includes_torch(header) else []), "-Wfatal-errors", "-fsyntax-only", str(source)]
    result = subprocess.run(command, cwd=compiler.folder, capture_output=True, text=True, check=False)
    first_error = next((line for line in result.stderr.splitlines() if " error: " in line), result.stderr or "the compiler said nothing")
    return "" if first_error.endswith(f"static assertion failed: {END}") else f"{name}: {first_error}"


def main() -> None:
    build = pathlib.Path(sys.argv[1]).resolve()
    compilers, precompiled = read_compilers(build)
    headers = sorted((ROOT / "include" / "darkroom").glob("*/*.h"))
    checked = [header for header in headers if header.parent.name in compilers]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(lambda header: fault_of(header, compilers[header.parent.name], precompiled, folder), checked) if fault]
    for module in sorted({header.parent.name for header in headers} - compilers.keys()):
        faults.append(f"{module}: this build has no library of the module, so its headers were not compiled")
    for fault in faults:
        print(fault)
    print(f"headers: {len(checked)} of {len(headers)} compiled alone, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
