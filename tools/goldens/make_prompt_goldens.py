#!/usr/bin/env python3
"""Writes tests/golden/text/prompts.jsonl and tests/golden/paint/prompt_states.safetensors: prompts with attention weights, read by the rule
that AUTOMATIC1111's stable-diffusion-webui 1.10 publishes (modules/prompt_parser.py, sd_hijack_clip.py, sd_emphasis.py "Original"), here
written anew from what it does; ids by transformers 5.23.0 and open_clip_torch 3.3.0, states by transformers' CLIPTextModel.

    make_prompt_goldens.py        needs these packages, torch and ftfy (requirements/parity.txt)

prompts.jsonl                {"prompt", "parts": [[text, weight]], "hf", "open_clip": [chunk]}; a chunk has "ids", without the end and its
                             padding where nothing else follows, and "weights" as runs [weight, how often]; "plain": the same of the prompt
                             with every character taken as it is; open_clip is absent where it equals hf; "fails": the rule has no number there
prompt_states.safetensors    "N" for prompt N of its metadata: every 16th value of the states (chunks * 77, width) of models/tiny, to whose
                             last norm give_mean() gives values: as it is, its states have the mean 0, which nothing can restore
"""

import json
import pathlib
import random
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import CLIPTextModel, CLIPTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from make_text_goldens import load_open_clip  # noqa: E402

CHUNK = 75
LOOK_BACK = 20
BREAK = ("BREAK", -1.0)
STRIDE = 16

LONG = "a painting of a harbour at night, wet cobblestones, lanterns, fishing boats with folded sails, gulls, "
PROMPTS = [
    "", " ", "a red apple", "a (red) apple", "a [red] apple", "a (red:1.3) apple", "((red)) apple", "[[red]] apple", "([red]) apple", "[(red)] apple",
    "(a (red:1.3) apple:0.9)", "(((red:1.3))) [on] a (hill:0.5), sun, (((sky))).", "(unbalanced", "[unbalanced", "unbalanced)", "unbalanced]", "((a) b", "a) (b",
    "[a (b] c)", "(a [b) c]", r"\(a\) \[b\] \\c", r"(a\)b:1.2)", r"a\b \x \ ", "\\", "a (b\\", r"\\(a)", r"\\\(a)", "(a:1.5", "a:1.5)", "a:1.5", "(a:b)", "(a::1.5)", "(a:1.5:1.2)",
    "(a : 1.5 )", "(a:  +1.5)", "(a:-1)", "(a:0)", "(a:.5)", "(a:1.)", "(a:1.5]", "[a:1.5]", "[a:1.5)", "(a:1.2.3)", "(a:.)", "(a:+)", "(a:1e3)", "(a:1,5)", "(a:١.٥)", "(:1.5)", "()", "[]", "([)]", "(a)(b)", "(a)[b]",
    "a BREAK b", "a BREAKb", "aBREAK b", "a BREAK", "BREAK a", "BREAK", "BREAK BREAK", "a BREAK BREAK b", "a\n BREAK\t b", "(a BREAK b)", "[a BREAK b]", "(a) BREAK (b:1.2)", "a, BREAK, b", "_BREAK_", "a-BREAK-b", "break", "éBREAK BREAKé",
    "[(BREAK)]", "(x:-1) BREAK", "(x BREAK y:-1)", "a\u00a0BREAK\u2003b", "a\x1cBREAK\x1fb", "(naïve café:1.2) [東京] (👍🏽)", "(ＬＯＵＤ &amp; <b>:1.1)", "(RED Apple:1.25)", "<|endoftext|> (a) b", "!(a)! [!]",
    LONG * 3, LONG * 4, f"({LONG * 2}:1.2) {LONG * 2}", "word " * 74, "word " * 75, "word " * 76, "word " * 150, "word " * 151, "word " * 54 + ", " + "word " * 40, "word " * 55 + ", " + "word " * 40, "word " * 53 + ", " + "word " * 40,
    "word " * 74 + ", " + "word " * 5, "word " * 75 + ", " + "word " * 5, ", " * 76, ", " * 200, "word " * 60 + ", " + "word " * 80 + ", " + "word " * 30, ("word " * 70 + ", (many words behind it:1.3) ") * 3,
    "(" + "word " * 80 + ":1.2)", "word " * 75 + "BREAK " + "word " * 3, "a BREAK " + "word, " * 90, "(" * 30 + "deep" + ")" * 30, "[" * 30 + "deep" + "]" * 30, "(" * 30 + "deep", "x" * 400, "<|endoftext|> " + "word " * 80,
]  # fmt: skip
STATES = ["", "a (red:1.3) apple", "[a dog] in ((snow))", "(a:-1) b", "(everything:0.2)", LONG * 3, f"({LONG}:1.4) BREAK [two] cats", "a BREAK BREAK b", "(a BREAK b)"]


def random_prompts():
    rng = random.Random("darkroom prompt goldens")
    pieces = ["(", ")", "[", "]", ":", "\\", ":1.2)", ":0.7)", ": -0.5 )", ":+.25)", "BREAK", " ", " ", ", ", "cat", "dog ", "blue sky", "é", "12", ".", "\\(", "\\]", "a(b", "\n"]
    for _ in range(150):
        yield "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 25)))
    for _ in range(30):
        yield "".join(rng.choice([*pieces, *(["a long way to go, "] * 12)]) for _ in range(rng.randrange(30, 90)))


def is_digits(text):
    return text != "" and all(char == "." or char.isdecimal() for char in text)


def closing_weight(text):
    """(length, number) of ":1.3)" at the start of `text`, with white space around the number; None where it is something else."""
    end = text.find(")")
    if not text.startswith(":") or end < 0:
        return None
    number = text[1:end].strip()
    return (end + 1, number) if is_digits(number[1:] if number[:1] in ("+", "-") else number) else None


def split_breaks(text):
    """The text between the words BREAK, without the white space beside them."""
    is_word = lambda char: char.isalnum() or char == "_"
    pieces, start, at = [], 0, text.find("BREAK")
    while at >= 0:
        end = at + len("BREAK")
        if (at == 0 or not is_word(text[at - 1])) and (end == len(text) or not is_word(text[end])):
            pieces.append(text[start:at].rstrip())
            while end < len(text) and text[end].isspace():
                end += 1
            start = end
        at = text.find("BREAK", end)
    return [*pieces, text[start:]]


def weighted_parts(prompt):
    """The prompt's parts and their weights; ValueError where a bracket's weight is no number."""
    parts = []
    open_at = {"(": [], "[": []}
    factor = {"(": 1.1, "[": 1 / 1.1}

    def close(kind, weight):
        for part in parts[open_at[kind].pop() :]:
            part[1] *= weight

    at = 0
    while at < len(prompt):
        char, rest = prompt[at], prompt[at:]
        text = None
        if char == "\\":
            escaped = rest[1:2] if rest[1:2] in ("(", ")", "[", "]", "\\") else ""
            parts.append([escaped, 1.0])
            at += 1 + len(escaped)
        elif char in "([":
            open_at[char].append(len(parts))
            at += 1
        elif char in ")]":
            kind = "(" if char == ")" else "["
            if open_at[kind]:
                close(kind, factor[kind])
                at += 1
            else:
                text = char
        elif char == ":":
            closing = closing_weight(rest)
            if closing and open_at["("]:
                close("(", float(closing[1]))
                at += closing[0]
            else:
                text = rest[: closing[0]] if closing else char
        else:
            size = next((i for i, other in enumerate(rest) if other in "\\()[]:"), len(rest))
            text = rest[:size]
        if text is not None:
            at += len(text)
            for i, piece in enumerate(split_breaks(text)):
                parts += [list(BREAK)] if i else []
                parts.append([piece, 1.0])
    for kind in ("(", "["):
        for first in open_at[kind]:
            for part in parts[first:]:
                part[1] *= factor[kind]
    merged = []
    for text, weight in parts or [["", 1.0]]:
        if merged and merged[-1][1] == weight:
            merged[-1][0] += text
        else:
            merged.append([text, weight])
    return merged


class Tokens:
    """One dialect: ids of a text without start and end, and the ids that chunks need."""

    def __init__(self, encode, start, end, pad, comma):
        self.encode, self.start, self.end, self.pad, self.comma = encode, start, end, pad, comma

    def chunk(self, ids, weights):
        ids = [self.start, *ids, *[self.end] * (CHUNK + 1 - len(ids))]
        end = ids.index(self.end)
        if self.pad != self.end:
            ids[end + 1 :] = [self.pad] * (len(ids) - end - 1)
        return {"ids": ids, "weights": [1.0, *weights, *[1.0] * (CHUNK + 1 - len(weights))]}

    def chunks(self, parts):
        done, ids, weights, comma = [], [], [], None
        for text, weight in parts:
            if (text, weight) == BREAK:
                done.append((ids, weights))
                ids, weights, comma = [], [], None
                continue
            for token in self.encode(text):
                is_full = len(ids) == CHUNK
                if token == self.comma and not is_full:
                    comma = len(ids)
                elif is_full:
                    keep = comma + 1 if token != self.comma and comma is not None and CHUNK - comma <= LOOK_BACK else CHUNK
                    done.append((ids[:keep], weights[:keep]))
                    ids, weights, comma = ids[keep:], weights[keep:], None
                ids.append(token)
                weights.append(weight)
        if ids or not done:
            done.append((ids, weights))
        return [self.chunk(*one) for one in done]


def dialects():
    hf = CLIPTokenizer.from_pretrained(ROOT / "models/tiny/tokenizer")
    open_clip = load_open_clip().SimpleTokenizer()
    start, end, comma = hf.bos_token_id, hf.eos_token_id, hf.get_vocab()[",</w>"]
    return {
        "hf": Tokens(lambda text: hf(text, add_special_tokens=False, truncation=False)["input_ids"], start, end, hf.pad_token_id, comma),
        "open_clip": Tokens(open_clip.encode, start, end, 0, comma),
    }


def compact(chunks):
    """Ids up to where the last one repeats, weights as runs."""
    out = []
    for chunk in chunks:
        ids = list(chunk["ids"])
        while len(ids) > 1 and ids[-1] == ids[-2]:
            ids.pop()
        runs = []
        for weight in chunk["weights"]:
            if runs and runs[-1][0] == weight:
                runs[-1][1] += 1
            else:
                runs.append([weight, 1])
        out.append({"ids": ids, "weights": runs})
    return out


def prompt_lines(tokens):
    for prompt in [*PROMPTS, *random_prompts()]:
        line = {"prompt": prompt}
        try:
            line["parts"] = weighted_parts(prompt)
        except ValueError:
            line["fails"] = True
        if "parts" in line:
            line["hf"] = compact(tokens["hf"].chunks(line["parts"]))
            open_clip = compact(tokens["open_clip"].chunks(line["parts"]))
            if open_clip != line["hf"]:
                line["open_clip"] = open_clip
        line["plain"] = compact(tokens["hf"].chunks([[prompt, 1.0]]))
        yield json.dumps(line, ensure_ascii=True, separators=(",", ":"))


def weighted_states(model, chunks):
    """The text encoder's states of one chunk after the other, weighted; then each chunk's mean is made what it was."""
    states = []
    for chunk in chunks:
        plain = model(input_ids=torch.tensor([chunk["ids"]])).last_hidden_state
        weighted = plain * torch.tensor(chunk["weights"]).reshape(1, -1, 1)
        states.append(weighted * (plain.mean() / weighted.mean()))
    return torch.cat(states, dim=1)[0]


def give_mean(norm):
    """Weights and biases that float32 holds, so that states have a mean, as those of trained text encoders have."""
    index = torch.arange(norm.weight.numel())
    norm.weight.copy_(1 + (index % 5) / 8)
    norm.bias.copy_((index % 7 - 2) / 16)


def record_states(tokens, path):
    model = CLIPTextModel.from_pretrained(ROOT / "models/tiny/text_encoder").eval()
    torch.set_num_threads(1)
    with torch.no_grad():
        give_mean(dict(model.named_modules())[next(name for name, _ in model.named_modules() if name.endswith("final_layer_norm"))])
        states = {str(i): weighted_states(model, tokens.chunks(weighted_parts(prompt))) for i, prompt in enumerate(STATES)}
    metadata = {"prompts": json.dumps(STATES), "made_by": f"make_prompt_goldens.py, torch {torch.__version__}, transformers {transformers.__version__}"}
    metadata["shapes"] = json.dumps({name: list(tensor.shape) for name, tensor in states.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.reshape(-1)[::STRIDE].clone() for name, tensor in states.items()}, path, metadata)


def main():
    tokens = dialects()
    (ROOT / "tests/golden/text/prompts.jsonl").write_text("\n".join(prompt_lines(tokens)) + "\n")
    record_states(tokens["hf"], ROOT / "tests/golden/paint/prompt_states.safetensors")


if __name__ == "__main__":
    main()
