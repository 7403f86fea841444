#!/usr/bin/env python3
"""Times the tokenizer against transformers, Hugging Face's tokenizers and open_clip on two sets of captions, one core.

  taskset -c 0 .venv-parity/bin/python benchmarks/bench_tokens.py --program build/release/text_bench [--rounds 9]

Two sets: ASCII captions of 77 characters of common words, and mixed ones of rare words, every script, emoji, typographic
punctuation and HTML references, of which no word need come twice. Checks every id first. The peers are called as users call them: transformers' CLIPTokenizer in batches of 1000, tokenizers'
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

import ftfy  # noqa: E402
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


def common_captions() -> list[str]:
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


SYLLABLES = "ba ce di fo gu ka le mi no pu ra se ti vo wu xa ye zi stra kno phy ght schm tion ngla qu oo ei rd".split()
UNICODE = """naïve café Ångström Köln São-Paulo façade Đặng Łódź İstanbul straße Ελλάδα ΟΔΥΣΣΕΥΣ Москва Київ 東京タワー 京都 한국어 서울 สวัสดี עברית العربية हिन्दी தமிழ் ქართული
“quoted” ‘single’ don’t – — … 50mm f/1.8 №5 ½ ² ﬁne ｆｕｌｌ 👍🏽 👩‍🚀 🇫🇷 ❤️ 𝔘𝔫𝔦 résumé ™ ® © 19.99€ #hashtag @user www.example.com/picture.jpg?size=large""".split()
REFERENCES = "&amp; &quot;quoted&quot; &#39;s &eacute;t&eacute; &NTILDE; &nbsp; &lt;b&gt; &#8217; &#x2014; &copy;2019 Q&amp;A &hellip;".split()


def mixed_captions() -> list[str]:
    """Half of the words are common, a quarter made up of syllables, the others Unicode and references; about 77 characters.
    None that ftfy repairs as mojibake, because that is not ported (docs/text.md)."""
    rng = random.Random(2)
    captions = []
    while len(captions) < NUM_CAPTIONS:
        text = ""
        while len(text) < CONTEXT:
            kind = rng.random()
            made_up = "".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(2, 6)))
            text += rng.choice(WORDS) if kind < 0.5 else made_up if kind < 0.75 else rng.choice(UNICODE) if kind < 0.93 else rng.choice(REFERENCES)
            text += rng.choice([" ", " ", " ", ", "])
        if ftfy.fix_text(text) == ftfy.fix_text(text, fix_encoding=False):
            captions.append(text.strip())
    return captions


class Peers:
    """The packages, called as users call them."""

    def __init__(self):
        self.transformers = CLIPTokenizer.from_pretrained(FOLDER)
        self.fast = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
        self.fast.enable_truncation(CONTEXT)
        self.fast.enable_padding(length=CONTEXT, pad_id=0, pad_token="!")
        self.open_clip = open_clip.SimpleTokenizer()

    def call_transformers(self, captions: list[str]) -> list:
        batches = (captions[begin : begin + BATCH] for begin in range(0, len(captions), BATCH))
        return [ids for batch in batches for ids in self.transformers(batch, padding="max_length", truncation=True, max_length=CONTEXT)["input_ids"]]

    def call_tokenizers(self, captions: list[str]) -> list:
        return [encoding.ids for encoding in self.fast.encode_batch(captions)]


def compare(what: str, captions: list[str], peers: Peers, program: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "captions.txt")
        path.write_text("\n".join(captions) + "\n", encoding="utf-8")
        ours = TimedProgram(program, str(FOLDER), str(path), folder)
        ours.task("hf")()
        want = {"hf": np.array(peers.call_transformers(captions), np.int32), "open_clip": np.asarray(peers.open_clip(captions), np.int32)}
        for dialect, ids in want.items():
            if not np.array_equal(np.fromfile(Path(folder, dialect), np.int32).reshape(-1, CONTEXT), ids):
                sys.exit(f"ids differ from the reference's: {dialect}")
        print(f"{what}: {len(captions)} captions, all ids of both dialects equal; {np.mean((want['hf'] != 0).sum(axis=1)):.1f} tokens a caption")
        times = measure({
            "darkroom hf": ours.task("hf", 10),
            "darkroom open_clip": ours.task("open_clip", 10),
            f"transformers {transformers.__version__} CLIPTokenizer": python_task(lambda: peers.call_transformers(captions)),
            f"tokenizers {tokenizers.__version__} encode_batch": python_task(lambda: peers.call_tokenizers(captions)),
            f"open_clip {open_clip.__version__} tokenizer": python_task(lambda: peers.open_clip(captions)),
        }, rounds)
    ours_hf, ours_open_clip, slow, rust, clip = times
    print(f"thousands a second (min, median, max of {rounds} rounds)")
    print_times(times, "thousand/s", lambda seconds: len(captions) / seconds / 1e3)
    print_ratio("transformers / darkroom hf", times[slow], times[ours_hf], "wanted: at least 20")
    print_ratio("tokenizers / darkroom hf", times[rust], times[ours_hf], "no bound")
    print_ratio("open_clip / darkroom open_clip", times[clip], times[ours_open_clip], "no bound")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    common = common_captions()
    assert all(len(caption) == 77 and caption.isascii() for caption in common)
    peers = Peers()
    compare("common words, ASCII, 77 characters", common, peers, arguments.program, arguments.rounds)
    compare("mixed", mixed_captions(), peers, arguments.program, arguments.rounds)


if __name__ == "__main__":
    main()
