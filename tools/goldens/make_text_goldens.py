#!/usr/bin/env python3
"""Writes tests/golden/text: token ids of transformers 5.23.0 (hf) and of open_clip_torch 3.3.0 with ftfy 6.3.1 (open_clip).

    make_text_goldens.py        needs these packages and unicode-data; Python 3.11 (its str.lower and NFC are Unicode 14's)

captions.jsonl     {"caption", "repeat", "hf", "open_clip"}: the ids between start and end, at most 75; repeat > 1 means the
                   caption so many times; open_clip is absent when it equals hf, and "excluded" names why it is not compared
code_points.json   for each block of 256 code points a hash over the ids of every character's probe (see probe()); "unassigned":
                   ranges of code points that Unicode 14 does not know, whose open_clip ids are not in the hash
"""

import hashlib
import importlib.util
import json
import pathlib
import random
import sys
import types
import unicodedata

import ftfy
from transformers import CLIPTokenizer

ROOT = pathlib.Path(__file__).parent.parent.parent
OUT = ROOT / "tests/golden/text"
NAMES = "/usr/share/unicode/emoji/emoji-test.txt"
BLOCKS = [*range(0x340), 0xE00, 0xE01, 0xF00, 0x1000]

WORDS = """photo image stock vector illustration background of the a in with and for on white black art print woman man girl vintage
design new home best free download HD wallpaper 2017 1920x1080 3/4 50% $19.99 it's don't we're I'VE they'll I'm he'd rock'n'roll
e-mail www.example.com/picture.jpg?size=large @user #hashtag C++ T-shirt 100th naïve café Ελλάδα Москва 東京 한국 สวัสดี עברית العربية हिन्दी
ﬁne ｆｕｌｌ №5 ½ ² Ⅷ ① 𝔘𝔫𝔦 👍🏽 👩‍👩‍👧 🇫🇷 ❤️ … – — “quoted” ‘single’ don’t ™ ® © &amp; &lt;b&gt; &quot; &#39; &eacute; &NTILDE; &nbsp; &notin &hellip;""".split()

TORTURE = [
    "", " ", "\t\n\r", "You should've done this", "! !! !!!", "résumé", "re\u0301sume\u0301", "İstanbul", "ISTANBUL ıi",
    "straße STRASSE ẞ", "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ΑΣ. Σ'Σ", "ὈΔΥΣΣΕΎΣ\u0301Σ", "a\u00a0b\u2003c\u3000d\u200be\u2060f\ufeffg", "a\u0085b\u2028c\u2029d\x0be\x0cf\x1cg\x1fh",
    "nul\x00in\x01the\x7fmiddle", "\x1b[31mred\x1b[0m \x1b[1;2Hx \x1b[٣m \x1b[", "<|startoftext|>", "<|endoftext|>", "a<|endoftext|>b<|STARTOFTEXT|>c",
    "<start_of_text>", "<end_of_text>", "x<START_OF_TEXT>y !<start_of_text> <end_of_text>z", "<|start of text|>", "wow!!! really?! no!", "!", "!!a!b!",
    "&amp;amp;lt; &lt;b&gt;", "a < b &amp; c", "&amp; first\n< second &amp;\n third &amp;", "&notit; &not; &ampersand &#65; &#x41; &#0; &#128; &#xD800; &#1114112; &#99999999999; &#x1; &#xfdd0; &#x3b; &#13;x",
    "&#x; &#; & && &; &a; &abcdefghijklmnopqrstuvwxyzabcdefghijk; &GT &GT; &SZLIG; &ETA; &Eta; &eTA; &DOT; &Dot;", "&EACUTE;&aelig;&AELIG;&NAPOS;&FFLIG;",
    "ﬀ ﬁ ﬂ ﬃ ﬄ ﬅ ﬆ Ĳ ĳ ŉ Ǆ ǅ ǆ Ǉ ǈ ǉ Ǌ ǋ ǌ Ǳ ǲ ǳ", "ＬＯＵＤ　ＮＯＩＳＥ ｱｲｳ ｶﾞ ￡ ￦ ￩", "“a” ‘b’ ‛c‟ ʼd „e‚ `f´", "line\r\nbreak\rmac\u2028ls",
    "\u206a\u206f\ufff9\ufffb\ufffc\ufeffx", "\ufffd \ufffe \uffff", "👨‍👩‍👧‍👦 👩🏽‍🚀 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 🇩🇪🇫🇷 1️⃣ ❤️‍🔥",
    "한글 한글 ㈱ ㍿", "가나다 각", "Å Å Å Ω Ω K K", "≠ =\u0338 <\u0338 !\u0338", "a\u0301\u0323\u0334b\u0327\u0301", "\u0344 \u0958 \ufb1d \U0001d15e",
    "q\u0307\u0323 \u1e9b\u0323 \u0f73\u0f74", "نص عربي مع تشكيل مُحَمَّد", "עִבְרִית", "हिन्दी में", "தமிழ்", "ภาษาไทย", "ພາສາລາວ", "မြန်မာ", "ភាសាខ្មែរ", "አማርኛ", "ᏣᎳᎩ Ꮳ ꮳ", "ქართული ᲥᲐᲠᲗᲣᲚᲘ", "Հայերեն",
    "中文字符測試", "日本語のテスト。カタカナ", "𠀀𠀁𪛖", "𐐀𐐨 𝒜 𝟘 Ⓐⓐ Ⅷⅷ", "½ ¼ ⅓ ² ³ ₁ ① 一二三 ௧ ٣ ३ 𝟙", "don't DON'T 'Twas 'LL 'lL'd'm '''s 's's 'sam 'vex", "''' \"'\" `s ’s", "x'\u017f 'ſam <ſtart_of_text> <ſtart_of_text",
    "_underscore_ a_b __init__", "...---...", "#$%^&*()[]{}|\\/<>?~`@+=;:,.-", "12345 1.5 3,000 4x4 50mm f/2.8 1/250s", "http://example.com/a?b=c&d=e&amp;f", "<b>bold</b> &amp; <i>x</i>",
    "A" * 80, "aA" * 40, "zqxjkvbp" * 12, "antidisestablishmentarianism supercalifragilisticexpialidocious", "Ⱥ Ⱦ ȺȾ", "ǅ ǈ ᾈ ᾳ ͅ\u0345", "\u0345a", "\u180e\u200e\u200f\u202a\u2066",
    "\U0001f1e6\U0001f1e7\U0001f1e8", "e\u0301\u0301\u0301\u0301", "\u1100\u1161\u11a8", "\U00011938 \U00011935\U00011930", "x\u0301\u07fd\u0334 x\u0323\u1df6\u0301", "\u1c89 \ua7cb \ua7dc \U00010d50 \U00016ea0",
    "Ã© voilÃ\xa0 â€™", "schÃ¶n", "cafÃ©", "Ð\x9fÑ\x80Ð¸", "“doâ€œ", "a\x80b \x85 \x91q\x92", "<|endoftext|", "<|endoftext|><|endoftext|>", "<<|endoftext|>>",
]
REPEATED = [("a ", 5000), ("ab", 5000), ("é", 10000), ("👍", 2500), ("x!", 5000), ("word, ", 100), ("\u0301", 3000), ("1", 10000), ("  ", 5000), ("'s", 200), ("<|endoftext|>", 90), ("&amp;", 30)]


def load_open_clip():
    """open_clip's tokenizer module alone; it names torch only where it makes tensors."""
    sys.modules.setdefault("torch", types.SimpleNamespace(Tensor=object, LongTensor=object))
    root = pathlib.Path(importlib.util.find_spec("open_clip").origin).parent
    spec = importlib.util.spec_from_file_location("open_clip_tokenizer", root / "tokenizer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def emoji_names():
    lines = [line for line in open(NAMES, encoding="utf-8") if "; fully-qualified" in line]
    plain = [line for line in lines if not any(0x1F3FB <= int(code, 16) <= 0x1F3FF for code in line.split(";")[0].split())]
    return [" ".join(line.split("#", 1)[1].split()[2:]) for line in plain]


def random_captions():
    rng = random.Random("darkroom text goldens")
    assigned = [c for c in range(0x20000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    marks = [c for c in assigned if unicodedata.combining(chr(c))]
    for _ in range(350):  # words as captions have them
        yield " ".join(rng.choice([str, str, str.upper, str.title])(rng.choice(WORDS)) for _ in range(rng.randrange(1, 9)))
    for _ in range(150):  # words glued together
        yield "".join(rng.choice(WORDS) + rng.choice(["", " ", ", ", "'", "!", "-"]) for _ in range(rng.randrange(1, 6)))
    for _ in range(150):  # letters that no merge was made for
        yield " ".join("".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(1, 25))) for _ in range(3))
    for _ in range(100):  # few letters, so that merges compete
        yield " ".join("".join(rng.choice("aeinst") for _ in range(rng.randrange(1, 40))) for _ in range(2))
    for _ in range(150):
        yield "".join(chr(rng.choice(assigned)) for _ in range(rng.randrange(1, 15)))
    for _ in range(80):  # combining marks in any order
        yield "".join(rng.choice("aeo ") + "".join(chr(rng.choice(marks)) for _ in range(rng.randrange(1, 5))) for _ in range(4))


def is_noncharacter(code_point):
    return 0xFDD0 <= code_point <= 0xFDEF or code_point & 0xFFFE == 0xFFFE


def is_unassigned(code_point):
    return unicodedata.category(chr(code_point)) == "Cn" and not is_noncharacter(code_point)


def unassigned_ranges():
    """As texts "first-last"."""
    found = []
    for code_point in filter(is_unassigned, range(0x110000)):
        if found and found[-1][1] == code_point - 1:
            found[-1][1] = code_point
        else:
            found.append([code_point, code_point])
    return [f"{first:X}-{last:X}" for first, last in found]


def probe(char):
    return f"a{char}1{char}'{char}'S{char}B"


class References:
    def __init__(self):
        self.hf = CLIPTokenizer.from_pretrained(ROOT / "models/tiny/tokenizer")
        self.open_clip = load_open_clip().SimpleTokenizer()

    def hf_ids(self, text):
        return self.hf(text, truncation=True, max_length=77)["input_ids"][1:-1]

    def open_clip_ids(self, text):
        return self.open_clip.encode(text)[:75]

    @staticmethod
    def exclusion(text):
        """Why the open_clip dialect is not compared on this caption; None where it is."""
        if ftfy.fix_text(text) != ftfy.fix_text(text, fix_encoding=False):
            return "mojibake"
        if any(is_unassigned(ord(char)) for char in text):
            return "unassigned in Unicode 14"
        return None


def caption_lines(references):
    captions = [(text, 1) for text in [*emoji_names(), *TORTURE, *random_captions()]] + REPEATED
    for text, repeat in captions:
        whole = text * repeat
        line = {"caption": text, "hf": references.hf_ids(whole)}
        if repeat > 1:
            line["repeat"] = repeat
        reason = references.exclusion(whole)
        if reason:
            line["excluded"] = reason
        elif (ids := references.open_clip_ids(whole)) != line["hf"]:
            line["open_clip"] = ids
        yield json.dumps(line, ensure_ascii=True, separators=(",", ":"))


def code_point_hashes(references):
    blocks, excluded = {}, {}
    for block in BLOCKS:
        chars = [chr(c) for c in range(block * 256, block * 256 + 256) if not 0xD800 <= c <= 0xDFFF]
        hf = hashlib.sha256()
        open_clip = hashlib.sha256()
        for char, ids in zip(chars, references.hf([probe(char) for char in chars], truncation=True, max_length=77)["input_ids"] if chars else []):
            hf.update((" ".join(map(str, ids[1:-1])) + "\n").encode())
            reason = references.exclusion(probe(char))
            if reason is None:
                open_clip.update((" ".join(map(str, references.open_clip_ids(probe(char)))) + "\n").encode())
            elif not reason.startswith("unassigned"):
                excluded[f"{ord(char):04X}"] = reason
        blocks[f"{block:X}"] = [hf.hexdigest()[:12], open_clip.hexdigest()[:12]]
    return {"blocks": blocks, "excluded": excluded, "unassigned": unassigned_ranges()}


def main():
    references = References()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "captions.jsonl").write_text("\n".join(caption_lines(references)) + "\n")
    (OUT / "code_points.json").write_text(json.dumps(code_point_hashes(references), indent=0) + "\n")


if __name__ == "__main__":
    main()
