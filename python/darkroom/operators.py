"""`darkroom process` as callables over Arrow tables: for ray.data's map_batches(batch_format="pyarrow"), or any other data flow."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from darkroom.extension import DECODER, native


class _Operator:
    """Hands rows to the C++ code and back by Arrow's C data interface, without a copy, and counts what became of them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._counts: dict[str, Any] = {"rows_in": 0, "rows_out": 0, "rows_by_error": {}}

    def __call__(self, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        batches, tally = self._native.apply(rows)
        with self._lock:
            self._counts["rows_in"] += tally.rows_in
            self._counts["rows_out"] += tally.rows_out
            for code, number in tally.rows_by_error.items():
                self._counts["rows_by_error"][code] = self._counts["rows_by_error"].get(code, 0) + number
        made = [pa.record_batch(batch) for batch in batches]
        return made[0] if isinstance(rows, pa.RecordBatch) else pa.Table.from_batches(made)

    @property
    def counts(self) -> dict[str, Any]:
        """What became of the rows so far: rows_in, rows_out, and rows_by_error, those that were left out by their error code."""
        with self._lock:
            return {**self._counts, "rows_by_error": dict(self._counts["rows_by_error"])}

    def __reduce__(self) -> tuple:
        return _make, (type(self), self._settings)  # Another process opens its own.


def _make(kind: type, settings: dict[str, Any]) -> Any:
    return kind(**settings)


class Transform(_Operator):
    """Rows of an image dataset (key, caption, image) to squares of pixels: key, caption, width, height and pixels_R, uint8 [R, R, 3], which
    Encode takes: for machines without an encoder.

    Called with a pyarrow record batch or table, gives the same kind. As in `darkroom process`, a row that fails is left out and counted
    under its code (`counts`). Errors: darkroom.Error (failed_precondition) for a batch without the column `key`, or with a row in which it is
    null or empty. Pictures are decoded in a sandboxed process unless `sandbox` is False. Any number of threads may call it.
    """

    def __init__(self, resolution: int, *, resize: str = "bilinear", crop: str = "center", orientation: str = "ignore", seed: int = 0,
                 caption_column: str = "", keep_columns: Sequence[str] = (), sandbox: bool = True) -> None:
        super().__init__({"resolution": resolution, "resize": resize, "crop": crop, "orientation": orientation, "seed": seed,
                          "caption_column": caption_column, "keep_columns": tuple(keep_columns), "sandbox": sandbox})
        self._native = native.BatchTransformer(resolution, resize, crop, orientation, seed, caption_column, list(keep_columns),
                                               str(DECODER) if sandbox else "")


class Encode(_Operator):
    """Rows of an image dataset, or squares of Transform with the same arguments, to the rows of a latents dataset: columns, types and bytes
    of the parts that `darkroom process` with these flags writes of the same rows. The rows need a column `key`, which decides their draws;
    a batch in which one is null or empty is refused (darkroom.Error, failed_precondition).

    `batching`: "alone" (auto on the CPU): a row's bits depend on nothing but the row; "together" (auto on a GPU): `batch_size` rows in one
    call of the networks. `threads`: of torch inside an operation while a call lasts; they change bits. The rest is as in Transform.
    """

    def __init__(self, model: str | os.PathLike[str], resolution: int, *, resize: str = "bilinear", crop: str = "center",
                 orientation: str = "ignore", seed: int = 0, latents: str = "sample", text: str = "embeddings", dtype: str = "auto",
                 output_dialect: str = "darkroom", tokenizer_dialect: str = "hf", caption_column: str = "",
                 keep_columns: Sequence[str] = (), device: str = "cpu", precision: str = "auto", batching: str = "auto",
                 batch_size: int = 0, threads: int = 1, sandbox: bool = True) -> None:
        super().__init__({"model": os.fspath(model), "resolution": resolution, "resize": resize, "crop": crop, "orientation": orientation,
                          "seed": seed, "latents": latents, "text": text, "dtype": dtype, "output_dialect": output_dialect,
                          "tokenizer_dialect": tokenizer_dialect, "caption_column": caption_column, "keep_columns": tuple(keep_columns),
                          "device": device, "precision": precision, "batching": batching, "batch_size": batch_size, "threads": threads,
                          "sandbox": sandbox})
        options = native.EncodeOptions()
        options.model, options.seed = os.fspath(model), seed
        options.caption_column, options.keep_columns = caption_column, list(keep_columns)
        options.decoder_program = str(DECODER) if sandbox else ""
        options.transform(resolution, resize, crop, orientation)
        options.store(latents, text, dtype, output_dialect, tokenizer_dialect)
        options.work(batching, batch_size, threads)
        self._native = native.BatchEncoder(options, device, precision)
