#!/usr/bin/env python3
"""Times every parser of foreign text on worst-case inputs of 16 kB to 1 MB (URLs: 1 kB to 16 kB, because longer ones are refused) and fits how
the time grows.

  tools/check/linear_parsers.py [--program build/release/linear_parsers] [--build]

The inputs are in benchmarks/linear_parsers.cpp. The exponent is the slope of a straight line through the logarithms of size and
CPU time. Exits 1 when one is above 1.1. Times are of one thread's CPU, the least of five rounds, but a machine that does much else
still blurs them, so an input above the limit is measured again, at most twice.
"""
import argparse
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT = 1.1
RETRIES = 2


def measure(program: Path, inputs: list[str]) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """(parser, input) -> (bytes, seconds), by size; of all inputs when none is named."""
    times: dict[tuple[str, str], list[tuple[int, float]]] = {}
    with subprocess.Popen([program, ROOT / "models/tiny/tokenizer", *inputs], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            parser, name, size, seconds = line.rstrip("\n").split("\t")
            times.setdefault((parser, name), []).append((int(size), float(seconds)))
    if process.returncode != 0 or not times:
        sys.exit(f"{program} ended with {process.returncode}")
    return times


def exponent(points: list[tuple[int, float]]) -> float:
    xs = [math.log(size) for size, _ in points]
    ys = [math.log(seconds) for _, seconds in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys)) / sum((x - x_mean) ** 2 for x in xs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/linear_parsers")
    parser.add_argument("--build", action="store_true", help="build the program first")
    arguments = parser.parse_args()
    if arguments.build:
        subprocess.run([ROOT / "tools/build/build.sh", "release", "linear_parsers"], check=True)
    best = measure(arguments.program, [])
    for _ in range(RETRIES):
        steep = sorted({name for (_, name), points in best.items() if exponent(points) > LIMIT})
        if not steep:
            break
        again = measure(arguments.program, steep)
        for key, points in again.items():  # The least time of each size: what else the machine does only adds.
            best[key] = [min(old, new, key=lambda point: point[1]) for old, new in zip(best[key], points)]
    too_steep = 0
    print(f"{'parser':20} {'input':42} {'most, ms':>9} {'exponent':>9}")
    for (name, case), points in best.items():
        slope = exponent(points)
        too_steep += slope > LIMIT
        print(f"{name:20} {case:42} {points[-1][1] * 1e3:9.2f} {slope:9.3f}{'  above ' + str(LIMIT) if slope > LIMIT else ''}")
    print(f"{len(best)} inputs, {too_steep} above {LIMIT}; the largest exponent is {max(map(exponent, best.values())):.3f}")
    sys.exit(1 if too_steep else 0)


if __name__ == "__main__":
    main()
