#!/usr/bin/env python3
"""`darkroom plan` as a user meets it: the published table, formulas that a second program works out again, refusals, the same bytes twice."""

import csv
import json
import math
import pathlib
import subprocess

from cases import main, require, temporary_folder
from workbench import PROGRAM, ROOT

CASE = ROOT / "prices" / "challenge.toml"


def plan(*arguments, expect: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([PROGRAM, "plan", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=ROOT)
    require(done.returncode == expect, "exit code", done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def figures_of(folder: pathlib.Path) -> dict[str, dict]:
    return {figure["name"]: figure for figure in json.loads((folder / "plan.json").read_text())["figures"]}


def without_arguments_it_is_the_published_run() -> None:
    said = plan().stdout
    for word in ("13,165", "$39,511", "$67,405", "1,126,400,000", "1,740,800,000", "Left out", "training alone"):
        require(word in said, "the plan lacks", word, said)


def every_formula_gives_its_value_in_python_too() -> None:
    with temporary_folder() as folder:
        plan("--business", CASE, "--output", folder)
        figures = figures_of(folder)
        known = {"min": min, "max": max, "ceil": math.ceil, "sqrt": math.sqrt, "__builtins__": {}}
        num_formulas = 0
        for name, figure in figures.items():
            if "formula" in figure:
                require(all(one in known for one in figure["inputs"]), "inputs stand before", name)
                value = eval(figure["formula"], dict(known))  # Ours, of names and + - * / alone.
                require(math.isclose(value, figure["value"], rel_tol=1e-12, abs_tol=1e-12), "formula of", name, value, figure["value"])
                num_formulas += 1
            else:
                require(figure["source"], "no source", name)
            known[name] = figure["value"]
        require(num_formulas > 80, "formulas", num_formulas)
        rows = list(csv.DictReader((folder / "plan.csv").read_text().splitlines()))
        require([row["name"] for row in rows] == list(figures), "names of plan.csv")
        require(all(math.isclose(float(row["value"]), figures[row["name"]]["value"], rel_tol=1e-15) for row in rows), "values of plan.csv")


def the_same_arguments_give_the_same_bytes() -> None:
    with temporary_folder() as folder:
        for name in ("a", "b"):
            plan("--business", CASE, "--seed", 7, "--output", folder / name)
        for name in ("plan.json", "plan.csv", "plan.html"):
            require((folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes(), "bytes differ", name)
        plan("--business", CASE, "--seed", 8, "--output", folder / "c")
        require((folder / "a" / "plan.json").read_bytes() != (folder / "c" / "plan.json").read_bytes(), "the seed changes nothing")


def the_page_needs_no_network() -> None:
    with temporary_folder() as folder:
        plan("--business", CASE, "--output", folder)
        page = (folder / "plan.html").read_text()
        for word in ("src=\"http", "href=", "url(", "@import", "fetch("):
            require(word not in page, "the page loads something:", word)
        for word in ("13,165 h", "Published, and planned", "Offline or online", "Training with lost machines", "Business case", "Every figure"):
            require(word in page, "the page lacks", word)


def what_does_not_fit_is_refused_by_name() -> None:
    with temporary_folder() as folder:
        bad = folder / "bad.toml"
        bad.write_text((ROOT / "prices" / "catalogue.toml").read_text().replace("dollars_per_hour = 40.96", "dollars_per_hour = \"dear\""))
        case = folder / "case.toml"
        case.write_text(CASE.read_text().replace("then_per_year", "later_per_year"))
        cases = [
            (["--samples-256", "0", "--samples-512", "0"], 2, ["nothing to plan"]),
            (["--fleet", "4xp4de.24xlrge"], 2, ["p4de.24xlrge", "p4de.24xlarge"]),
            (["--store", "s4"], 2, ["s4", "s3-standard"]),
            (["--catalogue", bad], 2, [str(bad), "line", "[[price]] 1 dollars_per_hour", "dear"]),
            (["--catalogue", folder / "none.toml"], 2, ["none.toml"]),
            (["--business", case], 2, [str(case), "then_per_year is missing"]),
            (["--business", folder / "none.toml"], 2, ["none.toml"]),
            (["--from", folder], 1, [folder.name, "no training run"]),
            (["--from", folder / "none"], 1, ["none"]),
            (["--steps", "5"], 2, ["--from RUN"]),
            (["--batch", "5"], 2, ["--steps"]),
        ]
        for arguments, code, words in cases:
            said = plan(*arguments, expect=code).stderr
            for word in words:
                require(word in said, "the message lacks", word, said)


def a_jobs_record_and_summary_are_taken() -> None:
    with temporary_folder() as folder:
        job = folder / "images"
        job.mkdir()
        (job / "_job.json").write_text(json.dumps({"version": 2, "job": "x", "identity": {"verb": "download"}}))
        (job / "_summary.json").write_text(json.dumps({"rows_in": 100, "rows_out": 80, "parts": [{"size_bytes": 500}, {"size_bytes": 300}]}))
        plan("--from", job, "--output", folder / "plan")
        figures = figures_of(folder / "plan")
        require(figures["download_success"]["value"] == 0.8 and figures["picture_bytes"]["value"] == 10, "of the job", figures["picture_bytes"])
        summary = folder / "process.json"
        summary.write_text(json.dumps({"process": {"rows_in": 10, "rows_out": 10, "rows_per_second": 12.5, "resolution": 256}}))
        plan("--from", summary, "--output", folder / "plan")
        require(figures_of(folder / "plan")["encode_rate_256"]["value"] == 12.5, "of the summary")
        (job / "_job.json").write_text(json.dumps({"identity": {"verb": "process"}}))
        require("--json-summary" in plan("--from", job, expect=1).stderr, "a process folder says what to name")
        summary.write_text("[]")
        require("no JSON object" in plan("--from", summary, expect=1).stderr, "a summary that is none")


def the_summary_holds_every_figure() -> None:
    with temporary_folder() as folder:
        plan("--json-summary", folder / "summary.json")
        summary = json.loads((folder / "summary.json").read_text())["plan"]
        require(round(summary["train_accelerator_hours"]) == 13165, "summary", summary)


main([without_arguments_it_is_the_published_run, every_formula_gives_its_value_in_python_too, the_same_arguments_give_the_same_bytes, the_page_needs_no_network,
      what_does_not_fit_is_refused_by_name, a_jobs_record_and_summary_are_taken, the_summary_holds_every_figure])
