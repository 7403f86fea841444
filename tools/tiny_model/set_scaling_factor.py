#!/usr/bin/env python3
"""Sets scaling_factor of a VAE's config.json to 1 / standard deviation of its latents over a dataset of moments, as SD's 0.18215 was made.

usage: set_scaling_factor.py MOMENTS_DATASET VAE_CONFIG.json
"""

import json
import sys

import numpy as np
import pyarrow.parquet as pq


def main() -> None:
    dataset, config_path = sys.argv[1:]
    table = pq.read_table(dataset)
    name = next(column for column in table.column_names if column.startswith("image_moments_"))
    column = table[name].combine_chunks()
    moments = column.storage.flatten().to_numpy(zero_copy_only=False).astype(np.float64).reshape(len(column), 2, -1)
    variance = np.mean(moments[:, 0] ** 2) - np.mean(moments[:, 0]) ** 2 + np.mean(np.exp(moments[:, 1]))
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    config["scaling_factor"] = float(f"{1.0 / np.sqrt(variance):.5g}")
    with open(config_path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    print(f"scaling_factor {config['scaling_factor']}")


if __name__ == "__main__":
    main()
