#!/usr/bin/env python3
"""The same inputs, seed and flags give the same bytes: files for any number of workers, rows for any batch size, online as offline."""

import pyarrow.parquet as pq

from workbench import LoopbackWeb, Workbench, digests, main, read_losses, require, run


def shards_do_not_depend_on_workers() -> None:
    with Workbench(150) as bench, LoopbackWeb(bench.path("corpus")) as web:
        urls = bench.write_url_table(web.port)
        allow = f"127.0.0.1/32:{web.port}"
        for workers in (1, 2, 4):
            run("download", bench.path(f"images-{workers}"), "--metadata", urls, "--rows-per-file", "40", "--concurrency", str(workers), "--allow-private", allow)
            run("process", bench.path("images-1"), bench.path(f"latents-{workers}"), "--model", bench.model, "--resolution", "64", "--rows-per-file", "40",
                "--num-readers", str(workers), "--num-transformers", str(workers), "--num-encoders", str(workers))
        for kind in ("images", "latents"):
            want = digests(bench.path(f"{kind}-1"), "part-*.parquet")
            require(len(want) == 4, "parts", kind, len(want))
            for workers in (2, 4):
                require(digests(bench.path(f"{kind}-{workers}"), "part-*.parquet") == want, "shards depend on the number of workers", kind, workers)


def batch_sizes_change_no_row() -> None:
    with Workbench(70) as bench:
        images = bench.write_image_dataset("images", 70)
        for size in (1, 7, 64):
            run("process", images, bench.path(f"latents-{size}"), "--model", bench.model, "--resolution", "64", "--batch-size", str(size))
        want = pq.read_table(bench.path("latents-1"))
        require(want.num_rows == 70 and {"image_latents_64", "caption_embeddings"} <= set(want.column_names), "rows and columns", want.shape)
        for size in (7, 64):
            got = pq.read_table(bench.path(f"latents-{size}"))
            require(got.column_names == want.column_names, "batch size changes the columns", size)
            for name in want.column_names:
                require(got[name].equals(want[name]), "batch size changes a column:", name, size)


def online_equals_offline() -> None:
    with Workbench(96) as bench:
        images = bench.write_image_dataset("images", 48)
        run("process", images, bench.path("latents"), "--model", bench.model, "--resolution", "64")
        common = ["train", "recipes/tiny.toml", "--model", bench.model, "--deterministic", "--max-steps", "5", "--set", "batch.global=16", "--set", "samples.every_steps=0"]
        run(*common, "--data", bench.path("latents"), "--output", bench.path("offline"))
        run(*common, "--raw-data", images, "--output", bench.path("online"))
        require(read_losses(bench.path("online")) == read_losses(bench.path("offline")), "online and offline losses differ")
        pattern = "checkpoints/step-00000005/unet/*.safetensors"
        require(digests(bench.path("online"), pattern) == digests(bench.path("offline"), pattern), "online and offline weights differ")


if __name__ == "__main__":
    main([shards_do_not_depend_on_workers, batch_sizes_change_no_row, online_equals_offline])
