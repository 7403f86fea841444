#!/usr/bin/env python3
"""Does what docs/tutorial.md tells its reader, in the page's order, so that no command of it goes stale.

  tools/check/tutorial.py FOLDER

FOLDER must not exist. The page's Python block becomes make_shapes.py there; its blocks marked `sh` run as one script that stops at the first command
that fails. Takes about three minutes on two idle cores; the program must be built (`make build`).
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "tutorial.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True)
    (script,) = blocks("python")
    if len(blocks("sh")) < 5:
        sys.exit(f"{PAGE}: fewer than five blocks marked `sh`: has their mark changed?")
    (folder / "make_shapes.py").write_text(script, encoding="utf-8")
    commands = "set -euxo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "".join(blocks("sh"))
    sys.exit(subprocess.run(["bash", "-c", commands], cwd=folder, env={**os.environ, "DARKROOM": str(ROOT)}).returncode)


if __name__ == "__main__":
    main()
