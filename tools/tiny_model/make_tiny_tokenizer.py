#!/usr/bin/env python3
"""Writes models/tiny/tokenizer: CLIP's full vocabulary in the files that transformers, diffusers and darkroom open.

    make_tiny_tokenizer.py bpe_simple_vocab_16e6.txt.gz OUT

The merges file lies inside the package open_clip_torch 3.3.0 (MIT licence, see models/tiny/NOTICE.md); nothing else of it
is used. Padding as in Stable Diffusion 2: "!", id 0. `darkroom`'s own writer gives the same bytes (a test compares).
"""

import gzip
import json
import pathlib
import sys

NUM_MERGES = 48894
START, END, PAD = "<|startoftext|>", "<|endoftext|>", "!"
SPLIT = r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""


def byte_characters():
    """The printable character that stands for each byte, in the vocabulary's order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def added_token(content, normalized):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": True}


def tokenizer_json(vocabulary, merges):
    added = [(PAD, False), (START, True), (END, True)]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": vocabulary[content], **added_token(content, normalized)} for content, normalized in added],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Removed", "invert": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": {"type": "RobertaProcessing", "sep": [END, vocabulary[END]], "cls": [START, vocabulary[START]],
                           "trim_offsets": False, "add_prefix_space": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": END, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "</w>", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": merges}}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lines = gzip.open(sys.argv[1]).read().decode("utf-8").split("\n")
    merges = lines[1:1 + NUM_MERGES]
    symbols = byte_characters()
    tokens = symbols + [symbol + "</w>" for symbol in symbols] + [merge.replace(" ", "") for merge in merges] + [START, END]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != 49408:
        sys.exit(f"make_tiny_tokenizer: want 49408 distinct tokens, got {len(vocabulary)}: is this CLIP's merges file? {sys.argv[1]}")
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    named = {"bos_token": added_token(START, True), "eos_token": added_token(END, True), "pad_token": added_token(PAD, False),
             "unk_token": added_token(END, True)}
    config = {"add_prefix_space": False, **{name: {"__type": "AddedToken", **token} for name, token in named.items()},
              "do_lower_case": True, "errors": "replace", "model_max_length": 77, "tokenizer_class": "CLIPTokenizer"}
    files = {"vocab.json": compact(vocabulary), "merges.txt": "\n".join(["#version: 0.2", *merges]),
             "tokenizer.json": compact(tokenizer_json(vocabulary, merges)),
             "tokenizer_config.json": json.dumps(config, indent=2), "special_tokens_map.json": json.dumps(named, indent=2)}
    for name, text in files.items():
        (out / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
