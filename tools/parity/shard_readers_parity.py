#!/usr/bin/env python3
"""Reads shards of format version 2 with other packages and compares every value with what was written.

  shard_readers_parity.py --program build/release/shard_files

The program (tests/parity/shard_files.cpp) writes the rows of tests/support/shard_rows.h; they are worked out again here. pyarrow reads
them in three ways, DuckDB and pandas in one. Exits 1 on a difference.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

NUM_ROWS = 1500
MEAN_SHAPE = (4, 32, 32)
STATES_SHAPE = (77, 16)
NUM_TENSORS = 300


def image_of(row: int) -> bytes | None:
    if row % 7 == 3:
        return None
    size = 0 if row % 7 == 5 else row * 397 % 9000
    i = np.arange(size, dtype=np.int64)
    return ((row * 31 + i * 7 + i // 256) % 256).astype(np.uint8).tobytes()


def row_of(row: int) -> tuple:
    return (image_of(row), f"{row:012}", None if row % 5 == 0 else f"caption {row} é", None if row % 11 == 1 else row * 3)


def tensors_of(name: str, shape: tuple) -> np.ndarray:
    row = np.arange(NUM_TENSORS)[:, None]
    i = np.arange(int(np.prod(shape)))[None, :]
    values = ((row + i) % 2048).astype(np.float16) if name == "mean" else (row + i / 8).astype(np.float32)
    return values.reshape(NUM_TENSORS, *shape)


def rows_by_pyarrow(path: Path) -> list[tuple]:
    table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
    table.validate(full=True)
    return [tuple(row.values()) for row in table.to_pylist()]


def rows_by_dataset(path: Path) -> list[tuple]:
    return [tuple(row.values()) for row in pyarrow.dataset.dataset(path).to_table().to_pylist()]


def rows_by_groups(path: Path) -> list[tuple]:
    file = pyarrow.parquet.ParquetFile(path)
    assert file.num_row_groups > 1
    return [tuple(row.values()) for group in range(file.num_row_groups) for row in file.read_row_group(group).to_pylist()]


def rows_by_duckdb(path: Path) -> list[tuple]:
    import duckdb

    return duckdb.sql(f"SELECT image, key, caption, width FROM read_parquet('{path}')").fetchall()


def rows_by_pandas(path: Path) -> list[tuple]:
    import pandas

    frame = pandas.read_parquet(path)
    clean = lambda value: None if value is None or value != value else value
    return [tuple(clean(value) for value in row) for row in frame[["image", "key", "caption", "width"]].itertuples(index=False)]


def tensors_by_pyarrow(path: Path) -> dict[str, np.ndarray]:
    table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
    return {name: table[name].combine_chunks().to_numpy_ndarray() for name in ("mean", "states")}


def tensors_by_duckdb(path: Path) -> dict[str, np.ndarray]:
    import duckdb

    rows = duckdb.sql(f"SELECT mean, states FROM read_parquet('{path}')").fetchall()
    shapes = (("mean", MEAN_SHAPE, np.float16), ("states", STATES_SHAPE, np.float32))
    return {name: np.array([row[column] for row in rows]).astype(kind).reshape(-1, *shape) for column, (name, shape, kind) in enumerate(shapes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    readers = {"pyarrow": rows_by_pyarrow, "pyarrow.dataset": rows_by_dataset, "pyarrow by row groups": rows_by_groups, "duckdb": rows_by_duckdb,
               "pandas": rows_by_pandas}
    tensor_readers = {"pyarrow": tensors_by_pyarrow, "duckdb": tensors_by_duckdb}
    want = [row_of(row) for row in range(NUM_ROWS)]
    num_different = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder], check=True)
        for name, read in readers.items():
            got = read(Path(folder) / "images.parquet")
            different = abs(len(got) - NUM_ROWS) + sum(a != b for a, b in zip(got, want))
            print(f"{name}: {len(got)} rows with images, {different} differ")
            num_different += different
        for name, read in tensor_readers.items():
            got = read(Path(folder) / "tensors.parquet")
            for column, shape in (("mean", MEAN_SHAPE), ("states", STATES_SHAPE)):
                equal = np.array_equal(got[column], tensors_of(column, shape))
                print(f"{name}: {len(got[column])} rows of tensors {column}, {'equal' if equal else 'DIFFERENT'}")
                num_different += not equal
    print(f"pyarrow {pyarrow.__version__}; read by {', '.join(readers)}: {num_different} differences")
    sys.exit(1 if num_different else 0)


if __name__ == "__main__":
    main()
