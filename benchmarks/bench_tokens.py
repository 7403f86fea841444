#!/usr/bin/env python3
"""Times the tokenizer against transformers, Hugging Face's tokenizers and open_clip on ASCII captions of 77 characters, one core.

  taskset -c 0 .venv-parity/bin/python benchmarks/bench_tokens.py --program build/release/text_bench [--rounds 9]

Checks every id first. The peers are called as users call them: transformers' CLIPTokenizer in batches of 1000, tokenizers'
encode_batch, open_clip's tokenizer on a list. Prints min, median and max of each rate and ratio, taken round by round.
"""
import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
import open_clip  # noqa: E402
import tokenizers  # noqa: E402
import transformers  # noqa: E402
from transformers import CLIPTokenizer  # noqa: E402

from alternating_times import TimedProgram, measure, print_ratio, print_times, python_task  # noqa: E402

FOLDER = Path(__file__).resolve().parent.parent / "models/tiny/tokenizer"
CONTEXT = 77
NUM_CAPTIONS = 4000
BATCH = 1000
WORDS = """a photo of the in with and on for by vintage modern black white red blue green small large old new beautiful wooden abstract digital portrait landscape
painting illustration vector stock image logo design background pattern texture house mountain river city street woman man child dog cat horse bird flower
garden kitchen bedroom living room furniture table chair dress shirt shoes jewelry gold silver wedding christmas birthday party summer winter spring autumn
sunset sunrise beach ocean forest car truck motorcycle bicycle airplane train station bridge tower church castle museum restaurant coffee wine chocolate cake
recipe healthy vegetarian Italian French Japanese American London Paris Tokyo California 2017 1920x1080 free download wallpaper HD closeup macro it's don't""".split()


def make_captions() -> list[str]:
    """Words as alt texts have them, some capitalised, with punctuation; cut to exactly 77 characters."""
    rng = random.Random(1)
    captions = []
    for _ in range(NUM_CAPTIONS):
        text = ""
        while len(text) < CONTEXT:
            word = rng.choice(WORDS)
            text += (word.title() if rng.random() < 0.3 else word) + rng.choice([" ", " ", " ", " ", ", ", " - ", "! "])
        captions.append(text[:76].rstrip().ljust(77, "s"))
    return captions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    captions = make_captions()
    assert all(len(caption) == 77 and caption.isascii() for caption in captions)
    hugging_face = CLIPTokenizer.from_pretrained(FOLDER)
    fast = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    fast.enable_truncation(CONTEXT)
    fast.enable_padding(length=CONTEXT, pad_id=0, pad_token="!")
    peer = open_clip.SimpleTokenizer()

    def call_transformers() -> list:
        batches = (captions[begin : begin + BATCH] for begin in range(0, len(captions), BATCH))
        return [ids for batch in batches for ids in hugging_face(batch, padding="max_length", truncation=True, max_length=CONTEXT)["input_ids"]]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "captions.txt")
        path.write_text("\n".join(captions) + "\n")
        ours = TimedProgram(arguments.program, str(FOLDER), str(path), folder)
        ours.task("hf")()
        want = {
            "hf": np.array(call_transformers(), np.int32),
            "open_clip": np.asarray(peer(captions), np.int32),
        }
        for dialect, ids in want.items():
            if not np.array_equal(np.fromfile(Path(folder, dialect), np.int32).reshape(-1, CONTEXT), ids):
                sys.exit(f"ids differ from the reference's: {dialect}")
        print(f"checked: {len(captions)} captions, all ids of both dialects equal; {np.mean((want['hf'] != 0).sum(axis=1)):.1f} tokens a caption")
        times = measure({
            "darkroom hf": ours.task("hf", 10),
            "darkroom open_clip": ours.task("open_clip", 10),
            f"transformers {transformers.__version__} CLIPTokenizer": python_task(call_transformers),
            f"tokenizers {tokenizers.__version__} encode_batch": python_task(lambda: [encoding.ids for encoding in fast.encode_batch(captions)]),
            f"open_clip {open_clip.__version__} tokenizer": python_task(lambda: peer(captions)),
        }, arguments.rounds)
    ours_hf, ours_open_clip, slow, rust, clip = times
    print(f"captions of 77 characters: thousands a second (min, median, max of {arguments.rounds} rounds)")
    print_times(times, "thousand/s", lambda seconds: len(captions) / seconds / 1e3)
    print_ratio("transformers / darkroom hf", times[slow], times[ours_hf], "wanted: at least 20")
    print_ratio("tokenizers / darkroom hf", times[rust], times[ours_hf], "no bound")
    print_ratio("open_clip / darkroom open_clip", times[clip], times[ours_open_clip], "no bound")


if __name__ == "__main__":
    main()
