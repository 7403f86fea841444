"""`darkroom-ray pipeline recipe.toml`: stages one after the other, each a command line of a verb; one report. A stage that is done does
nothing the next time, so the same command goes on where it was cut."""

import contextlib
import dataclasses
import os
import re
import time
import tomllib
from typing import NoReturn

from darkroom_ray.cluster import connected
from darkroom_ray.flags import RUNS, UNHEARD, VERBS, Refused, read_request, switch, with_settings
from darkroom_ray.places import inside
from darkroom_ray.program import EXIT_USAGE, read_arguments
from darkroom_ray.progress import say
from darkroom_ray.request import Request, without_secrets
from darkroom_ray.stopping import JobFailed, Stopped, StopWatch
from darkroom_ray.summaries import check_summary_place, is_replaced, summary_of_end, write_json, write_summary

PLACE = re.compile(r"\$\{([^}]*)\}")
STAGE_KEYS = {"name", "verb", "arguments"}
USAGE = """usage: darkroom-ray pipeline RECIPE.toml [--address HOST:PORT] [--report PATH.json] [--quiet]

  RECIPE.toml  [values] name = "text", and a [[stage]] each with `name`, `verb` and `arguments`, in which ${name} is a value and
               ${stage.checkpoint} the last checkpoint of an earlier train stage (docs/cluster.md)
  --address    of the Ray cluster, as of every verb
  --report     where the report goes (report.json beside the recipe)
  --quiet      warnings and errors only, of every stage"""


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    verb: str
    arguments: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Recipe:
    values: dict[str, str]
    stages: tuple[Stage, ...]


def read_stage(path: str, number: int, table: object) -> Stage:
    where = f"{path}: stage {number + 1}"
    if not isinstance(table, dict) or set(table) != STAGE_KEYS:
        raise Refused(f"{where} must have name, verb and arguments, and nothing else; it has: {', '.join(table) if isinstance(table, dict) else table}")
    name, verb, arguments = table["name"], table["verb"], table["arguments"]
    if verb not in VERBS:
        raise Refused(f"{where}: verb must be one of {', '.join(VERBS)}, got: {verb}")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise Refused(f"{where}: name must be letters, digits, - and _, got: {name}")
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        raise Refused(f"{where}: arguments must be a list of texts, got: {arguments}")
    return Stage(name, verb, tuple(arguments))


def parse_recipe(path: str, text: str) -> Recipe:
    """Errors: Refused, naming file, stage and value."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{path} is no TOML: {error}") from None
    unknown = sorted(set(document) - {"values", "stage"})
    if unknown:
        raise Refused(f"{path}: there is [values] and [[stage]], got: {unknown[0]}")
    values = document.get("values", {})
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise Refused(f"{path}: [values] must be texts, got: {values}")
    stages = document.get("stage", [])
    if not isinstance(stages, list) or not stages:
        raise Refused(f"{path} has no [[stage]]")
    found = tuple(read_stage(path, number, table) for number, table in enumerate(stages))
    names = [stage.name for stage in found]
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise Refused(f"{path}: two stages are called {doubled[0]}")
    recipe = Recipe(values, found)
    for number, stage in enumerate(found):
        fill(stage, recipe, {earlier.name: {} for earlier in found[:number] if earlier.verb in RUNS}, path)
    return recipe


def fill(stage: Stage, recipe: Recipe, done: dict[str, dict], path: str) -> list[str]:
    """The stage's words with what stands for ${...}. `done`: facts of earlier stages by name; a checkpoint that is not made yet stands as
    its name."""

    def value_of(match: re.Match) -> str:
        name = match.group(1)
        if name in recipe.values:
            return recipe.values[name]
        earlier, _, what = name.partition(".")
        if what == "checkpoint" and earlier in done:
            return done[earlier].get("checkpoint", f"{earlier}.checkpoint")
        raise Refused(f"{path}: stage {stage.name} names ${{{name}}}, which is no value and no checkpoint of an earlier train stage")

    return [PLACE.sub(value_of, word) for word in stage.arguments]


def facts_of(given: dict[str, list[str]], summary: dict) -> dict:
    """What later stages may ask of a stage that is done."""
    steps = summary.get("train", {}).get("steps")
    return {"checkpoint": inside(given["--output"][0], f"checkpoints/step-{steps:08d}")} if steps is not None else {}


def cost_of(stages: list[dict]) -> dict:
    """Of all stages that have a price; empty where none has."""
    dollars = [stage[part]["dollars"] for stage in stages for part in ("download", "process", "train") if "dollars" in stage.get(part, {})]
    return {"dollars": sum(dollars)} if dollars else {}


def check_report_place(path: str) -> None:
    """Before the first stage. An older report stays. Errors: Refused."""
    if os.path.isdir(path):
        raise Refused(f"the report {path} cannot be written: it is a folder")
    try:
        if is_replaced(path):
            open(path + ".new", "w", encoding="utf-8").close()
            os.remove(path + ".new")
    except OSError as error:
        raise Refused(f"the report {path} cannot be written: {error.strerror}") from None


def write_report(path: str, recipe_path: str, stages: list[dict], start: float, error: str = "") -> None:
    """`error`: what was wrong with no stage, but with the cluster. Errors: Refused."""
    report = {"recipe": recipe_path, "seconds_total": time.monotonic() - start, **cost_of(stages), **({"error": error} if error else {}), "stages": stages}
    try:
        write_json(path, report)
    except OSError as error:
        raise Refused(f"the report {path} cannot be written: {error.strerror}") from None


class Pipeline:
    def __init__(self, path: str, recipe: Recipe, address: str, report: str, is_quiet: bool = False) -> None:
        self.path, self.recipe, self.address, self.report, self.is_quiet = path, recipe, address, report, is_quiet
        self.start = time.monotonic()
        self.records: list[dict] = []
        self.checked: list[tuple[Stage, Request, dict[str, list[str]]]] = []  # By check(): checkpoints stand as their names.

    def request_of(self, stage: Stage, done: dict[str, dict]) -> Request:
        words = fill(stage, self.recipe, done, self.path)
        request = read_request(stage.verb, words, os.getcwd(), os.environ.get("DARKROOM_PROGRAM", ""))
        if request.address:
            raise Refused("all stages run on one cluster: name it once, `darkroom-ray pipeline --address HOST:PORT`")
        return dataclasses.replace(request, address=self.address, is_quiet=self.is_quiet or request.is_quiet)

    def check(self) -> None:
        """The report's place and every command line before the first one is run. Errors: Refused."""
        check_report_place(self.report)
        done: dict[str, dict] = {}
        for stage in self.recipe.stages:
            try:
                request = self.request_of(stage, done)
                given = read_arguments(request)
                request = with_settings(request, given)
                self.checked.append((stage, request, given))
                check_summary_place(request.summary_path)
            except Refused as refusal:
                self.refuse(stage, refusal)
            done |= {stage.name: {}} if stage.verb in RUNS else {}

    def check_room(self) -> None:
        """What the cluster lacks for any stage, before the first one is run; places and versions are looked at when a stage's turn comes, since
        earlier ones make its inputs. Errors: Refused, JobFailed."""
        from darkroom_ray.verbs import check_room_for

        for stage, request, given in self.checked:
            try:
                check_room_for(request, given)
            except Refused as refusal:
                self.refuse(stage, refusal)

    def refuse(self, stage: Stage, refusal: Refused) -> NoReturn:
        """Before the first one is run: the report has this stage alone. Errors: Refused."""
        words = fill(stage, self.recipe, {earlier.name: {} for earlier in self.recipe.stages}, self.path)
        record = {"name": stage.name, "verb": stage.verb, "arguments": [without_secrets(word) for word in words], "exit_code": EXIT_USAGE, "seconds": 0.0, "error": str(refusal)}
        write_report(self.report, self.path, [record], self.start)
        raise Refused(f"{self.path}: stage {stage.name}: {refusal}") from None

    def report_no_cluster(self, why: Exception) -> None:
        """No stage was begun. Errors: Refused."""
        write_report(self.report, self.path, [], self.start, str(why))

    def run(self, stop: StopWatch) -> int:
        """The exit code. REQUIRES: check(). Errors: Refused, where nothing was begun."""
        try:
            self.check_room()
        except JobFailed as failure:
            say(str(failure))
            self.report_no_cluster(failure)
            return failure.code
        done: dict[str, dict] = {}
        for stage in self.recipe.stages:
            try:
                code, facts = self.run_stage(stage, done, stop)
            except JobFailed as failure:
                say(str(failure))
                return failure.code
            if code != 0:
                return code
            done[stage.name] = facts
        return 0

    def run_stage(self, stage: Stage, done: dict[str, dict], stop: StopWatch) -> tuple[int, dict]:
        """Exit code, and what later stages may ask of it. Errors: JobFailed: the report cannot be written any more."""
        from darkroom_ray.verbs import run_checked

        start = time.monotonic()
        record: dict = {"name": stage.name, "verb": stage.verb}
        given: dict[str, list[str]] = {}
        summary: dict = {}
        try:
            request = self.request_of(stage, done)
            record["arguments"] = [without_secrets(word) for word in request.arguments]
            given = read_arguments(request)
            request = with_settings(request, given)
            try:
                code, summary = run_checked(request, given, stop)
            except (JobFailed, Stopped) as failure:
                code, summary = failure.code, summary_of_end(request, failure)
                say(f"stage {stage.name}: {failure}; run the same command again to go on")
            write_summary(request.summary_path, summary, code)
        except JobFailed as failure:  # It cannot be written.
            code, record["error"] = failure.code, str(failure)
            say(f"stage {stage.name}: {failure}; run the same command again to go on")
        except Refused as refusal:
            code, record["error"] = EXIT_USAGE, str(refusal)
            say(f"{self.path}: stage {stage.name}: {refusal}")
        self.records.append(record | {"exit_code": code, "seconds": time.monotonic() - start, **summary})
        try:
            write_report(self.report, self.path, self.records, self.start)
        except Refused as refusal:
            raise JobFailed(f"{refusal}; what the stages have done is kept: run the same command again to go on", code or 1) from None
        return code, facts_of(given, summary) if code == 0 else {}


def run_pipeline(words: list[str]) -> int:
    """Errors: Refused."""
    if "--help" in words or "-h" in words:
        print(USAGE)
        return 0
    options = {"--address": "", "--report": ""}
    is_quiet = False
    paths = []
    rest = list(words)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if word in options:
            if not equals and not rest:
                raise Refused(f"{word} needs a value")
            options[word] = value if equals else rest.pop(0)
        elif word in UNHEARD:
            is_quiet = switch(word, value)
        elif word.startswith("--"):
            raise Refused(f"pipeline has no flag {word}")
        else:
            paths.append(word + equals + value)
    if len(paths) != 1:
        raise Refused(f"pipeline takes one recipe, got: {', '.join(paths) or 'none'}")
    try:
        with open(paths[0], encoding="utf-8") as file:
            recipe = parse_recipe(paths[0], file.read())
    except OSError as error:
        raise Refused(f"{paths[0]} cannot be read: {error.strerror}") from None
    pipeline = Pipeline(paths[0], recipe, options["--address"], options["--report"] or os.path.join(os.path.dirname(paths[0]), "report.json"), is_quiet)
    pipeline.check()
    with contextlib.ExitStack() as until_end:
        try:
            until_end.enter_context(connected(Request("pipeline", (), address=options["--address"])))
        except Refused as refusal:
            pipeline.report_no_cluster(refusal)
            raise
        except JobFailed as failure:
            say(str(failure))
            pipeline.report_no_cluster(failure)
            return failure.code
        return pipeline.run(StopWatch())  # Behind Ray, which has handlers of its own.
