#!/usr/bin/env python3
"""The ledger of the acceptance checks (tests/acceptance/harness.py): a result lasts as long as the program, its decoder and the check's own sources."""

import pathlib
import shutil
import subprocess
import sys

from workbench import ROOT, main, require, temporary_folder

CHECK = '''from harness import require


def counted(trials):
    trials.trial("one", lambda: open("{folder}/runs", "a").write("{name} "))


CHECKS = [("{name}", counted)]
'''
MAIN = '''import pathlib
import alpha
import beta
from harness import Ledger, run_checks

run_checks(alpha.CHECKS + beta.CHECKS, Ledger(pathlib.Path("{folder}/results.json"), False), False, 1)
'''


class House:
    """A copy of the harness beside two modules of one check each, a program and its decoder."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.here = folder / "tests" / "acceptance"
        self.release = folder / "build" / "release"
        for path in (self.here, folder / "tests" / "integration", self.release):
            path.mkdir(parents=True)
        shutil.copy(ROOT / "tests" / "acceptance" / "harness.py", self.here)
        for name in ("workbench.py", "cases.py"):
            shutil.copy(ROOT / "tests" / "integration" / name, folder / "tests" / "integration")
        for name in ("darkroom", "darkroom-decoder"):
            (self.release / name).write_text(name)
        (folder / "build" / "darkroom").symlink_to("release/darkroom")
        for name in ("alpha", "beta"):
            (self.here / f"{name}.py").write_text(CHECK.format(folder=folder, name=name))
        (self.here / "start.py").write_text(MAIN.format(folder=folder))

    def runs(self) -> list[str]:
        """Which checks another start runs."""
        (self.folder / "runs").write_text("")
        done = subprocess.run([sys.executable, str(self.here / "start.py")], capture_output=True, text=True)
        require(done.returncode == 0, "the start failed", done.stdout, done.stderr)
        return (self.folder / "runs").read_text().split()


def a_result_lasts_until_what_it_judged_changes() -> None:
    with temporary_folder() as folder:
        house = House(folder)
        require(house.runs() == ["alpha", "beta"], "the first start")
        require(house.runs() == [], "a start without a change")
        for path, want in {
            house.here / "beta.py": ["beta"], house.here / "alpha.py": ["alpha"], house.here / "harness.py": ["alpha", "beta"], folder / "tests" / "integration" / "workbench.py": ["alpha", "beta"],
            house.release / "darkroom": ["alpha", "beta"], house.release / "darkroom-decoder": ["alpha", "beta"],
        }.items():
            with path.open("a") as file:
                file.write("\n# Other bytes.\n")
            ran = house.runs()
            require(ran == want, "after a change of", path.name, ran, "want", want)
        (house.here / "alpha_start.sh").write_text("exit 0\n")
        require(house.runs() == ["alpha"], "after a change of a file beside the module")


if __name__ == "__main__":
    main([a_result_lasts_until_what_it_judged_changes])
