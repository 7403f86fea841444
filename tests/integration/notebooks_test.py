#!/usr/bin/env python3
"""The notebooks run from their first cell to their last, over the Python package that `make python` stages."""

import json
import subprocess

from workbench import ROOT, Skipped, main, require, temporary_folder

PYTHON = ROOT / ".venv-notebooks" / "bin" / "python"
PATIENCE = 1500  # Seconds; a limit, no measure.


def run_notebook(name: str, num_pictures: int) -> None:
    """Each cell ran in its order, none raised, and so many pictures were drawn."""
    if not PYTHON.exists():
        raise Skipped("there is no .venv-notebooks; tools/build/setup.sh notebooks installs it")
    with temporary_folder() as folder:
        command = [PYTHON, ROOT / "tools" / "notebooks" / "run_notebooks.py", folder, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        require(done.returncode == 0, f"{name} ended with {done.returncode}:", done.stdout, done.stderr[-3000:])
        cells = [cell for cell in json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    require([cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "cells that did not run", name)
    drawn = sum("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])
    require(drawn == num_pictures, "pictures of", name, drawn)


def every_notebook_is_run() -> None:
    names = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    require(names == {"preprocessing", "offline_training", "online_training"}, "a notebook without a case", names)


def preprocessing() -> None:
    run_notebook("preprocessing", 3)


def offline_training() -> None:
    run_notebook("offline_training", 3)


def online_training() -> None:
    run_notebook("online_training", 0)


if __name__ == "__main__":
    main([every_notebook_is_run, preprocessing, offline_training, online_training])
