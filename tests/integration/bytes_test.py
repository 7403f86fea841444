#!/usr/bin/env python3
"""The same inputs, seed and flags give the same bytes: files for any number of workers, rows for any batch size, online as offline."""

import pathlib
import random
import subprocess
import tempfile

import pyarrow.parquet as pq

from workbench import PROGRAM, ROOT, LoopbackWeb, Workbench, digests, main, read_losses, require, run


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


def tokens_do_not_depend_on_how_captions_come() -> None:
    """All at once, in pieces of any length, or one by one: the same lines in the same order, and the same list of unported ones."""
    generator = random.Random(3)
    words = ["a", "red", "apple", "zyzzyva", "Straße", "東京", "schÃ¶n", "\U0001df25", "&amp;", "x" * 300, ""]
    captions = [" ".join(generator.choices(words, k=generator.randint(0, 12))) for _ in range(9000)]  # More than two chunks of the verb.
    captions[17] = "long " * 40_000  # More than is read at a time.
    text = "\n".join(captions).encode()  # The last line has no end.
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:

        def job(name: str) -> subprocess.Popen:
            command = [PROGRAM, "tokenize", "--tokenizer", ROOT / "models" / "tiny" / "tokenizer", "--tokenizer-dialect", "open_clip", "--unported", f"{folder}/{name}"]
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

        def listed(name: str) -> list[str]:
            return (pathlib.Path(folder) / name).read_text().splitlines()

        whole = job("whole").communicate(text)[0]
        lines = whole.splitlines()
        require(len(lines) == len(captions) and all(len(line.split()) == 77 for line in lines), "lines", len(lines))
        want = [f"{number}\t{'mojibake' if 'Ã' in caption else 'new_character'}" for number, caption in enumerate(captions, 1) if "Ã" in caption or "\U0001df25" in caption]
        require(listed("whole") == want, "unported", len(listed("whole")), len(want), sorted(set(listed("whole")) ^ set(want))[:9])
        in_pieces = job("pieces")
        with open(f"{folder}/out", "wb") as out:
            reader = subprocess.Popen(["cat"], stdin=in_pieces.stdout, stdout=out)
            begin = 0
            while begin < len(text):
                end = begin + generator.choice((1, 7, 4096, 65_536, 200_000))
                in_pieces.stdin.write(text[begin:end])
                begin = end
            in_pieces.stdin.close()
            require(in_pieces.wait() == 0 and reader.wait() == 0, "exit code", in_pieces.returncode)
        require((pathlib.Path(folder) / "out").read_bytes() == whole and listed("pieces") == listed("whole"), "pieces give other lines")
        one_by_one = job("single")
        for caption, line in zip(captions[:300], lines):
            one_by_one.stdin.write(caption.encode() + b"\n")
            require(one_by_one.stdout.readline().rstrip(b"\n") == line, "a caption alone gives other ids:", caption[:100])
        one_by_one.stdin.close()
        require(one_by_one.wait() == 0 and listed("single") == [entry for entry in listed("whole") if int(entry.split("\t")[0]) <= 300], "unported")


if __name__ == "__main__":
    main([tokens_do_not_depend_on_how_captions_come, shards_do_not_depend_on_workers, batch_sizes_change_no_row, online_equals_offline])
