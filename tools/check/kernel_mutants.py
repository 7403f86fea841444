#!/usr/bin/env python3
"""Plants small faults in the plugin's kernels, one at a time, and counts how many the emulation's test notices, built with AddressSanitizer.

usage: kernel_mutants.py [--seed N] [--count N] [--shapes N] [--retry-survivors] [--list]
Works as mutants.py does, with its functions, in its copy of the sources. Exits 1 below the target share.
"""

import argparse
import os
import resource
import sys

import mutants

MODULE = "kernel_emulation"
TARGET_SHARE = 0.95
LEAST = 40  # Faults that a whole run takes.
BUILD = mutants.TREE / "build" / "asan-ubsan"
# As the preset asan-ubsan of CMakePresets.json.
SETTINGS = ("-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1", "-DDARKROOM_SANITIZE=address,undefined",
            "-DDARKROOM_TORCH=OFF", "-DDARKROOM_ASSERTIONS=ON")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help=f"faults that change code (default {mutants.KERNELS[MODULE].share}, of which {LEAST} must be there)")
    parser.add_argument("--shapes", type=int, default=40, help="random shapes a test tries; `make test` tries 500 (default 40)")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("JOBS", os.cpu_count() or 1)))
    parser.add_argument("--retry-survivors", action="store_true", help="plant them again, even where nothing changed")
    parser.add_argument("--list", action="store_true", help="print what the seed picks, plant nothing")
    options = parser.parse_args()
    count = options.count or mutants.KERNELS[MODULE].share
    if options.list:
        for fault in mutants.candidates(mutants.ROOT, MODULE, options.seed)[:count]:
            print(fault)
        return
    mutants.HOME.mkdir(parents=True, exist_ok=True)
    mutants.copy_tree()
    # A sanitizer's shadow is address space, so that must not be bounded.
    bench = mutants.Bench([], options.jobs, BUILD, SETTINGS, resource.RLIM_INFINITY)
    bench.environment["DARKROOM_SHAPES"] = str(options.shapes)
    record = mutants.Record(mutants.HOME / f"kernels-seed-{options.seed}.jsonl")
    found = {MODULE: mutants.mutate(bench, MODULE, count, options.seed, record, options.retry_survivors)}
    sys.exit(0 if mutants.report(found, TARGET_SHARE, 1 if options.count else LEAST) else 1)


if __name__ == "__main__":
    main()
