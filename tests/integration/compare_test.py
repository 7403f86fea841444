#!/usr/bin/env python3
"""`compare`: the shipped model against a damaged copy and against itself, runs that are cut, votes, and what is refused."""

import base64
import json
import math
import pathlib
import re
import shutil
import signal
import statistics
import struct
import subprocess
import time

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from cases import temporary_folder
from workbench import PROGRAM, ROOT, Workbench, digests, main, require, run

MODEL = ROOT / "models" / "tiny"
PAINTING = ["--sampler", "ddim", "--steps", 4, "--guidance", 3, "--seed", 1]
NUM_PROMPTS = 10


def damaged_copy(folder: pathlib.Path, strength: float) -> pathlib.Path:
    """The shipped model with noise on the U-Net's weights, as strong as `strength` times each tensor's own spread."""
    copy = folder / "damaged"
    shutil.copytree(MODEL, copy)
    path = copy / "unet" / "diffusion_pytorch_model.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    random = np.random.default_rng(1)
    types = {"F16": np.float16, "F32": np.float32}
    for name, tensor in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + place for place in tensor["data_offsets"])
            values = np.frombuffer(bytes(data[begin:end]), types[tensor["dtype"]]).astype(np.float32)
            values += random.normal(size=values.shape) * strength * values.std()
            data[begin:end] = values.astype(types[tensor["dtype"]]).tobytes()
    path.write_bytes(data)
    return copy


class Comparisons:
    """A corpus with its captions as prompts, and a damaged model, which all checks share."""

    def __init__(self):
        self.bench = Workbench(40)
        self.images = self.bench.write_image_dataset("images", 40, bad_rows={39: b"no picture"})
        captions = pq.read_table(self.bench.folder / "corpus" / "urls.parquet")["TEXT"].to_pylist()
        self.prompts = self.bench.folder / "prompts.txt"
        self.captions = captions[:NUM_PROMPTS]
        self.prompts.write_text("".join(caption + "\n" for caption in self.captions))
        self.damaged = damaged_copy(self.bench.folder, 0.2)

    def path(self, name: str) -> pathlib.Path:
        return self.bench.folder / name

    def words(self, a, b, output, *more) -> list:
        return ["compare", a, b, "--prompts-file", self.prompts, "--output", output, *PAINTING, *more]

    def compare(self, a, b, output, *more) -> dict:
        run(*self.words(a, b, output, *more))
        return json.loads((pathlib.Path(output) / "report.json").read_text())


COMPARISONS: list = []


def shared() -> Comparisons:
    if not COMPARISONS:
        COMPARISONS.append(Comparisons())
    return COMPARISONS[0]


def measures_of(report: dict) -> dict:
    return {measure["name"]: measure for measure in report["measures"]}


def prefers_the_shipped_model_to_a_damaged_copy() -> None:
    bench = shared()
    output = bench.path("damage")
    not_theirs = ("--prediction-type", "epsilon", "--frozen", bench.damaged)  # They say v_prediction, and are no checkpoints.
    report = bench.compare(MODEL, bench.damaged, output, "--references", bench.images, "--json-summary", bench.path("summary.json"), *not_theirs)
    require(report["verdict"]["preferred"] == "A", "verdict", report["verdict"])
    found = measures_of(report)
    require(sorted(found) == ["palette", "psnr", "retrieval_top1", "retrieval_top5"], "measures", sorted(found))
    require(report["verdict"]["decided_by"] in found, "who decided", report["verdict"])
    for name, measure in found.items():
        require(measure["low"] <= measure["difference"] <= measure["high"], "interval", name, measure)
        require(0 < measure["p"] <= measure["p_adjusted"] <= 1, "p", name, measure)
    differences = [prompt["psnr"][0] - prompt["psnr"][1] for prompt in report["prompts"] if "psnr" in prompt]
    want = statistics.stdev(differences) / math.sqrt(len(differences))
    require(math.isclose(found["psnr"]["standard_error"], want, rel_tol=1e-9), "standard error", found["psnr"], want)
    the_plan_takes_the_report(bench, output, found["psnr"])
    require(report["num_identical"] == 0 and report["num_references"] == 39, "counts", report["num_identical"], report["num_references"])
    require(any("1 could not be decoded" in note for note in report["notes"]), "notes", report["notes"])
    summary = json.loads(bench.path("summary.json").read_text())["compare"]
    require(summary["rows_in"] == summary["rows_asked"] == 2 * NUM_PROMPTS and summary["verdict"] == report["verdict"], "summary", summary)
    other_way = bench.compare(bench.damaged, MODEL, bench.path("turned"), "--references", bench.images, "--no-sandbox")
    require(other_way["verdict"]["preferred"] == "B", "the other way round", other_way["verdict"])


def the_plan_takes_the_report(bench, output, measure: dict) -> None:
    case = bench.path("case.toml")
    case.write_text(f"""[revenue]
now_per_year = 0
then_per_year = 1e9
[comparison]
report = "{output}/report.json"
measure = "psnr"
custom_model = "A"
""")
    run("plan", "--business", case, "--json-summary", bench.path("plan.json"))
    figures = json.loads(bench.path("plan.json").read_text())["plan"]
    got = [figures[name] for name in ("custom_score", "open_score", "difference_error")]
    require(all(map(math.isclose, got, (measure["a"], measure["b"], measure["standard_error"]))), "scores of the plan", got, measure)


def the_folder_is_whole_and_needs_no_network() -> None:
    output = shared().path("damage")
    names = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    want = {"comparison.json", "report.json", "report.html", "sheet.png", "vote.html"}
    want |= {f"pictures/{side}/{i:05}-00.png" for side in "ab" for i in range(NUM_PROMPTS)} | {f"pictures/reference/{i:05}.png" for i in range(NUM_PROMPTS)}
    require(names == want, "files", sorted(names ^ want))
    for name in ("report.html", "vote.html"):
        page = (output / name).read_text()
        require("default-src 'none'" in page and not re.search(r"(src|href)=\"(?!data:)", page) and "http" not in re.sub(r"http-equiv", "", re.sub(r"data:[^\"]*", "", page)),
                "the page asks for more than itself:", name)
    sheet = Image.open(output / "sheet.png")
    require(sheet.width > 3 * 128 and sheet.height > NUM_PROMPTS * 128, "sheet", sheet.size)


def pictures_are_those_of_sample() -> None:
    bench = shared()
    picture = bench.path("sampled.png")
    run("sample", "--model", MODEL, "--prompt", bench.captions[3], "--output", picture, *PAINTING[:-1], 1 + 3)  # Its fourth prompt.
    require((bench.path("damage") / "pictures" / "a" / "00003-00.png").read_bytes() == picture.read_bytes(), "compare paints otherwise than sample")


def identical_models_show_no_difference() -> None:
    bench = shared()
    report = bench.compare(MODEL, MODEL, bench.path("same"), "--references", bench.images, "--seeds", 2)
    require(report["verdict"]["preferred"] == "none" and not report["verdict"]["contradictory"], "verdict", report["verdict"])
    require(report["num_identical"] == 2 * NUM_PROMPTS, "identical pairs", report["num_identical"])
    between = {measure["name"]: measure for measure in report["between"]}
    require(between["palette"]["value"] == between["palette"]["low"] == between["palette"]["high"] == 0 and between["psnr"]["value"] == 100, "between", between)
    for measure in report["measures"]:
        require(measure["difference"] == measure["low"] == measure["high"] == 0 and measure["p"] == 1, "measure", measure)


def a_folder_of_pictures_gives_the_same_figures() -> None:
    bench = shared()
    folder = bench.path("pictures-with-captions")
    folder.mkdir()
    with open(folder / "metadata.jsonl", "w", encoding="utf-8") as metadata:
        for row in pq.read_table(bench.path("images")).to_pylist():
            (folder / f"{row['key']}.png").write_bytes(row["image"])
            metadata.write(json.dumps({"file_name": f"{row['key']}.png", "text": row["caption"]}) + "\n")
    before = json.loads((bench.path("damage") / "report.json").read_text())
    again = bench.compare(MODEL, bench.damaged, bench.path("damage"), "--references", folder)
    require(again["measures"] == before["measures"], "other figures", again["measures"], before["measures"])


def a_run_that_was_killed_goes_on_with_the_same_bytes() -> None:
    bench = shared()
    output = bench.path("killed")
    words = [str(word) for word in bench.words(MODEL, bench.damaged, output, "--references", bench.images, "--seeds", 2)]
    process = subprocess.Popen([str(PROGRAM), *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(output.glob("pictures/*/*.png")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = len(list(output.glob("pictures/[ab]/*.png")))
    run(*words, "--json-summary", bench.path("summary.json"))
    summary = json.loads(bench.path("summary.json").read_text())["compare"]
    require(summary["rows_found"] == found and summary["rows_in"] == 4 * NUM_PROMPTS - found, "painted anew", found, summary)
    run(*bench.words(MODEL, bench.damaged, bench.path("whole"), "--references", bench.images, "--seeds", 2))
    # A kill may leave a file under a temporary name.
    whole = digests(str(bench.path("whole")), "**/*")
    require(whole.items() <= digests(str(output), "**/*").items(), "other bytes than those of a run that was not cut")
    (output / "pictures" / "b" / "00002-01.png").write_bytes(b"damaged")
    done = run(*words, expect=1)
    require("00002-01.png" in done.stderr and "delete it" in done.stderr, "message", done.stderr)
    (output / "pictures" / "b" / "00002-01.png").unlink()
    run(*words)
    require(whole.items() <= digests(str(output), "**/*").items(), "other bytes after a picture was painted anew")


def a_report_without_references_shows_none_of_an_earlier_one() -> None:
    bench = shared()
    output = bench.path("same")
    require(list(output.glob("pictures/reference/*")), "the earlier run has references")
    before = (output / "sheet.png").read_bytes()
    report = bench.compare(MODEL, MODEL, output, "--seeds", 2)
    require(report["num_references"] == 0 and report["measures"] == [], "measures without references", report["measures"])
    require(not list(output.glob("pictures/reference/*")) and (output / "sheet.png").read_bytes() != before, "references of an earlier run are shown")


def a_stop_while_it_compares_numbers_ends_at_once() -> None:
    bench = shared()
    output = bench.path("damage")
    first = output / "pictures" / "reference" / f"{NUM_PROMPTS - 1:05}.png"  # Written anew before pictures are measured.
    before = first.stat().st_ino
    kept = output.parent / "kept.png"
    kept.hardlink_to(first)  # So that its number is not given to another file.
    (output / "report.json").unlink()
    words = [str(word) for word in bench.words(MODEL, bench.damaged, output, "--references", bench.images, "--resamples", 1_000_000)]
    process = subprocess.Popen([str(PROGRAM), *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and first.stat().st_ino == before:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    require(process.returncode == 130 and "the same command goes on" in said, "a stop", process.returncode, said)
    require(not (output / "report.json").exists(), "a report of a comparison that was stopped")
    bench.compare(MODEL, bench.damaged, output, "--references", bench.images)


def refuses(expect: int, arguments: list, *words: str) -> None:
    done = run(*arguments, expect=expect)
    for word in words:
        require(word in done.stderr, f"the message lacks {word!r}:", done.stderr)


def another_comparison_in_its_folder_is_refused() -> None:
    bench = shared()
    output = bench.path("damage")
    refuses(1, bench.words(MODEL, bench.damaged, output, "--negative", "blurry"), "negative", "blurry")
    refuses(1, bench.words(MODEL, MODEL, output), "other weights")
    refuses(1, bench.words(MODEL, bench.damaged, output, "--seeds", 2), "seeds")
    refuses(1, bench.words(MODEL, bench.damaged, bench.images), "--output must be", "part-000000.parquet")
    moved = bench.path("moved")
    shutil.copytree(bench.damaged, moved)
    bench.compare(MODEL, moved, output, "--references", bench.images)  # The same weights by another name.


def models_that_share_no_size_are_refused() -> None:
    bench = shared()
    larger = bench.path("larger")
    shutil.copytree(MODEL, larger)
    config = json.loads((larger / "unet" / "config.json").read_text())
    config["sample_size"] *= 2
    (larger / "unet" / "config.json").write_text(json.dumps(config))
    output = bench.path("sizes")
    words = ["compare", MODEL, larger, "--prompts-file", bench.prompts, "--output", output, "--steps", 1]
    refuses(1, words, "different sizes", "64 128", "--size")
    run(*words, "--size", "32x32", "--sampler", "ddim")  # Nothing was left behind that stands in the way.


def bad_prompts_are_refused() -> None:
    bench = shared()
    with temporary_folder() as folder:
        prompts = folder / "prompts.txt"
        words = ["compare", MODEL, MODEL, "--prompts-file", prompts, "--output", folder / "out"]
        refuses(1, words, "prompts.txt")
        for text, told in ((b"", ("no prompt",)), (b"a\nb\na\n", ("twice", "1 and 3")), (b"a\n\xff\n", ("UTF-8", " 2"))):
            prompts.write_bytes(text)
            refuses(2, words, str(prompts), *told)
        prompts.write_bytes(b"a caption of nothing\n")
        refuses(1, [*words, "--sampler", "ddim", "--steps", 1, "--references", bench.images], "whose caption")
        require(not (folder / "out" / "report.json").exists(), "a report of nothing")


def a_model_that_paints_no_numbers_is_named() -> None:
    bench = shared()
    broken = bench.path("broken")
    shutil.copytree(MODEL, broken)
    path = broken / "unet" / "diffusion_pytorch_model.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    tensor = json.loads(data[8 : 8 + length])["conv_out.bias"]
    begin, end = (8 + length + place for place in tensor["data_offsets"])
    kind = {"F16": np.float16, "F32": np.float32}[tensor["dtype"]]
    data[begin:end] = np.full((end - begin) // kind().itemsize, np.nan, kind).tobytes()
    path.write_bytes(data)
    refuses(1, bench.words(MODEL, broken, bench.path("nan")), "no numbers", "B", str(broken))
    require(not list(bench.path("nan").glob("pictures/b/*")), "a picture of no numbers was kept")


def missing_networks_and_references_are_named() -> None:
    bench = shared()
    output = bench.path("damage")
    empty = bench.path("networks")
    empty.mkdir()
    refuses(2, bench.words(MODEL, bench.damaged, output, "--metrics", "fid"), "--weights-dir", "fid")
    for metric in ("psnr", "retrieval", "palette"):
        refuses(2, bench.words(MODEL, bench.damaged, output, "--metrics", metric), "--references", metric)
    refuses(2, bench.words(MODEL, bench.damaged, output, "--metrics", "kid", "--weights-dir", empty), "--references")
    refuses(1, bench.words(MODEL, bench.damaged, output, "--weights-dir", empty), "inception-2015-12-05.pt", "clip/config.json")
    refuses(1, bench.words(MODEL, bench.damaged, output, "--metrics", "clip", "--weights-dir", empty), "clip")
    refuses(1, bench.words(MODEL, bench.damaged, output, "--metrics", "fid", "--references", bench.images, "--weights-dir", empty), "inception-2015-12-05.pt")
    refuses(1, bench.words(MODEL, bench.damaged, output, "--references", bench.path("nowhere")), "nowhere")


def votes_for(output: pathlib.Path, side: str) -> dict:
    """What a person exports who always prefers the pictures of one side: told by their pixels, which is all that the page shows."""
    page = (output / "vote.html").read_text()
    ballots = json.loads(re.search(r"const ballots = (\[.*\]);", page).group(1))
    comparison = json.loads(re.search(r"const comparison = (\".*\");", page).group(1))
    prompts = shared().captions
    votes = []
    for number, ballot in enumerate(ballots):
        pixels = np.asarray(Image.open(output / "pictures" / side / f"{prompts.index(ballot['prompt']):05}-00.png"))
        places = []
        for place in ("left", "right"):
            file = shared().path("one.png")
            file.write_bytes(base64.b64decode(ballot[place].split(",", 1)[1]))
            shown = Image.open(file)
            require(not shown.text, "the page says what painted a picture", shown.text)
            places.append(np.array_equal(np.asarray(shown), pixels))
        require(places.count(True) == 1, "which picture is it?", places)
        votes.append({"ballot": number, "choice": "left" if places[0] else "right"})
    return {"format": "darkroom votes", "version": 1, "comparison": comparison, "votes": votes}


def votes_become_a_preference_with_an_interval() -> None:
    bench = shared()
    output = bench.path("damage")
    votes = votes_for(output, "b")
    sides = {vote["choice"] for vote in votes["votes"]}
    require(sides == {"left", "right"} and len(votes["votes"]) == NUM_PROMPTS, "B stands always at one side", votes)
    file = bench.path("votes.json")
    file.write_text(json.dumps(votes))
    done = run("compare", "--votes", file, "--output", output)
    require("prefers B" in done.stdout, "said", done.stdout)
    found = json.loads((output / "report.json").read_text())["votes"]
    require(found["for_b"] == NUM_PROMPTS and found["share_for_a"] == 0 and found["preference"] == "B", "votes", found)
    require(found["low"] == 0 and abs(found["high"] - 0.3085) < 1e-4, "Clopper and Pearson's interval", found)
    cell = f">0, {NUM_PROMPTS}, 0<"
    require(cell in (output / "report.html").read_text(), "the report has no pairs for A, for B, undecided", cell)
    # A later run of the same comparison keeps what was voted, and judges it by its own error rate.
    require(bench.compare(MODEL, bench.damaged, output)["votes"] == found, "the votes are lost")
    strict = bench.compare(MODEL, bench.damaged, output, "--references", bench.images, "--error-rate", "0.1", "--resamples", "100")
    counts = ("num_voters", "num_votes", "for_a", "for_b", "undecided", "share_for_a", "p")
    require(all(strict["votes"][name] == found[name] for name in counts), "the votes changed", strict["votes"])
    require(strict["votes"]["preference"] == "none" and abs(strict["votes"]["high"] - (1 - 0.0005**0.1)) < 1e-4, "another error rate is another interval", strict["votes"])
    num_tests = sum(measure["p"] is not None for measure in strict["measures"])
    require(num_tests > 0 and any(f"--resamples {math.ceil(num_tests / strict['error_rate'])} " in note for note in strict["notes"]), "how many resamples that takes", num_tests, strict["notes"])
    require(not any("resamples" in note for note in bench.compare(MODEL, bench.damaged, output, "--references", bench.images)["notes"]), "enough resamples are enough")
    file.write_text(json.dumps(votes | {"comparison": "0" * 16}))
    refuses(1, ["compare", "--votes", file, "--output", output], "another comparison", "votes.json")
    file.write_text("[]")
    refuses(1, ["compare", "--votes", file, "--output", output], "votes.json")
    refuses(1, ["compare", "--votes", file, "--output", bench.path("nothing-here")], "no finished comparison")
    refuses(2, ["compare", MODEL, "--votes", file, "--output", output], "--votes")


if __name__ == "__main__":
    try:
        main([prefers_the_shipped_model_to_a_damaged_copy, the_folder_is_whole_and_needs_no_network, pictures_are_those_of_sample,
              identical_models_show_no_difference, a_folder_of_pictures_gives_the_same_figures, a_run_that_was_killed_goes_on_with_the_same_bytes,
              another_comparison_in_its_folder_is_refused, models_that_share_no_size_are_refused, bad_prompts_are_refused,
              a_model_that_paints_no_numbers_is_named, missing_networks_and_references_are_named,
              a_report_without_references_shows_none_of_an_earlier_one, a_stop_while_it_compares_numbers_ends_at_once, votes_become_a_preference_with_an_interval])
    finally:
        for comparisons in COMPARISONS:
            shutil.rmtree(comparisons.bench.folder, ignore_errors=True)
