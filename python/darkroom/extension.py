"""Finds the extension module and the libraries that it shares with torch and pyarrow, or says why not."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import pathlib
import sys
from types import ModuleType

PACKAGE = pathlib.Path(__file__).resolve().parent
SHARE = PACKAGE / "share" / "darkroom"
DECODER = PACKAGE / "bin" / "darkroom-decoder"
TOKENIZER = SHARE / "models" / "tiny" / "tokenizer"

# What the extension was linked with. A library of another major version has another name, and two of them in one process would each have
# their own idea of a table: it is refused instead.
_LIBARROW = ("libarrow.so.2300", "libparquet.so.2300")
_LIBTORCH = ("libc10.so", "libtorch_cpu.so")


def _folder_of(package: str, wanted: str) -> pathlib.Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"darkroom needs the package {package}, which this Python lacks: pip install '{wanted}'")
    return pathlib.Path(found.submodule_search_locations[0])


def _version_in(folder: pathlib.Path, package: str) -> str:
    infos = sorted(folder.parent.glob(f"{package}-*.dist-info"))
    return infos[0].name.removeprefix(f"{package}-").removesuffix(".dist-info") if infos else "an unknown version"


def _open_libraries(folder: pathlib.Path, names: tuple[str, ...], package: str, wanted: str) -> None:
    """Those that `import pyarrow` and `import torch` open, too: whoever comes first, the process has each once."""
    for name in names:
        if not (folder / name).exists():
            raise ImportError(f"darkroom was built with {wanted}, whose {name} is not in {folder}; this Python has {package} "
                              f"{_version_in(folder if package == 'pyarrow' else folder.parent, package)}: pip install '{wanted}'")
        try:
            ctypes.CDLL(str(folder / name))
        except OSError as error:
            raise ImportError(f"darkroom cannot open {package}'s {name}: {error}") from error


def _extension_of_another_python() -> str:
    others = sorted(path.name for path in PACKAGE.glob("_native.*.so"))
    return f"this package's is for another one: {others[0]}" if others else "this package was built without it: run `make python` in the checkout"


def load() -> ModuleType:
    """The module darkroom._native. ImportError says what is missing and what to do."""
    if "darkroom._native" in sys.modules:
        return sys.modules["darkroom._native"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if importlib.util.find_spec("darkroom._native") is None:
        raise ImportError(f"darkroom has no extension module for this Python, {version} (the command `darkroom` works without): "
                          f"{_extension_of_another_python()}")
    # libarrow first, as the program has it.
    _open_libraries(_folder_of("pyarrow", "pyarrow==23.0.1"), _LIBARROW, "pyarrow", "pyarrow==23.0.1")
    _open_libraries(_folder_of("torch", "torch==2.11.0") / "lib", _LIBTORCH, "torch", "torch==2.11.0")
    return importlib.import_module("darkroom._native")


native = load()
