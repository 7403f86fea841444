#!/usr/bin/env python3
"""Packs the built program for a GPU box that lacks our libraries; gpu_verbs.sh runs it there.

    pack_program.py OUT.tar.xz [--build FOLDER]...

bin/ holds darkroom, darkroom-decoder, libdarkroom_cuda.so, plugin_test and gpu_parity, stripped, each from the first of the build folders
(build/release and build/cuda) that has it; lib/darkroom/ every library that they open but those of the C and C++ runtime, of torch and of
NVIDIA, which are the box's own. One of the builds must have the plugin (cmake --preset release -DDARKROOM_CUDA=ON
-DDARKROOM_CUDA_ARCHITECTURES=90-real, then the targets darkroom darkroom-decoder darkroom_cuda plugin_test gpu_parity). The programs find lib/darkroom by themselves and torch by LD_LIBRARY_PATH; models and recipes come
from the source tree that DARKROOM_SHARE names.
"""

import argparse
import lzma
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools/build"))

from shared_libraries import NEVER_COPIED, all_libraries, rpath_of, set_rpath  # noqa: E402

BUILDS = [ROOT / "build/release", ROOT / "build/cuda"]
PROGRAMS = ["darkroom", "darkroom-decoder", "plugin_test", "gpu_parity", "libdarkroom_cuda.so"]
OWN_LIBRARIES = "$ORIGIN/../lib/darkroom"
OF_THE_BOX = ("torch", "nvidia", "cuda")  # A folder of this name, or of one that begins so, above a library.
FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 27}]


def fail(sentence: str) -> None:
    sys.exit(f"pack_program: {sentence}")


def is_of_the_box(name: str, path: pathlib.Path | None) -> bool:
    """The plugin's libraries that are not found here are CUDA's: those of the program have all been found, or it would not run."""
    return path is None or name in NEVER_COPIED or any(part.startswith(OF_THE_BOX) for part in path.parts)


def libraries_of(program: pathlib.Path) -> dict[str, pathlib.Path]:
    found = all_libraries(program)
    missing = [name for name, path in found.items() if path is None]
    if missing and program.name == "darkroom":
        fail(f"{program} does not find {', '.join(missing)}")
    return {name: path for name, path in found.items() if not is_of_the_box(name, path)}


def copy_stripped(source: pathlib.Path, target: pathlib.Path) -> None:
    shutil.copy(source, target)
    target.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)


def find_program(name: str, builds: list[pathlib.Path]) -> pathlib.Path:
    found = next((build / name for build in builds if (build / name).exists()), None)
    if found is None:
        fail(f"{name} is in none of {', '.join(map(str, builds))}: configure one with -DDARKROOM_CUDA=ON and build it")
    print(f"pack_program: {found}", flush=True)
    return found


def lay_out(tree: pathlib.Path, builds: list[pathlib.Path]) -> None:
    (tree / "bin").mkdir()
    (tree / "lib/darkroom").mkdir(parents=True)
    libraries: dict[str, pathlib.Path] = {}
    for name in PROGRAMS:
        program = find_program(name, builds)
        libraries.update(libraries_of(program))
        copy_stripped(program, tree / "bin" / name)
        if rpath_of(tree / "bin" / name) != OWN_LIBRARIES:
            set_rpath(tree / "bin" / name, OWN_LIBRARIES)
    for name, path in sorted(libraries.items()):
        copy_stripped(path.resolve(), tree / "lib/darkroom" / name)


def pack(tree: pathlib.Path, archive: pathlib.Path) -> None:
    """The same bytes for the same files."""

    def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with lzma.open(archive, "wb", filters=FILTERS) as compressed, tarfile.open(fileobj=compressed, mode="w") as tar:
        tar.add(tree, arcname=".", filter=without_owner)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, action="append", help="where the programs are, instead")
    options = parser.parse_args()
    archive = options.archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="darkroom-pack-") as folder:
        tree = pathlib.Path(folder)
        lay_out(tree, options.build or BUILDS)
        unpacked = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
        pack(tree, archive)
    print(f"pack_program: {archive}: {archive.stat().st_size} bytes, {unpacked} unpacked")


if __name__ == "__main__":
    main()
