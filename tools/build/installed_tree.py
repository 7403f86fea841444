#!/usr/bin/env python3
"""Lays out what an installed darkroom consists of; `make install` and `make wheel` call it.

    installed_tree.py install PREFIX [--plugin FILE]    bin/, lib/darkroom/, share/: can be moved, needs no checkout and no -dev package
    installed_tree.py writable PREFIX                   ends with 1 and one sentence where `install` could not write
    installed_tree.py wheel FOLDER [--plugin FILE]      dist/darkroom-VERSION-TAGS-PLATFORM.whl and its pinned requirements

`install` and `wheel` copy build/release/darkroom and darkroom-decoder, their files (models, recipes, prices, the corpus tool, what `bench`
measures) and every shared library that the program opens at its start, except those of NEVER_COPIED, which belong to the machine. The
wheel leaves torch, pyarrow and the rest of Python to pip. With --plugin (libdarkroom_cuda.so) either has the CUDA plugin beside these
libraries, where the program's search path finds it; the tree then also has what the plugin opens, from torch's wheel and .venv-cuda. The
wheel holds the extension module of build/release/python, which is for one
version of Python; command and launcher are for all.
"""

from __future__ import annotations  # `make install` asks it before there is a Python of the right version.

import argparse
import base64
import gzip
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile

from shared_libraries import NEVER_COPIED, all_libraries, needed_by, newest_versions, set_rpath

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build/release/darkroom"
DECODER = PROGRAM.with_name("darkroom-decoder")  # Started by the program from beside it.
PYTHON = ROOT / "build/release/python/darkroom"  # The package as the target `python` stages it.
VENV = ROOT / ".venv"
VENV_CUDA = ROOT / ".venv-cuda"  # NVIDIA's libraries: requirements/cuda.txt.
PLUGIN_NAME = "libdarkroom_cuda.so"
# Of torch's wheel: what the plugin links, and what torch's CUDA part opens when it is first asked for.
TORCH_CUDA = ["libtorch_cuda.so", "libc10_cuda.so", "libtorch_nvshmem.so", "libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so"]
# Of NVIDIA's wheels: profiling, other languages' entries, networks of many machines by ways that torch does not take.
LEFT_OUT_OF_CUDA = ("libcheckpoint", "libcufftw", "libcufile_rdma", "libcusolverMg", "libnvblas", "libnvperf", "libnvrtc.alt", "libnvrtc-builtins.alt",
                    "libnvtx3interop", "libpcsampling", "nvshmem_")
OF_THE_DRIVER = {"libcuda.so.1", "libnvidia-ml.so.1"}
FONTS = [ROOT / "tools/corpus/NotoColorEmoji.ttf", pathlib.Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")]
NAMES = pathlib.Path("/usr/share/unicode/emoji/emoji-test.txt")
PYTHON_PACKAGES = ["fontTools", "PIL", "pillow.libs", "pyarrow"]
# Of pyarrow and fontTools: headers, tests, Flight and Gandiva, which the corpus tool does not open.
LEFT_OUT = shutil.ignore_patterns("__pycache__", "tests", "include", "*.pxd", "*.pyx", "*.h", "*flight*", "*gandiva*", "*.lib")
LISTED = "installed-files.txt"  # In each folder that `install` replaces whole: what it put there.
COMPLETIONS = {"bash": "bash-completion/completions/darkroom", "zsh": "zsh/site-functions/_darkroom",
               "fish": "fish/vendor_completions.d/darkroom.fish"}


def fail(sentence: str) -> None:
    sys.exit(f"installed_tree: {sentence}")


def version() -> str:
    header = (ROOT / "include/darkroom/core/version.h").read_text(encoding="utf-8")
    return re.search(r'kVersion = "([^"]+)"', header).group(1)


def site_packages() -> pathlib.Path:
    found = sorted(VENV.glob("lib/python3.*/site-packages"))
    if not found:
        fail(f"{VENV} holds no Python environment: run `make setup`")
    return found[0]


def copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """A file or a folder; what was there is replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        target.unlink(missing_ok=True)  # It may be running, or somebody else's.
        shutil.copy2(source, target)


def copy_programs(folder: pathlib.Path, rpath: str) -> None:
    for program in (PROGRAM, DECODER):
        copy(program, folder / program.name)
        subprocess.run(["strip", folder / program.name], check=True)
    set_rpath(folder / PROGRAM.name, rpath)  # The decoder was linked with the only one that it needs.


def copy_shared_files(share: pathlib.Path) -> None:
    """What find_resource() finds, under the names of the source tree, and the licences of all that is copied."""
    for name in ("models/tiny", "recipes", "prices", "tools/corpus/make_corpus.py", "benchmarks/pictures", "benchmarks/peers.py", "LICENSE",
                 "THIRD_PARTY_NOTICES.md"):
        copy(ROOT / name, share / name)
    font = next((path for path in FONTS if path.exists()), None)
    if font is None or not NAMES.exists():
        fail(f"the demo's pictures need {FONTS[1]} and {NAMES}: apt-get install fonts-noto-color-emoji unicode-data")
    copy(font, share / "tools/corpus/NotoColorEmoji.ttf")
    copy(NAMES, share / "tools/corpus/emoji-test.txt")
    for package in ("fonts-noto-color-emoji", "unicode-data"):
        copy_licence(package, share / "licences")


def copy_licence(package: str, folder: pathlib.Path) -> None:
    licence = pathlib.Path("/usr/share/doc", package, "copyright")
    if licence.exists():
        copy(licence, folder / f"{package}.txt")


def package_of(library: pathlib.Path) -> str | None:
    """The Debian package that a library belongs to; None for another system's."""
    if shutil.which("dpkg-query") is None:
        return None
    real = library.resolve()
    for path in (real, str(real).removeprefix("/usr")):  # Debian 12 lists some below /lib, which is a link.
        done = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return None


def copy_libraries(folder: pathlib.Path, licences: pathlib.Path, with_wheels: bool, extension: pathlib.Path | None = None) -> None:
    """Every library that the program, and the extension, opens, under the name that it is asked for."""
    for name, path in sorted({**needed_by(PROGRAM), **(needed_by(extension) if extension else {})}.items()):
        is_of_wheel = "site-packages" in path.parts
        if is_of_wheel and not with_wheels:
            continue
        target = folder / name
        if is_of_wheel and path.parent.name == "pyarrow":
            # Python's pyarrow needs them at its own place; one copy serves both.
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(python_packages(pathlib.Path()) / "pyarrow" / name)
            continue
        copy(path, target)
        if not is_of_wheel and (package := package_of(path)):
            copy_licence(package, licences)


def cuda_libraries() -> list[pathlib.Path]:
    """What a tree needs of torch's and NVIDIA's libraries for GPUs; the driver's own are the machine's."""
    folders = sorted(VENV_CUDA.glob("lib/python3.*/site-packages/nvidia/*/lib"))
    if not folders:
        fail(f"{VENV_CUDA} holds no libraries of NVIDIA: run `tools/build/setup.sh cuda`")
    theirs = [path for folder in folders for path in sorted(folder.glob("*.so*")) if not path.name.startswith(LEFT_OUT_OF_CUDA)]
    return [*(site_packages() / "torch/lib" / name for name in TORCH_CUDA), *theirs]


def copy_plugin(plugin: pathlib.Path, folder: pathlib.Path, licences: pathlib.Path, rpath: str, with_wheels: bool) -> None:
    """The CUDA plugin beside the program's libraries, where the program's own search path finds it."""
    target = folder / PLUGIN_NAME
    copy(plugin, target)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)
    set_rpath(target, rpath)
    if not with_wheels:
        return
    if "libtorch_cuda.so" in all_libraries(plugin):
        for path in cuda_libraries():
            copy(path, folder / path.name)
        for licence in sorted(VENV_CUDA.glob("lib/python3.*/site-packages/nvidia_*.dist-info/**/[Ll]icen[sc]e*")):
            if licence.is_file():
                package = next(part for part in licence.parts if part.endswith(".dist-info")).split("-")[0]
                copy(licence, licences / package / licence.name)
    missing = sorted(name for name, path in all_libraries(target).items() if path is None and name not in {*OF_THE_DRIVER, *NEVER_COPIED})
    if missing:
        fail(f"the CUDA plugin {plugin} needs {', '.join(missing)}, which neither torch's wheel nor {VENV_CUDA} has")


def python_packages(prefix: pathlib.Path) -> pathlib.Path:
    """Below lib/darkroom: where the packages of the corpus tool lie."""
    return prefix / "python" / site_packages().relative_to(VENV)


def copy_python(folder: pathlib.Path, licences: pathlib.Path) -> None:
    """A Python environment of the corpus tool's packages. The interpreter stays the machine's own: a link."""
    python = folder / "python"
    (python / "bin").mkdir(parents=True)
    # Debian's own where there is one: another machine has it at the same place.
    debians = pathlib.Path("/usr/bin", site_packages().parent.name)
    interpreter = debians if debians.exists() else (VENV / "bin/python").resolve()
    (python / "bin/python").symlink_to(interpreter)
    (python / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\ninclude-system-site-packages = false\n", encoding="utf-8")
    for name in PYTHON_PACKAGES:
        shutil.copytree(site_packages() / name, python_packages(folder) / name, ignore=LEFT_OUT)
    for name in ("torch", "pyarrow", "pillow", "fonttools", "nvidia_cuda_runtime", "nvidia_cuda_cupti"):
        for licence in sorted(site_packages().glob(f"{name}-*.dist-info/**/*")):
            if licence.is_file() and re.match(r"(?i)(licen|notice|copying)", licence.name):
                copy(licence, licences / name / licence.name)


def printed_by(program: pathlib.Path, *words: str) -> bytes:
    done = subprocess.run([program, *words], capture_output=True, check=False)
    if done.returncode != 0:
        fail(f"{program} {' '.join(words)} failed with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def write_generated_files(share: pathlib.Path, program: pathlib.Path) -> None:
    """Completion and man page, from the program itself."""
    files = {place: printed_by(program, "completion", shell) for shell, place in COMPLETIONS.items()}
    files["man/man1/darkroom.1.gz"] = gzip.compress(printed_by(program, "man"), mtime=0)
    for place, data in files.items():
        (share / place).parent.mkdir(parents=True, exist_ok=True)
        (share / place).unlink(missing_ok=True)
        (share / place).write_bytes(data)


def megabytes(folder: pathlib.Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) // 1_000_000


def replaced_folders(prefix: pathlib.Path) -> list[pathlib.Path]:
    """They are ours alone: nothing of an older version stays."""
    return [prefix / "lib/darkroom", prefix / "share/darkroom"]


def staged(path: pathlib.Path) -> pathlib.Path:
    """Where a new one is laid out, beside its place."""
    return path.with_name(f".{path.name}.new")


def files_below(folder: pathlib.Path) -> set[str]:
    """Of Python's own files the installed environment makes more."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(file) for file in files if "__pycache__" not in file.parts}


def require_ours(folder: pathlib.Path) -> None:
    """Ends with one sentence where replacing the folder would take away what `install` did not put there."""
    if folder in (ROOT, *ROOT.parents):
        fail(f"{folder} holds this checkout and would be replaced; name another folder: make install PREFIX=DIR")
    if not folder.is_dir():
        return
    listing = folder / LISTED
    known = set(listing.read_text(encoding="utf-8").splitlines()) if listing.is_file() else set()
    foreign = sorted(files_below(folder) - known - {LISTED})
    if foreign:
        fail(f"{folder / foreign[0]} ({len(foreign)} files in all) is not of `make install`, which replaces {folder}: move it to another place, or name "
             "another folder: make install PREFIX=DIR")


def require_writable(prefix: pathlib.Path) -> None:
    """Ends with one sentence where this account cannot write the tree, or must not; nothing is left behind."""
    for folder in replaced_folders(prefix):
        require_ours(folder)
    for folder in (prefix / "bin", prefix / "lib/darkroom", prefix / "share/darkroom", prefix / "share/man/man1",
                   *((prefix / "share" / place).parent for place in COMPLETIONS.values())):
        there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        if not there.is_dir():
            fail(f"{there} is no folder, so nothing can be installed below it; name another one: make install PREFIX=DIR")
        try:
            tempfile.TemporaryFile(dir=there).close()
        except OSError as error:
            fail(f"cannot write to {there} ({error.strerror}): run `make build` and then `sudo make install PREFIX={shlex.quote(str(prefix))}`, or "
                 "name a folder of your own: make install PREFIX=DIR")


def let_all_read(folder: pathlib.Path) -> None:
    """Whatever the modes of the sources and the umask that they were made under."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def lay_out_tree(prefix: pathlib.Path, plugin: pathlib.Path | None) -> None:
    """All of it, beside the places where it goes."""
    libraries, share = (staged(folder) for folder in replaced_folders(prefix))
    copy_shared_files(share)
    copy_python(libraries, share / "licences")
    copy_libraries(libraries, share / "licences", with_wheels=True)
    if plugin:
        copy_plugin(plugin, libraries, share / "licences", "$ORIGIN", with_wheels=True)
    for folder in (libraries, share):
        (folder / LISTED).write_text("\n".join(sorted(files_below(folder))) + "\n", encoding="utf-8")
    copy_programs(staged(prefix / "bin/darkroom"), "$ORIGIN/../lib/darkroom")
    for folder in (libraries, share, staged(prefix / "bin/darkroom")):
        let_all_read(folder)


def remove(folder: pathlib.Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)


def put_in_place(prefix: pathlib.Path) -> None:
    """What was installed before works until here."""
    for folder in replaced_folders(prefix):
        old = folder.with_name(f".{folder.name}.old")
        remove(old)
        if folder.is_dir():
            folder.rename(old)
        staged(folder).rename(folder)
        remove(old)
    programs = staged(prefix / "bin/darkroom")
    for program in sorted(programs.iterdir()):
        program.replace(prefix / "bin" / program.name)
    programs.rmdir()


def install(prefix: pathlib.Path, plugin: pathlib.Path | None) -> None:
    os.umask(0o022)  # Of sudo it is the user's own, too, who may keep files from others.
    new = [staged(path) for path in (*replaced_folders(prefix), prefix / "bin/darkroom")]
    for folder in new:
        remove(folder)
    try:
        lay_out_tree(prefix, plugin)
    except BaseException as error:
        for folder in new:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, (OSError, shutil.Error)):
            fail(f"{error}; what was installed before is as it was")
        raise
    put_in_place(prefix)
    write_generated_files(prefix / "share", prefix / "bin/darkroom")
    libraries, share = replaced_folders(prefix)
    size = megabytes(libraries) + megabytes(share) + (prefix / "bin/darkroom").stat().st_size // 1_000_000
    gpus = ", GPUs' part included" if plugin else "; without the CUDA plugin, so on the CPU alone (make install CUDA=1)"
    print(f"install: {prefix}/bin/darkroom is ready, {size} MB with all that it opens{gpus}")


# -- the wheel --------------------------------------------------------------------------------------------------------


def pinned(names: list[str]) -> list[str]:
    """The lines of requirements/build.txt for these packages."""
    lines = (ROOT / "requirements/build.txt").read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if line.split("==")[0] in names]
    if len(found) != len(names):
        fail(f"requirements/build.txt lacks one of {', '.join(names)}")
    return found


def of_ray() -> list[str]:
    """What the extra [ray] asks for: requirements/ray.in without what the wheel has asked for itself."""
    lines = (ROOT / "requirements/ray.in").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(("ray[", "aiohttp=="))]


def metadata() -> str:
    dependencies = [line.split()[0] for line in pinned(["torch", "pyarrow", "fonttools", "pillow", "numpy"])]
    dependencies += [f'{line} ; extra == "ray"' for line in of_ray()]
    fields = ["Metadata-Version: 2.1", "Name: darkroom", f"Version: {version()}",
              "Summary: Pre-trains Stable Diffusion from a list of URLs", "License: Apache-2.0", "Requires-Python: >=3.11,<3.14",
              "Provides-Extra: ray", *(f"Requires-Dist: {dependency}" for dependency in dependencies), "Description-Content-Type: text/markdown"]
    return "\n".join(fields) + "\n\n" + (ROOT / "README.md").read_text(encoding="utf-8")


def is_binary(file: pathlib.Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def platform_tag(files: list[pathlib.Path]) -> str:
    """manylinux of the oldest C library that has all that these files ask for, which may be older than that of this machine."""
    libc = newest_versions([file for file in files if is_binary(file)])["GLIBC"]
    return f"manylinux_{libc.replace('.', '_')}_x86_64"


class WheelFile:
    """A zip file that records what it holds, with the same bytes for the same content."""

    def __init__(self, path: pathlib.Path, info: str) -> None:
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.info = info
        self.record: list[str] = []

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self) -> None:
        self.record.append(f"{self.info}/RECORD,,")
        entry = zipfile.ZipInfo(f"{self.info}/RECORD", date_time=(1980, 1, 1, 0, 0, 0))
        self.zip.writestr(entry, "\n".join(self.record) + "\n")
        self.zip.close()


def extension_module() -> pathlib.Path:
    found = sorted(PYTHON.glob("_native.cpython-*.so"))
    if len(found) != 1:
        fail(f"{PYTHON} holds {len(found)} extension modules instead of one: run `make python`")
    return found[0]


def tags(extension: pathlib.Path) -> tuple[str, str]:
    """(Python, ABI) as a file name has them: the extension's own, and any Python 3 without one for the command and its launcher."""
    version = re.match(r"_native\.cpython-(\d+)-", extension.name).group(1)
    return f"cp{version}.py3", f"cp{version}.none"


def lay_out_wheel(package: pathlib.Path, extension: pathlib.Path, plugin: pathlib.Path | None) -> None:
    """The folders site-packages/darkroom and, beside it, darkroom_ray."""
    for folder in (package, package.with_name("darkroom_ray")):
        for pattern in ("*.py", "*.pyi", "py.typed"):
            for source in sorted((ROOT / "python" / folder.name).glob(pattern)):
                copy(source, folder / source.name)
    copy(extension, package / extension.name)
    set_rpath(package / extension.name, "$ORIGIN/lib/darkroom:$ORIGIN/../torch/lib:$ORIGIN/../pyarrow")
    copy_shared_files(package / "share/darkroom")
    copy_libraries(package / "lib/darkroom", package / "share/darkroom/licences", with_wheels=False, extension=extension)
    if plugin:
        packages = "$ORIGIN/../../.."
        rpath = f"$ORIGIN:{packages}/torch/lib:{packages}/nvidia/cu13/lib:{packages}/nvidia/nccl/lib"
        copy_plugin(plugin, package / "lib/darkroom", package / "share/darkroom/licences", rpath, with_wheels=False)
    copy_programs(package / "bin", "$ORIGIN/../lib/darkroom:$ORIGIN/../../torch/lib:$ORIGIN/../../pyarrow")
    write_generated_files(package / "share", PROGRAM)


def wheel(folder: pathlib.Path, plugin: pathlib.Path | None) -> None:
    staging = ROOT / "build/wheel"
    shutil.rmtree(staging, ignore_errors=True)
    extension = extension_module()
    lay_out_wheel(staging / "darkroom", extension, plugin)
    folder.mkdir(parents=True, exist_ok=True)
    pythons, abis = tags(extension)
    files = [file for file in sorted(staging.rglob("*")) if file.is_file()]
    platform = platform_tag(files)
    info = f"darkroom-{version()}.dist-info"
    path = folder / f"darkroom-{version()}-{pythons}-{abis}-{platform}.whl"
    archive = WheelFile(path, info)
    for file in files:
        archive.add(str(file.relative_to(staging)), file.read_bytes(), 0o755 if file.stat().st_mode & 0o100 else 0o644)
    archive.add(f"{info}/METADATA", metadata().encode())
    lines = ["Wheel-Version: 1.0", "Generator: darkroom", "Root-Is-Purelib: false",
             *(f"Tag: {python}-{abi}-{platform}" for python in pythons.split(".") for abi in abis.split("."))]
    archive.add(f"{info}/WHEEL", ("\n".join(lines) + "\n").encode())
    archive.add(f"{info}/entry_points.txt", b"[console_scripts]\ndarkroom = darkroom.launcher:main\ndarkroom-ray = darkroom_ray.command:main\n")
    archive.close()
    cpu = folder / f"darkroom-{version()}-cpu.txt"
    names = ["torch", "pyarrow", "fonttools", "pillow", "numpy", "nvidia-cuda-cupti", "nvidia-cuda-runtime"]
    cpu.write_text("\n".join(["# For a machine without a GPU: pip install --no-deps -r this file, then --no-deps the wheel.",
                              *pinned(names)]) + "\n", encoding="utf-8")
    print(f"wheel: {path} ({path.stat().st_size // 1_000_000} MB), {cpu.name} lists what a CPU machine needs of its dependencies")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["install", "wheel", "writable"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--plugin", type=pathlib.Path, help="the CUDA plugin, of `tools/build/build.sh cuda libdarkroom_cuda.so`")
    options = parser.parse_args()
    folder = pathlib.Path.cwd() / options.folder
    if options.what == "writable":
        require_writable(folder)
        return
    for program in (PROGRAM, DECODER):
        if not program.exists():
            fail(f"{program} is missing: run `make build`")
    if options.plugin and not options.plugin.exists():
        fail(f"there is no CUDA plugin {options.plugin}: run `tools/build/build.sh cuda {PLUGIN_NAME}`")
    if options.what == "install":
        require_writable(folder)
        install(folder, options.plugin)
    else:
        wheel(folder, options.plugin)


if __name__ == "__main__":
    main()
