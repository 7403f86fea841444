#!/usr/bin/env python3
"""Compares `darkroom tokenize` with transformers' CLIPTokenizer (hf) and open_clip's tokenizer with ftfy (open_clip).

  token_parity.py --darkroom build/darkroom [--captions 120000] [--seed 1]

All 77 ids of every caption must be equal. In open_clip a caption may differ only if darkroom listed it (--unported), and it
may list at most 0.5 % of the captions; every caption whose encoding ftfy repairs must be listed. Captions: emoji names,
Unicode torture, all HTML entities, special-token literals, lines of 10,000 characters, and mixtures. Exits 1 otherwise.
"""
import argparse
import html.entities
import random
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from pathlib import Path

import ftfy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "goldens"))
import make_text_goldens as goldens  # noqa: E402

TOKENIZER = goldens.ROOT / "models/tiny/tokenizer"
CONTEXT = 77
MAX_SHARE_LISTED = 0.005
EMOJI_TEST = Path(goldens.NAMES)
SPECIALS = ["<|startoftext|>", "<|endoftext|>", "<|STARTOFTEXT|>", "<start_of_text>", "<end_of_text>", "<End_Of_Text>", "<|endoftext", "!", "!!", "'ſ", "<ſtart_of_text>"]
CONTROLS = [chr(c) for c in (*range(0x00, 0x0A), *range(0x0B, 0x20), 0x7F, 0xAD, 0x200B, 0x200D, 0x2028, 0x2029, 0x202E, 0x2060, 0xFEFF, 0xFFFC, 0xFFFD)]
SPACES = list(" \t\v\f\r\xa0\u1680\u2003\u202f\u205f\u3000")
TRICKY = ["İ", "ı", "I", "i̇", "ß", "ẞ", "Σ", "ς", "σ", "ΑΣ", "ΣΑ", "\u0345", "ŉ", "ǅ", "ﬁ", "ſ", "K", "Å", "é", "e\u0301", "한", "한", "ㅎ", "ｶﾞ", "１", "½", "Ⅷ", "١", "𝟘", "𝔘", "Ꮳ", "ꮳ", "ა", "Ა"]
ADJECTIVES = "red small old wooden beautiful vintage digital abstract black and white watercolor 3d modern Italian".split()
NOUNS = "cat dog house mountain photograph painting of the sea car woman portrait T-shirt logo vector illustration background river".split()


def emoji() -> list[str]:
    lines = [line for line in EMOJI_TEST.read_text(encoding="utf-8").splitlines() if "; fully-qualified" in line]
    return ["".join(chr(int(code, 16)) for code in line.split(";")[0].split()) for line in lines]


def alphabets() -> list[list[str]]:
    """The assigned characters of every block of 128 code points, without surrogates, private use and newline."""
    blocks = []
    for first in [*range(0, 0x3400, 128), *range(0xA000, 0xAC00, 128), *range(0xF900, 0x12600, 128), *range(0x16800, 0x18D00, 128), *range(0x1B000, 0x20000, 128)]:
        characters = [chr(c) for c in range(first, first + 128) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and c != 10]
        if characters:
            blocks.append(characters)
    blocks += [[chr(c) for c in range(0x4E00, 0x9FFF)], [chr(c) for c in range(0xAC00, 0xD7A4)], [chr(c) for c in range(0x20000, 0x2A6DE)]]
    return blocks


def fixed_captions(pictures: list[str]) -> list[str]:
    names = goldens.emoji_names()
    captions = [*names, *(name.title() for name in names), *(f"a photo of {name}, 4K" for name in names), *pictures, *(p * 3 for p in pictures)]
    captions += [line.replace("\n", " ") for line in goldens.TORTURE]
    for name in html.entities.html5:
        captions += [f"&{name}", f"Fish &{name.upper()} Chips", f"a&amp;{name}b"]
    for special in SPECIALS:
        captions += [special, f"a {special} b", f"a{special}b", special * 2, special.upper(), special.replace("o", "ο")]
    return captions


def long_captions(rng: random.Random, blocks: list[list[str]]) -> list[str]:
    lines = [text * (10_000 // len(text)) for text in ("a ", "é", "👍", "don't ", "x!", "&amp;", "\u0301", "1", "中", "<|endoftext|>", "word, ")]
    for _ in range(60):
        block = rng.choice(blocks)
        lines.append("".join(rng.choice(block) if rng.random() < 0.8 else " " for _ in range(10_000)))
    return lines


def mixture(rng: random.Random, blocks: list[list[str]], pictures: list[str]) -> str:
    kind = rng.randrange(10)
    if kind < 4:
        words = [rng.choice((rng.choice(ADJECTIVES), rng.choice(NOUNS), rng.choice(goldens.WORDS))) for _ in range(rng.randint(1, 14))]
        return " ".join(rng.choice((str, str, str.upper, str.title))(word) for word in words)
    if kind == 4:
        return "".join(rng.choice(goldens.WORDS) + rng.choice(["", " ", ", ", "'", "!", "-"]) for _ in range(rng.randint(1, 8)))
    if kind == 5:
        block = rng.choice(blocks)
        return "".join(rng.choice(block) if rng.random() < 0.85 else " " for _ in range(rng.randint(1, 30)))
    if kind == 6:
        return " ".join("".join(rng.choice(rng.choice(blocks)) for _ in range(rng.randint(1, 6))) for _ in range(rng.randint(1, 5)))
    if kind == 7:
        parts = rng.choices([rng.choice(SPECIALS), rng.choice(CONTROLS), rng.choice(SPACES), rng.choice(TRICKY), rng.choice(pictures), rng.choice(NOUNS), "'s", "&lt;"], k=rng.randint(2, 10))
        return "".join(parts)
    if kind == 8:
        return "".join(rng.choice(TRICKY + ["'", " ", "a", "S"]) for _ in range(rng.randint(1, 12)))
    letters = "abcdefghijklmnopqrstuvwxyz" if rng.random() < 0.5 else "aeinst"
    return " ".join("".join(rng.choice(letters) for _ in range(rng.randint(1, 25))) for _ in range(3))


def make_captions(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    blocks, pictures = alphabets(), emoji()
    captions = fixed_captions(pictures) + long_captions(rng, blocks)
    for block in blocks:
        captions += ["".join(rng.choices(block, k=20)) for _ in range(3)]
    while len(captions) < count:
        captions.append(mixture(rng, blocks, pictures).replace("\n", " "))
    return captions


def darkroom_ids(program: str, captions: list[str], dialect: str) -> tuple[np.ndarray, dict[int, str]]:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "unported.tsv")
        command = [program, "tokenize", "--tokenizer", str(TOKENIZER), "--tokenizer-dialect", dialect, "--unported", str(listed)]
        text = "".join(caption + "\n" for caption in captions).encode()
        result = subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True)
        lines = (line.split("\t") for line in listed.read_text().splitlines())
        unported = {int(number) - 1: kind for number, kind in lines}
    ids = np.array(result.stdout.split(), np.int32).reshape(-1, CONTEXT)
    if len(ids) != len(captions):
        sys.exit(f"darkroom answered {len(ids)} of {len(captions)} captions")
    return ids, unported


def hf_ids(references: goldens.References, captions: list[str]) -> np.ndarray:
    batches = []
    for begin in range(0, len(captions), 1000):
        batch = references.hf(captions[begin : begin + 1000], truncation=True, padding="max_length", max_length=CONTEXT)
        batches.append(np.array(batch["input_ids"], np.int32))
    return np.concatenate(batches)


def open_clip_ids(references: goldens.References, captions: list[str]) -> np.ndarray:
    ids = np.zeros((len(captions), CONTEXT), np.int32)
    for row, caption in zip(ids, captions):
        tokens = [49406, *references.open_clip_ids(caption), 49407]
        row[: len(tokens)] = tokens
    return ids


def show(captions: list[str], wrong: list[int], ours: np.ndarray, theirs: np.ndarray) -> None:
    for index in wrong[:10]:
        place = int(np.argmax(ours[index] != theirs[index]))
        print(f"  caption {index} {captions[index][:60]!r}: id {place} is {ours[index][place]}, the reference's is {theirs[index][place]}")


def compare_hf(program: str, references: goldens.References, captions: list[str]) -> bool:
    ours, _ = darkroom_ids(program, captions, "hf")
    theirs = hf_ids(references, captions)
    wrong = np.flatnonzero((ours != theirs).any(axis=1)).tolist()
    print(f"hf: {len(captions)} captions, {int((ours != theirs).sum())} ids differ in {len(wrong)} captions")
    show(captions, wrong, ours, theirs)
    return not wrong


def compare_open_clip(program: str, references: goldens.References, captions: list[str]) -> bool:
    ours, unported = darkroom_ids(program, captions, "open_clip")
    theirs = open_clip_ids(references, captions)
    different = np.flatnonzero((ours != theirs).any(axis=1)).tolist()
    wrong = [index for index in different if index not in unported]
    repaired = [i for i, caption in enumerate(captions) if not caption.isascii() and ftfy.fix_text(caption) != ftfy.fix_text(caption, fix_encoding=False)]
    missed = [index for index in repaired if unported.get(index) != "mojibake"]
    share = len(unported) / len(captions)
    print(f"open_clip: {len(captions)} captions, {len(wrong)} differ that are not listed; listed {dict(Counter(unported.values()))} = {100 * share:.3f} %, "
          f"of which {len(different) - len(wrong)} differ; ftfy repairs {len(repaired)}, {len(missed)} of them not listed")
    show(captions, wrong, ours, theirs)
    for index in missed[:10]:
        print(f"  not listed: {captions[index][:60]!r}")
    return not wrong and not missed and share <= MAX_SHARE_LISTED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darkroom", required=True, help="the program")
    parser.add_argument("--captions", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began = time.monotonic()
    references = goldens.References()
    captions = make_captions(arguments.captions, arguments.seed)
    passed = compare_hf(arguments.darkroom, references, captions)
    passed &= compare_open_clip(arguments.darkroom, references, captions)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
