#!/usr/bin/env python3
"""The acceptance of the data plane, of training, and of the endpoint and what is bought and compared (docs/testing.md): each check in a short form, or whole
with --full.

usage: acceptance.py [--full] [--jobs N] [--results FILE] [CHECK...]    checks: their names, or the first words of them; without one all
Results go to build/acceptance/short.json or full.json. A run that was cut goes on where it was; what passed is not run again
until the program, its decoder or the check's script changes. Exits 1 when a check failed. A check that this machine or this program cannot do is skipped, with its reason.
"""

import argparse
import importlib
import os
import pathlib
import sys
import time

from harness import PROGRAM, ROOT, Ledger, Skipped, Trials, run_checks, write_report

# The longest first, since some run at a time.
MODULES = ["s3_faults", "disk_faults", "kills", "chain", "first_contact", "rank_faults", "hostile_web", "memory", "many_parts", "outage", "addresses", "planning", "radosgw", "decoder", "formats", "secrets_kept", "manners",
           "training_memory", "tuning", "endpoint", "compare_verdicts", "plan_prediction"]
# Their own short forms are no part of this one. Why:
FULL_ONLY = {"compare_verdicts": "it trains for minutes; by itself: tests/acceptance/compare_verdicts.py; verdicts on planted models in every test run: tests/integration/compare_test.py",
             "plan_prediction": "its times want the machine alone; by itself: tests/acceptance/plan_prediction.py; what a plan makes of a run in every test run: tests/integration/plan_test.py"}


def left_out(reason: str):
    def check(unused: Trials) -> None:
        raise Skipped(f"only with --full: {reason}")

    return check


def checks_of(module: str, is_full: bool) -> list:
    checks = importlib.import_module(module).CHECKS
    return checks if is_full or module not in FULL_ONLY else [(name, left_out(FULL_ONLY[module])) for name, _ in checks]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--jobs", type=int, help="checks at a time; auto: 3, and 1 with --full, whose rates want the machine alone")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--no-skips", action="store_true", help="what cannot be judged here fails")
    parser.add_argument("checks", nargs="*")
    arguments = parser.parse_args()
    if not PROGRAM.exists():
        print("acceptance: build/darkroom is not there; run 'make build'")
        return 1
    checks = [check for name in MODULES for check in checks_of(name, arguments.full)]
    chosen = [check for check in checks if not arguments.checks or any(check[0].startswith(word) for word in arguments.checks)]
    if not chosen:
        print("acceptance: no such check; there are", ", ".join(name for name, _ in checks))
        return 2
    results = arguments.results or ROOT / "build" / "acceptance" / ("full.json" if arguments.full else "short.json")
    if "DARKROOM_TEST_REPORT" in os.environ:  # A part of `make test`, which takes nothing for granted.
        results.unlink(missing_ok=True)
    ledger = Ledger(results, arguments.full)
    begin = time.monotonic()
    report = run_checks(chosen, ledger, arguments.full, arguments.jobs or (1 if arguments.full else 3))
    write_report(report)
    for name, reason in report["skipped"]:
        print(f"NOT JUDGED: {name}: {reason}")
    print(f"{', '.join(f'{len(names)} {state}' for state, names in report.items())}, {time.monotonic() - begin:.0f} s; the results are in {ledger.path}")
    return 1 if report["failed"] or (arguments.no_skips and report["skipped"]) else 0


if __name__ == "__main__":
    sys.exit(main())
