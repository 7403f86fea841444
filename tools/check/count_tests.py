#!/usr/bin/env python3
"""Prints "tests failures skipped" of a GoogleTest JSON report. usage: count_tests.py REPORT.json"""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    report = json.load(file)
cases = [case for suite in report["testsuites"] for case in suite["testsuite"]]
skipped = sum(case.get("result") == "SKIPPED" for case in cases)
print(report["tests"], report["failures"], skipped)
