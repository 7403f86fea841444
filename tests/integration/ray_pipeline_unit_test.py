#!/usr/bin/env python3
"""Pipelines of darkroom-ray without Ray and without the program: recipes, stages that are refused, the report."""

import contextlib
import io
import json
import os
import types
import unittest.mock

from cases import main, require, temporary_folder
from ray_units import refusal_of  # noqa: E402

from darkroom_ray import pipeline, verbs  # noqa: E402
from darkroom_ray.flags import Refused  # noqa: E402
from darkroom_ray.stopping import JobFailed  # noqa: E402

RECIPE = """
[values]
out = "/data"

[[stage]]
name = "images"
verb = "download"
arguments = ["${out}/images", "--metadata", "urls.parquet"]

[[stage]]
name = "run-256"
verb = "train"
arguments = ["r.toml", "--output", "${out}/run"]

[[stage]]
name = "picture"
verb = "sample"
arguments = ["--model", "${run-256.checkpoint}", "--output", "a.png"]
"""


def a_pipeline_fills_in_values_and_checkpoints() -> None:
    recipe = pipeline.parse_recipe("p.toml", RECIPE)
    require([stage.verb for stage in recipe.stages] == ["download", "train", "sample"], "stages", recipe)
    require(pipeline.fill(recipe.stages[0], recipe, {}, "p.toml")[0] == "/data/images", "a value")
    facts = pipeline.facts_of({"--output": ["/data/run/"]}, {"train": {"steps": 12}})
    words = pipeline.fill(recipe.stages[2], recipe, {"run-256": facts}, "p.toml")
    require(words[1] == "/data/run/checkpoints/step-00000012", "a checkpoint", words)
    facts = pipeline.facts_of({"--output": ["s3://b/run?region=r"]}, {"train": {"steps": 12}})
    require(facts == {"checkpoint": "s3://b/run/checkpoints/step-00000012?region=r"}, "a checkpoint on a store with settings", facts)


def wrong_pipelines_are_refused_with_their_place() -> None:
    wrong = (
        ("", "has no [[stage]]"),
        ("a = 1", "got: a"),
        ("[[stage", "no TOML"),
        (RECIPE.replace("download", "downlod"), "stage 1: verb must be one of"),
        (RECIPE.replace('name = "images"\n', ""), "stage 1 must have name"),
        (RECIPE.replace('"images"', '"im ages"'), "name must be"),
        (RECIPE.replace('"images"', '"run-256"'), "two stages are called run-256"),
        (RECIPE.replace("${out}/run", "${ou}/run"), "${ou}"),
        (RECIPE.replace("run-256.checkpoint", "images.checkpoint"), "${images.checkpoint}"),
        (RECIPE.replace('"--metadata", "urls.parquet"', "3"), "list of texts"),
        (RECIPE.replace('out = "/data"', "out = 3"), "must be texts"),
    )
    for text, words in wrong:
        said = refusal_of(pipeline.parse_recipe, "p.toml", text)
        require(words in said and "p.toml" in said, "the refusal says something else", words, said)


def of_two_downloads(folder, **changed: str) -> pipeline.Pipeline:
    """In an existing folder; `changed`: arguments of the second stage besides, or the report's path."""
    more = "".join(f', "{word}"' for word in changed.get("words", "").split())
    text = "".join(f'[[stage]]\nname = "{name}"\nverb = "download"\narguments = ["out-{name}", "--metadata", "m"{words}]\n' for name, words in (("one", ""), ("two", more)))
    return pipeline.Pipeline("p.toml", pipeline.parse_recipe("p.toml", text), "head:1", changed.get("report", str(folder / "report.json")))


def run_with(job: pipeline.Pipeline, outcomes) -> tuple[int, list[dict]]:
    """Stages that end as told: their summary, or an error, in a list; or a function of them. The exit code and the stages of the report."""
    with unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}), unittest.mock.patch.object(verbs, "run_checked", side_effect=outcomes):
        with unittest.mock.patch.object(verbs, "check_room_for", lambda request, given: None):
            job.check()
            return job.run(None), json.loads(open(job.report, encoding="utf-8").read())["stages"]


def stages_run_in_their_order_and_are_reported() -> None:
    with temporary_folder() as folder:
        code, stages = run_with(of_two_downloads(folder), [(0, {"rows_in": 3}), (3, {"rows_in": 4})])
        require(code == 3 and [(one["name"], one["exit_code"], one["rows_in"]) for one in stages] == [("one", 0, 3), ("two", 3, 4)], "the report", code, stages)


def a_stage_writes_the_summary_that_it_is_asked_for() -> None:
    with temporary_folder() as folder:
        summary = folder / "two.json"
        run_with(of_two_downloads(folder, words=f"--json-summary {summary}"), [(0, {}), (0, {"rows_in": 4})])
        require(json.loads(summary.read_text()) == {"rows_in": 4}, "its summary", summary.read_text())


def the_report_sums_up_what_stages_with_a_price_have_cost() -> None:
    stages = [{"verb": "download", "download": {"dollars": 1.5}}, {"verb": "process", "process": {}}, {"verb": "online", "train": {"dollars": 2.0}}, {"verb": "sample", "error": "no GPU"}]
    require(pipeline.cost_of(stages) == {"dollars": 3.5} and pipeline.cost_of(stages[1:2]) == {}, "the sum", pipeline.cost_of(stages))
    with temporary_folder() as folder:
        pipeline.write_report(str(folder / "report.json"), "p.toml", stages, 0.0)
        require(json.loads((folder / "report.json").read_text())["dollars"] == 3.5, "the report")


def a_stage_that_the_cluster_refuses_is_named_and_reported() -> None:
    with temporary_folder() as folder:
        code, stages = run_with(of_two_downloads(folder), [(0, {}), Refused("nothing was begun: no node has a GPU")])
        require(code == 2 and stages[1]["exit_code"] == 2 and "no node has a GPU" in stages[1]["error"], "the report", code, stages)


def a_stage_whose_words_are_refused_in_its_turn_is_reported() -> None:
    """They name a checkpoint then."""

    def read(request) -> dict:
        if done:
            raise Refused("--init-from: there is no such folder")
        return {}

    done: list[int] = []
    patches = ((pipeline, "read_arguments", read), (verbs, "run_checked", lambda request, given, stop: done.append(1) or (0, {})), (verbs, "check_room_for", lambda request, given: None))
    with temporary_folder() as folder, contextlib.ExitStack() as beside:
        for place, name, fake in patches:
            beside.enter_context(unittest.mock.patch.object(place, name, fake))
        job = of_two_downloads(folder)
        job.check()
        require(job.run(None) == 2, "exit code")
        stages = json.loads(open(job.report, encoding="utf-8").read())["stages"]
        require([one["exit_code"] for one in stages] == [0, 2] and "no such folder" in stages[1]["error"], "the report", stages)


def flags_of_a_pipeline_take_their_values_in_either_way() -> None:
    for *words, is_quiet in (["--address=head:1", "--report=r.json", False], ["--address", "head:1", "--report", "r.json", "--quiet", True], ["--address=head:1", "--report=r.json", "--quiet=true", True], ["--quiet=false", "--address=head:1", "--report=r.json", False]):
        seen: list = []
        with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "Pipeline", lambda *words: seen.append(words) or types.SimpleNamespace(check=lambda: (_ for _ in ()).throw(Refused("so far")))):
            (folder / "a=b.toml").write_text('[[stage]]\nname = "s"\nverb = "sample"\narguments = []\n')
            require(refusal_of(pipeline.run_pipeline, [str(folder / "a=b.toml"), *words]) == "so far" and seen[0][2:] == ("head:1", "r.json", is_quiet), "flags", words, seen)


def what_is_no_flag_of_a_pipeline_is_refused() -> None:
    for word, words in (("--quiet=maybe", "--quiet is a switch"), ("--quieter", "no flag --quieter"), ("--report", "needs a value")):
        require(words in refusal_of(pipeline.run_pipeline, ["r.toml", word]), "the refusal", word)


def what_the_cluster_lacks_for_a_later_stage_is_told_before_the_first() -> None:
    begun: list[str] = []

    def check_room(request, given) -> None:
        if "m2" in request.arguments:
            raise Refused("nothing was begun: no node has a GPU")

    patches = ((pipeline, "read_arguments", lambda request: {}), (verbs, "run_checked", lambda request, given, stop: begun.append(request.verb) or (0, {})), (verbs, "check_room_for", check_room))
    with temporary_folder() as folder, contextlib.ExitStack() as beside:
        for place, name, fake in patches:
            beside.enter_context(unittest.mock.patch.object(place, name, fake))
        job = of_two_downloads(folder, words="m2")
        job.check()
        said = refusal_of(job.run, None)
        require("stage two: nothing was begun: no node has a GPU" in said and not begun, "the refusal", said, begun)
        job = of_two_downloads(folder)
        job.check()
        require(job.run(None) == 0 and begun == ["download", "download"], "a cluster that has all", begun)


def a_lost_cluster_ends_a_pipeline_before_its_first_stage() -> None:
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}):
        with unittest.mock.patch.object(verbs, "check_room_for", side_effect=JobFailed("the cluster was lost")):
            job = of_two_downloads(folder)
            job.check()
            require(job.run(None) == 1, "exit code")


def a_stage_keeps_its_exit_code_where_its_summary_cannot_be_written() -> None:
    for code, want in ((0, 1), (3, 3)):
        with temporary_folder() as folder:
            (folder / "there").mkdir()

            def run_and_lose_the_folder(request, given, stop, place=folder / "there", code=code) -> tuple[int, dict]:
                place.rmdir()
                return code, {"rows_in": 4}

            got, stages = run_with(of_two_downloads(folder, words=f"--json-summary {folder}/there/s.json"), FirstDone(run_and_lose_the_folder))
            require(got == want == stages[1]["exit_code"] and "--json-summary" in stages[1]["error"], "exit code", code, got, stages)
            require(stages[1]["rows_in"] == 4, "the report has the summary", stages)


def a_report_that_can_be_written_no_longer_is_a_failure() -> None:
    """Stages have run: it is none of the command line's."""
    for code, want in ((0, 1), (3, 3)):
        with temporary_folder() as folder, contextlib.ExitStack() as beside:
            (folder / "there").mkdir()
            done: list[str] = []

            def run_and_lose_the_folder(request, given, stop, place=folder / "there", code=code, done=done) -> tuple[int, dict]:
                done.append(request.verb)
                place.rmdir()
                return code, {}

            for place, name, fake in ((pipeline, "read_arguments", lambda request: {}), (verbs, "run_checked", run_and_lose_the_folder), (verbs, "check_room_for", lambda request, given: None)):
                beside.enter_context(unittest.mock.patch.object(place, name, fake))
            job = of_two_downloads(folder, report=f"{folder}/there/report.json")
            job.check()
            with contextlib.redirect_stderr(io.StringIO()) as said:
                got = job.run(None)
            require((got, done) == (want, ["download"]), "exit code, and no further stage", code, got, done)
            require("report.json cannot be written" in said.getvalue() and "is kept" in said.getvalue() and "same command" in said.getvalue(), "the sentence", said.getvalue())


class FirstDone:
    """Of run_checked: the first stage is done at once, the second one is this."""

    def __init__(self, second) -> None:
        self.second = second
        self.num_calls = 0

    def __call__(self, *words) -> tuple[int, dict]:
        self.num_calls += 1
        return self.second(*words) if self.num_calls == 2 else (0, {})


def a_quiet_pipeline_has_quiet_stages() -> None:
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}):
        for words, is_quiet, want in (("", False, [False, False]), ("--quiet", False, [False, True]), ("", True, [True, True])):
            job = of_two_downloads(folder, words=words)
            job.is_quiet = is_quiet
            job.check()
            require([request.is_quiet for _, request, _ in job.checked] == want, "stages", words, is_quiet, job.checked)


def a_stage_that_fails_writes_its_summary() -> None:
    with temporary_folder() as folder:
        code, stages = run_with(of_two_downloads(folder, words=f"--json-summary {folder}/two.json"), [(0, {}), JobFailed("item 3 failed", 1, {"rows_in": 7})])
        want = {"download": {"rows_in": 7}, "error": "item 3 failed"}
        require(json.loads((folder / "two.json").read_text()) == want and stages[1]["download"] == {"rows_in": 7} and stages[1]["error"] == "item 3 failed", "what it has done", stages)


def a_refused_start_is_reported_with_its_reason() -> None:
    def reported(job: pipeline.Pipeline, *calls) -> dict:
        for call in calls:
            refusal_of(call)
        return json.loads(open(job.report, encoding="utf-8").read())

    def refuse_second(request, given=None) -> dict:
        if "m2" in request.arguments:
            raise Refused("no node has a GPU")
        return {}

    with temporary_folder() as folder:
        with unittest.mock.patch.object(pipeline, "read_arguments", refuse_second):
            report = reported(job := of_two_downloads(folder, words="m2"), job.check)
        require([(one["name"], one["exit_code"], one["error"]) for one in report["stages"]] == [("two", 2, "no node has a GPU")], "a command line", report)
        with unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}), unittest.mock.patch.object(verbs, "check_room_for", refuse_second):
            job = of_two_downloads(folder, words="m2")
            job.check()
            report = reported(job, lambda: job.run(None))
        require([(one["name"], one["exit_code"], one["error"]) for one in report["stages"]] == [("two", 2, "no node has a GPU")] and "m2" in report["stages"][0]["arguments"], "room", report)


def a_cluster_that_is_refused_is_reported() -> None:
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}):
        (folder / "r.toml").write_text('[[stage]]\nname = "s"\nverb = "sample"\narguments = []\n')
        with unittest.mock.patch.object(pipeline, "connected", side_effect=Refused("nobody listens there")):
            require(refusal_of(pipeline.run_pipeline, [str(folder / "r.toml")]) == "nobody listens there", "the refusal")
        report = json.loads((folder / "report.json").read_text())
        require(report["error"] == "nobody listens there" and report["stages"] == [], "the report", report)
        with unittest.mock.patch.object(pipeline, "connected", side_effect=JobFailed("Ray did not start")), contextlib.redirect_stderr(io.StringIO()) as said:
            require(pipeline.run_pipeline([str(folder / "r.toml")]) == 1 and "Ray did not start" in said.getvalue(), "a Ray that does not start", said.getvalue())
        require(json.loads((folder / "report.json").read_text())["error"] == "Ray did not start", "its report")
        with unittest.mock.patch.object(pipeline, "connected", lambda request: contextlib.nullcontext()), unittest.mock.patch.object(pipeline, "StopWatch", lambda: None), unittest.mock.patch.object(verbs, "check_room_for", side_effect=JobFailed("the cluster was lost")):
            require(pipeline.run_pipeline([str(folder / "r.toml")]) == 1, "exit code")
        require(json.loads((folder / "report.json").read_text())["error"] == "the cluster was lost", "a lost one")


def an_older_report_stays_until_there_is_something_to_report() -> None:
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}):
        (folder / "report.json").write_text("older")
        of_two_downloads(folder).check()
        require((folder / "report.json").read_text() == "older" and len(os.listdir(folder)) == 1, "the older one", os.listdir(folder))
        require("cannot be written" in refusal_of(of_two_downloads(folder, report=str(folder)).check), "a folder")


def a_report_that_cannot_be_written_is_refused_before_the_first_stage() -> None:
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}):
        said = refusal_of(of_two_downloads(folder, report=str(folder / "none" / "report.json")).check)
        require("none/report.json cannot be written" in said, "the refusal", said)
        require(not os.path.exists(folder / "none"), "it was made")


def a_summary_that_cannot_be_written_is_refused_before_the_first_stage() -> None:
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}):
        said = refusal_of(of_two_downloads(folder, words=f"--json-summary {folder}/none/s.json").check)
        require("stage two" in said and "there is no folder" in said, "the refusal", said)


def a_file_of_settings_of_a_stage_is_looked_at() -> None:
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {"--json-summary": [str(folder / "s.json")]}):
        with unittest.mock.patch.object(verbs, "run_checked", lambda request, given, stop: (0, {"rows_in": 4})), unittest.mock.patch.object(verbs, "check_room_for", lambda request, given: None):
            job = of_two_downloads(folder)
            job.check()
            require(job.run(None) == 0 and json.loads((folder / "s.json").read_text()) == {"rows_in": 4}, "its summary")
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {"--trace-file": ["t"]}):
        require("stage one: --trace-file in --config" in refusal_of(of_two_downloads(folder).check), "a flag of the cluster")


def a_stage_with_a_cluster_of_its_own_is_refused() -> None:
    with temporary_folder() as folder, unittest.mock.patch.object(pipeline, "read_arguments", lambda request: {}):
        said = refusal_of(of_two_downloads(folder, words="--address other:1").check)
        require("stage two" in said and "one cluster" in said, "the refusal", said)


if __name__ == "__main__":
    main(
        [
            a_pipeline_fills_in_values_and_checkpoints,
            wrong_pipelines_are_refused_with_their_place,
            stages_run_in_their_order_and_are_reported,
            a_stage_writes_the_summary_that_it_is_asked_for,
            the_report_sums_up_what_stages_with_a_price_have_cost,
            a_stage_that_the_cluster_refuses_is_named_and_reported,
            a_stage_whose_words_are_refused_in_its_turn_is_reported,
            flags_of_a_pipeline_take_their_values_in_either_way,
            what_is_no_flag_of_a_pipeline_is_refused,
            what_the_cluster_lacks_for_a_later_stage_is_told_before_the_first,
            a_lost_cluster_ends_a_pipeline_before_its_first_stage,
            a_stage_keeps_its_exit_code_where_its_summary_cannot_be_written,
            a_report_that_can_be_written_no_longer_is_a_failure,
            a_quiet_pipeline_has_quiet_stages,
            a_stage_that_fails_writes_its_summary,
            a_refused_start_is_reported_with_its_reason,
            a_cluster_that_is_refused_is_reported,
            an_older_report_stays_until_there_is_something_to_report,
            a_report_that_cannot_be_written_is_refused_before_the_first_stage,
            a_summary_that_cannot_be_written_is_refused_before_the_first_stage,
            a_file_of_settings_of_a_stage_is_looked_at,
            a_stage_with_a_cluster_of_its_own_is_refused,
        ]
    )
