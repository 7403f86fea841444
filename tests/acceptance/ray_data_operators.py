#!/usr/bin/env python3
"""The operators of `import darkroom` in Ray Data, as docs/python.md has them. Runs in .venv-ray, on the cluster of RAY_ADDRESS.

    ray_data_operators.py IMAGES MODEL SIDE OUTPUT       writes OUTPUT/encode and OUTPUT/both, tables of latents
"""

import os
import sys

import ray

import darkroom

IMAGES, MODEL, SIDE, OUTPUT = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
SHARE = {"num_cpus": 0.25}


def main() -> None:
    ray.init(log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.read_parquet(IMAGES)
    actors = {"batch_format": "pyarrow", "batch_size": 24, "compute": ray.data.ActorPoolStrategy(size=2), **SHARE}
    rows.map_batches(darkroom.Encode, fn_constructor_args=[MODEL, SIDE], **actors).write_parquet(f"{OUTPUT}/encode")
    squares = rows.map_batches(darkroom.Transform(SIDE), batch_format="pyarrow", batch_size=24, **SHARE)
    squares.map_batches(darkroom.Encode, fn_constructor_args=[MODEL, SIDE], **actors).write_parquet(f"{OUTPUT}/both")
    ray.shutdown()


main()
