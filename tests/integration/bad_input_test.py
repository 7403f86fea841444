#!/usr/bin/env python3
"""Bad input: one clear message that says what to do, the right exit code, and nothing already committed is lost."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq

from workbench import Skipped, Workbench, digests, main, require, run

TRAIN_SETTINGS = ["--set", "batch.global=16", "--set", "checkpoint.every_steps=2", "--set", "samples.every_steps=0"]


def refused(arguments: list, exit_code: int, *words: str) -> None:
    """The program ends with `exit_code` and one error line that holds every word."""
    stderr = run(*arguments, expect=exit_code).stderr
    errors = [line for line in stderr.splitlines() if "error: " in line]
    require(len(errors) == 1, f"want one error line, got {len(errors)}:", stderr[-2000:])
    for word in words:
        require(re.search(word, errors[0]) is not None, f"the message lacks /{word}/:", errors[0])


class SmallDisk:
    """A tmpfs of `size`; skips the test where this user may not mount one."""

    def __init__(self, folder: str, size: str):
        self.folder = folder
        os.makedirs(folder)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            raise Skipped(f"no right to mount a small tmpfs here: {mounted.stderr.strip()}")

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.folder], check=True)

    def __enter__(self) -> "SmallDisk":
        return self

    def __exit__(self, *unused) -> None:
        subprocess.run(["umount", "-l", self.folder], check=True)


def process_arguments(bench: Workbench, images: str, out: str) -> list:
    return ["process", images, bench.path(out), "--model", bench.model, "--resolution", "64", "--rows-per-file", "20"]


def flags_are_refused_with_exit_code_2() -> None:
    refused(["download", "/tmp/nowhere", "--metadata", "x.parquet", "--no-such-flag"], 2, "no-such-flag")
    refused(["process", "a", "b", "--model", "c", "--accelerator-type", "A10G"], 2, "not built yet")
    refused(["serve"], 2, "which model")
    refused(["no-such-verb"], 2, "no-such-verb|subcommand")
    refused(["download", "/tmp/nowhere"], 2, "--metadata")
    refused(["download", "/tmp/nowhere", "--metadata", "x.parquet", "--where", "a >"], 2, "--where")
    refused(["download", "/tmp/nowhere", "--metadata", "x.parquet", "--retry-failed", "dnss"], 2, "--retry-failed", "dns")
    refused(["train", "recipes/tiny.toml", "--output", "/tmp/nowhere", "--set", "optimizer.lrr=1"], 2, "lrr", "optimizer.lr")
    with Workbench(1) as bench:
        sample = ["sample", "--model", bench.model, "--prompt", "x", "--output", bench.path("x.png")]
        refused([*sample, "--sampler", "no-such-sampler"], 2, "no-such-sampler", "dpmpp_2m_karras")
        refused([*sample, "--sampler", "lcm", "--steps", "51"], 2, "51")
        refused([*sample, "--guidance-rescale", "2"], 2, "rescale")
        refused([*sample, "--init-image", bench.path("missing.png")], 1, "missing.png")
        pathlib.Path(bench.path("words.png")).write_text("words")
        refused([*sample, "--init-image", bench.path("words.png")], 1, "words.png", "not_an_image")
        refused(["process", bench.write_image_dataset("images", 1), bench.path("latents"), "--model", bench.model, "--resolution", "65"], 2, "65")


def tables_that_cannot_be_read() -> None:
    with Workbench(12) as bench:
        urls = bench.write_url_table(1)
        refused(["download", bench.path("a"), "--metadata", urls, "--url-column", "link"], 1, "link", "URL")
        refused(["download", bench.path("b"), "--metadata", bench.path("missing")], 1, "missing")
        truncated = bench.path("truncated.parquet")
        pathlib.Path(truncated).write_bytes(pathlib.Path(urls).read_bytes()[:-40])
        refused(["download", bench.path("c"), "--metadata", truncated], 1, "truncated.parquet")
        refused(process_arguments(bench, bench.path("nothing-here"), "d"), 1, "nothing-here")
        os.makedirs(bench.path("empty"))
        refused(process_arguments(bench, bench.path("empty"), "e"), 1, "empty")


def another_jobs_folder_is_refused_with_the_differing_field() -> None:
    with Workbench(40) as bench:
        images = bench.write_image_dataset("images", 40)
        run(*process_arguments(bench, images, "latents"))
        before = digests(bench.path("latents"), "**/*")
        refused([*process_arguments(bench, images, "latents"), "--seed", "7"], 1, "seed", "7")
        require(digests(bench.path("latents"), "part-*") == {k: v for k, v in before.items() if k.startswith("part-")}, "the first job's shards changed")


def a_full_disk_loses_nothing_that_was_committed() -> None:
    with Workbench(200) as bench:
        images = bench.write_image_dataset("images", 200)
        run(*process_arguments(bench, images, "reference"))
        with SmallDisk(bench.path("small"), "2m") as disk:
            refused(process_arguments(bench, images, "small/latents"), 1, "space|full")
            survivors = digests(bench.path("small/latents"), "part-*.parquet")
            want = digests(bench.path("reference"), "part-*.parquet")
            require(0 < len(survivors) < len(want), "shards on the full disk:", len(survivors))
            require(all(want[name] == digest for name, digest in survivors.items()), "a shard on the full disk is damaged")
            disk.remount("size=64m")
            run(*process_arguments(bench, images, "small/latents"))
            require(digests(bench.path("small/latents"), "part-*.parquet") == want, "the rerun differs from an undisturbed run")


def a_read_only_output_is_refused() -> None:
    with Workbench(12) as bench:
        images = bench.write_image_dataset("images", 12)
        with SmallDisk(bench.path("small"), "8m") as disk:
            disk.remount("ro")
            refused(process_arguments(bench, images, "small/latents"), 1, "[Rr]ead-only|writ", "small/latents")


def nan_latents_stop_training_with_shard_and_row() -> None:
    with Workbench(40) as bench:
        images = bench.write_image_dataset("images", 40)
        run(*process_arguments(bench, images, "latents"))
        part = pathlib.Path(bench.path("latents")) / "part-000001.parquet"
        table = pq.read_table(part)
        name = "image_latents_64"
        latents = table[name].combine_chunks()
        values = latents.storage.flatten().to_numpy(zero_copy_only=False).copy()
        values[7 * 256 + 3] = float("nan")
        storage = pa.FixedSizeListArray.from_arrays(pa.array(values, latents.type.storage_type.value_type), 256)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), pa.ExtensionArray.from_storage(latents.type, storage))
        pq.write_table(table, part)
        refused(["train", "recipes/tiny.toml", "--data", bench.path("latents"), "--model", bench.model, "--output", bench.path("run"), "--max-steps", "4", *TRAIN_SETTINGS],
                1, "part-000001.parquet", r"\b7\b", "NaN|nan|finite")


def process_counts_rows_of_a_broken_model() -> None:
    """A VAE with a NaN weight: every row is counted as nan_latents, none is written, none is silently wrong."""
    with Workbench(12) as bench:
        images = bench.write_image_dataset("images", 12)
        model = pathlib.Path(bench.path("model"))
        shutil.copytree(bench.model, model)
        weights = model / "vae" / "diffusion_pytorch_model.safetensors"
        raw = bytearray(weights.read_bytes())
        header_bytes = int.from_bytes(raw[:8], "little")
        tensors = json.loads(raw[8 : 8 + header_bytes])
        tensor = tensors["encoder.conv_in.bias"]
        nan = {"F16": b"\x00\x7e", "F32": b"\x00\x00\xc0\x7f"}[tensor["dtype"]]
        at = 8 + header_bytes + tensor["data_offsets"][0]
        raw[at : at + len(nan)] = nan
        weights.write_bytes(raw)
        summary = bench.path("summary.json")
        arguments = ["process", images, bench.path("latents"), "--model", model, "--resolution", "64", "--json-summary", summary]
        run(*arguments, expect=3)
        stage = json.loads(pathlib.Path(summary).read_text())["process"]
        require(stage["rows_by_error"] == {"nan_latents": 12} and stage["rows_out"] == 0, "counts", stage)


def poison_rows_cost_only_themselves() -> None:
    with Workbench(24) as bench:
        images = bench.write_image_dataset("images", 24, bad_rows={3: None, 5: b"\xff\xd8\xff\xe0 no picture", 9: b"", 20: b"GIF89a" + bytes(60)})
        summary = bench.path("summary.json")
        run(*process_arguments(bench, images, "latents"), "--json-summary", summary)
        stage = json.loads(pathlib.Path(summary).read_text())["process"]
        require(stage["rows_in"] == 24 and stage["rows_out"] == 20, "rows", stage)
        require(sum(stage["rows_by_error"].values()) == 4, "errors", stage)


def a_flipped_bit_in_a_checkpoint_is_noticed() -> None:
    with Workbench(32) as bench:
        images = bench.write_image_dataset("images", 32)
        run(*process_arguments(bench, images, "latents"))
        common = ["train", "recipes/tiny.toml", "--data", bench.path("latents"), "--model", bench.model, "--output", bench.path("run"), *TRAIN_SETTINGS]
        run(*common, "--max-steps", "4")
        newest = pathlib.Path(bench.path("run")) / "checkpoints" / "step-00000004"
        weights = next((newest / "unet").glob("*.safetensors"))
        raw = bytearray(weights.read_bytes())
        raw[len(raw) // 2] ^= 1
        weights.write_bytes(raw)
        refused([*common, "--max-steps", "6", "--resume", newest], 1, "step-00000004")
        refused(["sample", "--model", newest, "--weights", "unet", "--prompt", "a", "--steps", "2", "--output", bench.path("x.png")], 1, "step-00000004")
        done = run(*common, "--max-steps", "6")
        require("step-00000004" in done.stderr and "step-00000002" in done.stderr, "resume does not say what it took:", done.stderr[-1500:])


def a_config_for_another_model_is_refused() -> None:
    with Workbench(12) as bench:
        images = bench.write_image_dataset("images", 12)
        model = pathlib.Path(bench.path("model"))
        shutil.copytree(bench.model, model)
        config_path = model / "vae" / "config.json"
        config = json.loads(config_path.read_text())
        config["block_out_channels"][-1] *= 2
        config_path.write_text(json.dumps(config))
        refused(["process", images, bench.path("latents"), "--model", model, "--resolution", "64"], 1, "shape|config")
        refused(["models", "check", model], 1, "shape|config")


if __name__ == "__main__":
    main([
        flags_are_refused_with_exit_code_2,
        tables_that_cannot_be_read,
        another_jobs_folder_is_refused_with_the_differing_field,
        a_full_disk_loses_nothing_that_was_committed,
        a_read_only_output_is_refused,
        nan_latents_stop_training_with_shard_and_row,
        process_counts_rows_of_a_broken_model,
        poison_rows_cost_only_themselves,
        a_flipped_bit_in_a_checkpoint_is_noticed,
        a_config_for_another_model_is_refused,
    ])
