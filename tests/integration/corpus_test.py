#!/usr/bin/env python3
"""The demo corpus: the same bytes every time, the same names from every unicode-data, held-out pictures that no training sees."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import pyarrow.parquet as pq
from cases import temporary_folder
from workbench import ROOT, digests, main, require

sys.path.insert(0, str(ROOT / "tools" / "corpus"))
import make_corpus  # noqa: E402

TOOL = ROOT / "tools" / "corpus" / "make_corpus.py"
FETCH_FONT = ROOT / "tools" / "corpus" / "fetch_font.sh"
FONT = make_corpus.FETCHED_FONT if make_corpus.FETCHED_FONT.exists() else make_corpus.INSTALLED_FONT
TONES = {"light skin tone", "medium-light skin tone", "medium skin tone", "medium-dark skin tone", "dark skin tone"}


def make(out: pathlib.Path, *flags: str, expect: int = 0) -> str:
    done = subprocess.run([sys.executable, TOOL, out, *flags], capture_output=True, text=True)
    require(done.returncode == expect, "exit code, output", done.returncode, done.stdout + done.stderr)
    return done.stdout + done.stderr


def captions(corpus: pathlib.Path) -> list[str]:
    return pq.read_table(corpus / "urls.parquet")["TEXT"].to_pylist()


@functools.cache
def all_emoji() -> list:
    return make_corpus.read_emoji(FONT, make_corpus.NAMES)


def the_same_flags_give_the_same_bytes() -> None:
    with temporary_folder() as folder:
        for name in ("one", "two"):
            make(folder / name, "--limit", "90", "--seed", "3")
        require(digests(str(folder / "one"), "**/*") == digests(str(folder / "two"), "**/*"), "bytes of two runs differ")
        require(len(digests(str(folder / "one"), "**/*")) > 90, "files")


def the_corpus_has_every_emoji_with_at_most_one_tone() -> None:
    emoji = all_emoji()
    untoned = {each.name for each in emoji if each.tone is None}
    require(len(emoji) == 3360 and len(untoned) == 1870, "pictures, untoned ones", len(emoji), len(untoned))
    require(len({each.name for each in emoji}) == 3360, "names are not unique")
    require({each.tone for each in emoji} - {None} == TONES, "tones", {each.tone for each in emoji})
    require({each.person for each in emoji} - {None} <= untoned, "a person without a picture of its own")


def a_newer_unicode_data_gives_the_same_names() -> None:
    lines = make_corpus.NAMES.read_text(encoding="utf-8").splitlines(keepends=True)
    newer = [line.replace("flag: Turkey", "flag: Türkiye") for line in reversed(lines)]
    newer.append("1FAE9 ; fully-qualified # X E16.0 face with bags under eyes\n")
    newer.append("1F642 200D 2194 FE0F ; fully-qualified # X E15.1 head shaking horizontally\n")
    with temporary_folder() as folder:
        (folder / "emoji-test.txt").write_text("".join(newer), encoding="utf-8")
        require(list(make_corpus.read_names(folder / "emoji-test.txt").items()) == list(make_corpus.read_names(make_corpus.NAMES).items()),
                "names or their order")


def held_out_pictures_are_200_persons_and_tones_that_training_knows_apart() -> None:
    emoji = all_emoji()
    held_out_names = make_corpus.held_out_names(emoji)
    held_out = make_corpus.choose_part(emoji, held_out_names, "held-out")
    training = make_corpus.choose_part(emoji, held_out_names, "training")
    require(len(held_out) == 200 and len(training) == 3160, "held out, training", len(held_out), len(training))
    require(not {each.name for each in held_out} & {each.name for each in training}, "a caption is in both")
    require(not {each.bitmap for each in held_out} & {each.bitmap for each in training}, "training sees a held-out bitmap")
    pairs = {(each.person, each.tone) for each in training}
    for each in held_out:
        require((each.person, each.tone) not in pairs, "training knows the combination", each.name)
        require(sum(person == each.person for person, tone in pairs) == 4, "the person's other tones", each.name)
        require(any(tone == each.tone for person, tone in pairs), "the tone", each.name)


def held_out_names_depend_on_no_font() -> None:
    emoji = [each._replace(bitmap=b"") for each in all_emoji()]
    require(make_corpus.held_out_names(emoji) == make_corpus.held_out_names(all_emoji()), "held-out names")


def a_part_of_the_corpus_holds_its_rows_only() -> None:
    with temporary_folder() as folder:
        flags = ["--trouble-rate", "0", "--limit", "40"]
        make(folder / "held-out", "--only", "held-out", *flags, "--seed", "1")
        make(folder / "training", "--only", "training", *flags)
        held_out = json.loads((folder / "held-out" / "held_out.json").read_text())["captions"]
        require(len(held_out) == 40 and held_out == captions(folder / "held-out"), "held_out.json", held_out)
        require(json.loads((folder / "training" / "held_out.json").read_text())["captions"] == [], "held out of the training part")
        require(not set(captions(folder / "training")) & make_corpus.held_out_names(all_emoji()), "training rows")


def the_whole_corpus_lists_its_held_out_rows() -> None:
    with temporary_folder() as folder:
        make(folder / "corpus", "--limit", "300")
        expected = json.loads((folder / "corpus" / "expected.json").read_text())
        held_out = json.loads((folder / "corpus" / "held_out.json").read_text())["captions"]
        rows = captions(folder / "corpus")
        require(expected["good_rows"] == 300 and expected["rows"] == 300 + sum(expected["rows_by_error"].values()) == len(rows), "rows", expected)
        require(0 < len(held_out) < 300 and set(held_out) <= set(rows), "held out", held_out)


def the_sheet_shows_held_out_captions_as_held_out() -> None:
    source = (ROOT / "apps" / "darkroom" / "demo" / "demo_sheet.cpp").read_text()
    function = source[source.index("held_out_sheet_prompts()") :]
    prompts = set(re.findall(r'"([^"]+)"', function[: function.index("return")]))
    held_out = make_corpus.held_out_names(all_emoji())
    require(len(prompts) == 8 and prompts <= held_out, "not held out", prompts - held_out)


def a_wrong_flag_is_named() -> None:
    with temporary_folder() as folder:
        require("--limit must be 1..200: 201" in make(folder / "x", "--only", "held-out", "--limit", "201", expect=2), "limit")
        require("'toned'" in make(folder / "x", "--only", "toned", expect=2), "part")
        require("missing.ttf is missing" in make(folder / "x", "--font", str(folder / "missing.ttf"), expect=1), "font")


def another_font_is_named() -> None:
    with temporary_folder() as folder:
        font = folder / "other.ttf"
        font.write_bytes(FONT.read_bytes() + b"\0")
        require("is not version 2.042" in make(folder / "x", "--limit", "1", "--font", str(font)), "warning")
        require("2.042" not in make(folder / "y", "--limit", "1"), "warning about the right font: run tools/corpus/fetch_font.sh")


def fetch(out: pathlib.Path, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([FETCH_FONT, out], capture_output=True, text=True, env={**os.environ, **environment})


def fetch_font_takes_the_installed_font_when_it_is_the_right_one() -> None:
    with temporary_folder() as folder:
        done = fetch(folder / "font.ttf", DARKROOM_INSTALLED_FONT=str(FONT), PATH="/usr/bin:/bin")
        require(done.returncode == 0 and (folder / "font.ttf").read_bytes() == FONT.read_bytes(), "font", done.stderr)
        again = fetch(folder / "font.ttf", DARKROOM_INSTALLED_FONT="/nowhere")
        require(again.returncode == 0 and "is there" in again.stdout, "second run", again.stdout)


def fetch_font_says_why_it_cannot() -> None:
    with temporary_folder() as folder:
        tools = folder / "tools"
        tools.mkdir()
        for said, answer in (("apt-get update", "exit 1"), ("cannot fetch", f"echo \"'file:{folder}/pool/font.deb' font.deb\"")):
            (tools / "apt-get").write_text(f"#!/bin/sh\n{answer}\n")
            (tools / "apt-get").chmod(0o755)
            done = fetch(folder / "font.ttf", DARKROOM_INSTALLED_FONT="/nowhere", PATH=f"{tools}:/usr/bin:/bin")
            require(done.returncode == 1 and said in done.stderr and not (folder / "font.ttf").exists(), said, done.stderr)


if __name__ == "__main__":
    main([the_same_flags_give_the_same_bytes, the_corpus_has_every_emoji_with_at_most_one_tone, a_newer_unicode_data_gives_the_same_names,
          held_out_pictures_are_200_persons_and_tones_that_training_knows_apart, held_out_names_depend_on_no_font,
          a_part_of_the_corpus_holds_its_rows_only, the_whole_corpus_lists_its_held_out_rows, the_sheet_shows_held_out_captions_as_held_out,
          a_wrong_flag_is_named, another_font_is_named, fetch_font_takes_the_installed_font_when_it_is_the_right_one,
          fetch_font_says_why_it_cannot])
