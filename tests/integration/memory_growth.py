#!/usr/bin/env python3
"""Peak memory of download and process must not grow with the number of rows (docs/ingest.md holds the figures).

usage: memory_growth.py [FEW MANY]     2,000 and 20,000 rows; too long for the test run. Exits 1 when MANY rows need more than
                                       1.1 times what FEW rows need + 16 MB.
"""

import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, require

FEW, MANY = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (2000, 20000)
MB = 1e6


def peak_mb(*arguments: str) -> float:
    """Runs the program; its largest resident size in MB."""
    process = subprocess.Popen([str(PROGRAM), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    require(os.waitstatus_to_exitcode(status) == 0, "the job failed:", *arguments)
    return usage.ru_maxrss * 1024 / MB


def write_repeated(table: pa.Table, num_rows: int, path: str) -> str:
    copies = -(-num_rows // len(table))
    pq.write_table(pa.concat_tables([table] * copies).slice(0, num_rows), path)
    return path


def report(job: str, few: float, many: float) -> bool:
    bound = 1.1 * few + 16
    print(f"{job}: {few:.0f} MB at {FEW:,} rows, {many:.0f} MB at {MANY:,} (bound {bound:.0f})", flush=True)
    return many <= bound


def main() -> int:
    peaks = {"download": [], "process": []}
    with Workbench(1870) as bench, LoopbackWeb(bench.path("corpus")) as web:
        urls = pq.read_table(bench.write_url_table(web.port))
        for num_rows in (FEW, MANY):
            rows = write_repeated(urls, num_rows, bench.path(f"urls-{num_rows}.parquet"))
            images, latents = bench.path(f"images-{num_rows}"), bench.path(f"latents-{num_rows}")
            common = ["--rows-per-file", "500"]
            peaks["download"].append(peak_mb("download", images, "--metadata", rows, "--allow-private", f"127.0.0.1/32:{web.port}", *common))
            peaks["process"].append(peak_mb("process", images, latents, "--model", bench.model, "--resolution", "64", *common))
            shutil.rmtree(latents)
    is_good = [report(job, *values) for job, values in peaks.items()]
    return 0 if all(is_good) else 1


if __name__ == "__main__":
    sys.exit(main())
