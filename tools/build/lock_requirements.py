#!/usr/bin/env python3
"""Writes a hash-pinned lock file with the wheels for CPython 3.11, 3.12 and 3.13 on x86-64 Linux.

    lock_requirements.py requirements/build.in requirements/build.txt --complete
    lock_requirements.py requirements/parity.in requirements/parity.txt [--upgrade]

Without --complete the packages that the listed ones ask for are locked, too; in the versions of the present lock, unless
--upgrade is given. Install with `pip install --no-deps --require-hashes -r LOCK.txt`: nothing else is resolved. Needs the
command uv, which reads the index's metadata instead of downloading every wheel. A package without a wheel for one of the
Python versions that need it is an error.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import tomllib

PYTHON_VERSIONS = ("3.11", "3.12", "3.13")
PLATFORM = "x86_64-manylinux_2_28"  # Debian 12 and every later release take it.


def resolve(source: str, version: str, constraints: pathlib.Path, flags: list[str]) -> list[dict]:
    """The packages that one Python version needs, each with its wheels."""
    with tempfile.TemporaryDirectory() as folder:
        lock = pathlib.Path(folder, "pylock.toml")
        command = ["uv", "pip", "compile", "--quiet", "--no-python-downloads", "--only-binary", ":all:", "--format", "pylock.toml",
                   "--python-version", version, "--python-platform", PLATFORM, "--constraint", str(constraints), "--output-file",
                   str(lock), *flags, source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"lock_requirements: {' '.join(command)}\n{done.stderr}")
        return tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]


def pins(lock: pathlib.Path) -> str:
    """NAME==VERSION lines of a lock."""
    return "".join(line.split()[0] + "\n" for line in lock.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))


def marker(versions: list[str]) -> str:
    """What tells pip to leave a package out that only some versions need."""
    if len(versions) == len(PYTHON_VERSIONS):
        return ""
    return " ; " + " or ".join(f'python_version == "{version}"' for version in versions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("requirements", help="the packages, one NAME==VERSION a line")
    parser.add_argument("lock", type=pathlib.Path, help="the file to write")
    parser.add_argument("--complete", action="store_true", help="the packages are all; do not lock what they ask for")
    parser.add_argument("--upgrade", action="store_true", help="forget the versions of the present lock")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        constraints = pathlib.Path(folder, "constraints.txt")
        is_kept = options.lock.exists() and not options.upgrade and not options.complete
        constraints.write_text(pins(options.lock) if is_kept else "", encoding="utf-8")
        hashes: dict[str, list[str]] = {}
        needed: dict[str, list[str]] = {}
        for version in PYTHON_VERSIONS:
            for package in resolve(options.requirements, version, constraints, ["--no-deps"] if options.complete else []):
                pin = f"{package['name']}=={package['version']}"
                needed.setdefault(pin, []).append(version)
                known = hashes.setdefault(pin, [])
                known += [wheel["hashes"]["sha256"] for wheel in package["wheels"] if wheel["hashes"]["sha256"] not in known]
            # What one version chose, the next one takes, too.
            constraints.write_text("".join(f"{pin}\n" for pin in needed), encoding="utf-8")
    with open(options.lock, "w", encoding="utf-8") as file:
        file.write(f"# Made by tools/build/lock_requirements.py for CPython {', '.join(PYTHON_VERSIONS)} on x86-64 Linux. Do not edit by hand.\n")
        for pin in sorted(hashes):
            file.write(pin + marker(needed[pin]) + "".join(f" --hash=sha256:{digest}" for digest in hashes[pin]) + "\n")


if __name__ == "__main__":
    main()
