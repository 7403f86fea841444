"""Acceptance 5: large bodies in little memory; memory that does not grow with the number of rows."""

import os
import pathlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq

from harness import FastWeb, Trials, peak_of, require, summary_of, temporary_folder, write_url_lines
from hostile_test import png  # Of tests/integration.

MEMORY_MB, PROGRAM_MB = 256, 128
NUM_ROUTES = 1_000
ROWS_OF_A_GROUP = 10_000


def large_bodies_stay_within_the_memory(trials: Trials) -> None:
    """600 bodies of 4 MB, some of them slow, under --memory 256MB: all rows, and at most 128 MB of the program itself beside the 256."""
    num_rows = trials.count(200, 600)

    def fetch() -> dict:
        with temporary_folder() as folder:
            (folder / "a.png").write_bytes(png(64, 64) + os.urandom(4_000_000))
            routes = {f"/{i}": {"file": "a.png", "trouble": "none" if i % 50 else "slow_drip", "bytes_per_second": 1_000_000} for i in range(num_rows)}
            with FastWeb(folder, routes) as web:
                table = write_url_lines(folder / "urls.jsonl", [f"http://127.0.0.1:{web.port}/{i}" for i in range(num_rows)])
                flags = ["--allow-private", f"127.0.0.1/32:{web.port}", "--memory", f"{MEMORY_MB}MB", "--timeout", "60", "--per-host", "1000"]
                # Who stalls ends here: 2.4 GB of loopback are some ten seconds.
                peak, seconds = peak_of("download", folder / "out", "--metadata", table, *flags, "--json-summary", folder / "summary.json", timeout=300)
            return {"peak_mb": round(peak), "seconds": round(seconds, 1), "rows_out": summary_of(folder / "summary.json", "download")["rows_out"]}

    figures = trials.trial(f"{num_rows} bodies", fetch)
    trials.figures.update(rows=num_rows, **figures)
    require(figures["rows_out"] == num_rows, "rows were lost", figures)
    require(figures["peak_mb"] <= MEMORY_MB + PROGRAM_MB + trials.slack_mb, "peak resident (MB)", figures)


def write_url_groups(path: pathlib.Path, port: int, num_rows: int) -> pathlib.Path:
    """A Parquet table of URLs, the same ones again and again."""
    group = pa.table({"URL": [f"http://127.0.0.1:{port}/{i % NUM_ROUTES}" for i in range(ROWS_OF_A_GROUP)], "TEXT": ["a picture"] * ROWS_OF_A_GROUP})
    with pq.ParquetWriter(path, group.schema) as writer:
        for first in range(0, num_rows, ROWS_OF_A_GROUP):
            writer.write_table(group.slice(0, num_rows - first))
    return path


def many_rows_take_no_more_memory(trials: Trials) -> None:
    """Peaks of downloads of 10,000 and 100,000 rows; of 1,000,000 as well in the full form. Each is done once over all starts."""
    counts = [10_000, 100_000] + ([1_000_000] if trials.is_full else [])

    def fetch(num_rows: int) -> dict:
        with temporary_folder() as folder:
            (folder / "a.png").write_bytes(png(64, 64))
            with FastWeb(folder, {f"/{i}": {"file": "a.png"} for i in range(NUM_ROUTES)}) as web:
                flags = ["--allow-private", f"127.0.0.1/32:{web.port}", "--memory", f"{MEMORY_MB}MB", "--per-host", "1000", "--rows-per-file", "500"]
                table = write_url_groups(folder / "urls.parquet", web.port, num_rows)
                peak, seconds = peak_of("download", folder / "out", "--metadata", table, *flags, "--json-summary", folder / "summary.json", timeout=3600)
            rows_out = summary_of(folder / "summary.json", "download")["rows_out"]
            shutil.rmtree(folder / "out")
        require(rows_out == num_rows, "rows were lost (rows, out)", num_rows, rows_out)
        return {"peak_mb": round(peak, 1), "seconds": round(seconds, 1)}

    peaks = {}
    for num_rows in counts:
        figures = trials.trial(f"{num_rows} rows", lambda: fetch(num_rows))
        peaks[num_rows] = figures["peak_mb"]
        trials.figures[f"{num_rows} rows"] = figures
    few, many = peaks[counts[0]], peaks[counts[-1]]
    require(many <= 1.1 * few + 16 + trials.slack_mb, "the peak grew with the rows (MB of few, of many)", few, many)


CHECKS = [("memory.large_bodies", large_bodies_stay_within_the_memory), ("memory.flat", many_rows_take_no_more_memory)]
