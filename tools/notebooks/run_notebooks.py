#!/usr/bin/env python3
"""Runs the notebooks from their first cell to their last; a cell that raises ends it with 1.

    run_notebooks.py FOLDER [NAME...]      of notebooks/, all or those named; FOLDER gets them with what they printed and drew

Runs in the environment of requirements/notebooks.txt (`make notebooks`); the notebooks take darkroom from build/release/python, and
torch, pyarrow and the rest from .venv.
"""

import os
import pathlib
import sys
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = ROOT / "notebooks"
CELL_SECONDS = 600


def run(path: pathlib.Path, folder: pathlib.Path) -> bool:
    book = nbformat.read(path, as_version=4)
    start, succeeded = time.monotonic(), True
    try:
        NotebookClient(book, timeout=CELL_SECONDS, kernel_name="python3").execute()
    except CellExecutionError as error:
        succeeded = False
        print(f"notebooks: {path.name} failed:\n{error}", file=sys.stderr)
    nbformat.write(book, folder / path.name)
    pictures = sum("image/png" in output.get("data", {}) for cell in book.cells for output in cell.get("outputs", []))
    print(f"notebooks: {path.name}: {'ok' if succeeded else 'FAILED'}, {pictures} pictures, {time.monotonic() - start:.0f} s")
    return succeeded


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [ROOT / "build/release/python", *ROOT.glob(".venv/lib/python3.*/site-packages")]))
    paths = [NOTEBOOKS / f"{name}.ipynb" for name in sys.argv[2:]] or sorted(NOTEBOOKS.glob("*.ipynb"))
    sys.exit(0 if all([run(path, folder) for path in paths]) else 1)


if __name__ == "__main__":
    main()
