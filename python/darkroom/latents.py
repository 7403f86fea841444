"""Stored latents as Arrow, NumPy or torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from darkroom.extension import native

if TYPE_CHECKING:
    import torch

_ALL = 2**63 - 1


def _run_of(rows: slice | range | None) -> tuple[int, int]:
    """First row and number of rows."""
    if rows is None:
        return 0, _ALL
    start, stop, step = rows.start or 0, rows.stop, rows.step
    if step not in (None, 1) or start < 0 or (stop is not None and stop < 0):
        raise ValueError(f"rows must be one run of rows from 0 on, such as slice(100, 200), got: {rows}")
    return start, _ALL if stop is None else max(0, stop - start)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_fixed_size_list(kind) or _varies_in_length(kind)


def _varies_in_length(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view))


def _holds_whole_numbers(kind: pa.DataType) -> bool:
    return _holds_whole_numbers(kind.value_type) if _is_list(kind) else pa.types.is_integer(kind)


def _as_numpy(values: pa.Array) -> np.ndarray:
    """Arrow would make float64 of whole numbers with a null, which lacks the last digits of large ones."""
    if _holds_whole_numbers(values.type) and _first_null(values) is not None:
        return np.fromiter(values.to_pylist(), dtype=object, count=len(values))
    if pa.types.is_fixed_size_list(values.type) and pa.types.is_primitive(values.type.value_type) and values.null_count == 0:
        return values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), values.type.list_size)
    return values.to_numpy(zero_copy_only=False)


def _has_null(values: pa.Array) -> bool:
    return values.null_count > 0 or (_is_list(values.type) and _has_null(values.flatten()))


def _is_or_has_none(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_is_or_has_none, value)))


def _first_null(values: pa.Array) -> int | None:
    """The first row of whole numbers, or of lists of them, that is null or has one."""
    return next(row for row, value in enumerate(values.to_pylist()) if _is_or_has_none(value)) if _has_null(values) else None


def _first_beyond_int64(numbers: np.ndarray) -> int | None:
    """The first row with a number that torch's int64 cannot hold."""
    if numbers.dtype != np.uint64:
        return None
    places = np.argwhere(numbers > np.iinfo(np.int64).max)
    return int(places[0][0]) if len(places) else None


class LatentsReader:
    """Rows of a latents dataset, in the order in which they are stored. Each loop over it reads them anew; each loop belongs to one thread.

    Iterated, it gives pyarrow record batches, whose columns are those of the files.
    """

    def __init__(self, uri: str | os.PathLike[str], columns: Sequence[str] | None = None, rows: slice | range | None = None, *,
                 batch_rows: int = 256) -> None:
        self._first, self._count = _run_of(rows)
        self._uri, self._columns, self._batch_rows = os.fspath(uri), list(columns or []), batch_rows

    def _batches(self) -> Iterator[Any]:
        rows = native.DatasetRows(self._uri, self._first, self._count, self._columns, self._batch_rows)
        while (batch := rows.next()) is not None:
            yield batch

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (pa.record_batch(batch) for batch in self._batches())

    def to_numpy(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Each batch as {column: array}: tensors as read-only float16 or float32 [N, ...] over the batch's own memory, token ids as
        [N, 77], text as arrays of objects. A batch in which a column of whole numbers, or of lists of them, has a null gives that
        column as objects, too, with None in the null's place: floats would lose digits. `shapes` gives the
        shape of a row of columns that do not say it (mosaicml's bytes)."""
        for batch in self._batches():
            rows = pa.record_batch(batch)
            yield {name: batch.numpy_tensor(name, list(shapes[name]) if shapes and name in shapes else [])
                   if batch.is_tensor(name) or (shapes and name in shapes) else _as_numpy(rows.column(name))
                   for name in rows.schema.names}

    def to_torch(self, shapes: Mapping[str, Sequence[int]] | None = None) -> "Iterator[dict[str, torch.Tensor]]":
        """Each batch as {column: tensor}: the columns of tensors, over the batch's own memory (writing into one changes that), and those of
        whole numbers and of lists of them of one fixed length, as int64. Other columns are left out, lists that vary in length among them.
        Errors: ValueError where a column of whole numbers has a null, or a number above 2**63 - 1: no tensor of int64 holds these; leave the
        column out, or take to_numpy(). Needs the Python package torch, with the CUDA libraries that it asks for."""
        import torch

        first_row = self._first
        for batch in self._batches():
            rows, tensors = pa.record_batch(batch), {}
            for name in rows.schema.names:
                if batch.is_tensor(name) or (shapes and name in shapes):
                    tensors[name] = batch.torch_tensor(name, list(shapes[name]) if shapes and name in shapes else [])
                    continue
                column = rows.column(name)
                if not _holds_whole_numbers(column.type) or _varies_in_length(column.type):
                    continue
                if (null := _first_null(column)) is not None:
                    raise ValueError(f"a tensor cannot hold a null; leave the column out (columns=) or use to_numpy() (column, row): {name}, {first_row + null}")
                numbers = _as_numpy(column)
                if (large := _first_beyond_int64(numbers)) is not None:
                    raise ValueError(f"a tensor of int64 cannot hold a number above 2**63 - 1; leave the column out (columns=) or use to_numpy() (column, row): {name}, {first_row + large}")
                tensors[name] = torch.from_numpy(numbers.astype(np.int64))
            first_row += rows.num_rows
            yield tensors


def read_latents(uri: str | os.PathLike[str], columns: Sequence[str] | None = None, rows: slice | range | None = None, *,
                 batch_rows: int = 256) -> LatentsReader:
    """The rows of a latents dataset: a folder, a file or a pattern; here, on s3://, hf:// or https://; of any dialect that training reads.

    `columns`: only these; None: all. `rows`: a run of rows, counted over all files. At most `batch_rows` rows a batch.
    """
    return LatentsReader(uri, columns, rows, batch_rows=batch_rows)
