#!/usr/bin/env python3
"""The reference template's preprocessing as it is written, with toys for its networks: ray.data reads, transforms in tasks, encodes in actors
and writes. Runs in .venv-ray.

    ray_data_template.py INPUT OUTPUT       on the cluster of RAY_ADDRESS
"""

import os
import sys
import time

import ray

BATCH_ROWS = 4
BLOCK_BYTES = 1 << 20  # The nodes' object stores are small: with blocks of the usual 128 MB one task would wait for the other.
TRANSFORM_SECONDS = 0.1  # Of a batch.
ENCODE_SECONDS = 0.15


def transform(batch: dict) -> dict:
    time.sleep(TRANSFORM_SECONDS)
    return {"key": batch["key"], "size": [len(image) for image in batch["image"]]}


class Encode:
    def __call__(self, batch: dict) -> dict:
        time.sleep(ENCODE_SECONDS)
        return batch


def main() -> None:
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    ray.data.DataContext.get_current().target_max_block_size = BLOCK_BYTES
    rows = ray.data.read_parquet(sys.argv[1], columns=["key", "image"], override_num_blocks=len(os.listdir(sys.argv[1])))
    rows = rows.map_batches(transform, batch_size=BATCH_ROWS, num_cpus=0.5)
    rows = rows.map_batches(Encode, batch_size=BATCH_ROWS, compute=ray.data.ActorPoolStrategy(size=2), num_cpus=0.25, resources={"encoder": 1})
    rows.write_parquet(sys.argv[2])


main()
