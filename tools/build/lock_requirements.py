#!/usr/bin/env python3
"""Writes a hash-pinned lock file from the report of `pip install --dry-run --ignore-installed --report FILE PACKAGE==VERSION ...`.

usage: lock_requirements.py REPORT.json LOCK.txt
Install with `pip install --no-deps --require-hashes -r LOCK.txt`: the list is complete, nothing else is resolved.
"""

import json
import sys


def main() -> None:
    report_path, lock_path = sys.argv[1:]
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    lines = []
    for package in report["install"]:
        name = package["metadata"]["name"].lower()
        version = package["metadata"]["version"]
        digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    with open(lock_path, "w", encoding="utf-8") as file:
        file.write("# Made by tools/build/lock_requirements.py for CPython 3.11 on x86-64 Linux. Do not edit by hand.\n")
        file.writelines(sorted(lines))


if __name__ == "__main__":
    main()
