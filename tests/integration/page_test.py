#!/usr/bin/env python3
"""The page of `darkroom serve` in a real browser, with real clicks and keys: over a painter that paints when it is told to, then over the program.

usage: page_test.py
"""

import atexit
import base64
import contextlib
import io
import json
import pathlib
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request

import numpy as np

from cases import made_once, main, require, temporary_folder
from serve_test import IMG2IMG, KEY, Server, base64_of, gradient, model, pixels, write_datasets
from workbench import PROGRAM, ROOT, run

sys.path.insert(0, str(ROOT / "tests" / "support"))

from PIL import Image, PngImagePlugin  # noqa: E402

from browser import Browser  # noqa: E402: it lies beside the tests' other support.
from fake_painter import FakeDataset, FakePainter, FakeRun, Handler, color_of, png_of  # noqa: E402

PAGE = ROOT / "src" / "serve" / "page"
READY = "'ready' in document.documentElement.dataset"
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>&lt;b&gt;'


def started_browser() -> Browser:
    started = Browser()
    atexit.register(started.__exit__)
    return started


browser = made_once(started_browser)  # Each case has a profile of its own.


def finished_jobs(painter: FakePainter, count: int, *fields: str) -> list[tuple]:
    """What the next jobs ask for in these fields; each is finished before the next is taken."""
    asked = []
    for _ in range(count):
        job = painter.next_job()
        asked.append(tuple(job.request[field] for field in fields))
        job.finish()
    return asked


@contextlib.contextmanager
def opened(painter: FakePainter, allowed: tuple[str, ...] = (), **view):
    """The page, ready; at the end its console must have been silent but for `allowed`."""
    with browser().tab(painter.address, **view) as tab:
        tab.wait_for(READY)
        yield tab
        tab.require_quiet(*allowed)


@contextlib.contextmanager
def page_of_fake(features: dict | None = None, **view):
    """(painter, tab) of a painter with these features."""
    with FakePainter(PAGE) as painter:
        painter.facts["features"] = features or {}
        with opened(painter, **view) as tab:
            yield painter, tab


@contextlib.contextmanager
def page_of_program(*flags: str):
    """(server, tab) of the program, which paints with random weights."""
    browser()  # Where there is none, nothing is served.
    with Server(model(), *flags) as server, browser().tab(f"http://127.0.0.1:{server.port}/") as tab:
        yield server, tab


class ShakyHandler(Handler):
    def handle_api(self, body: bytes) -> None:
        painter: ShakyPainter = self.server.painter
        fault = next((one for one in painter.faults if re.fullmatch(one[0], f"{self.command} {self.path}")), None)
        if fault is None:
            return super().handle_api(body)
        if fault[1] == 0:  # The connection ends without an answer.
            self.close_connection = True
            return None
        return self.refuse(fault[1], "this is a fault")


class ShakyPainter(FakePainter):
    """What begins with a fault's expression, as "GET /v1/jobs/.*", gets its status as long as the fault stands."""

    def __init__(self) -> None:
        super().__init__(PAGE)
        self.faults: list[tuple[str, int]] = []
        self.server.RequestHandlerClass = ShakyHandler


def num_of(selector: str) -> str:
    return f"document.querySelectorAll({json.dumps(selector)}).length"


def value_of(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)}).value"


def paint_one(painter: FakePainter, tab, num_whole: int = 1) -> dict:
    """Paints by a click and lets it be done; returns what the server was asked for."""
    tab.click("#paint")
    job = painter.next_job()
    job.finish()
    tab.wait_for(f"{num_of('#tasks img.whole')} === {num_whole}")
    return job.request


def open_tab(tab, name: str) -> None:
    tab.click(f"#tab-{name}")
    tab.wait_for(f"!document.querySelector('#{name}').hidden")


def one_click_paints_and_shows_how_far_it_is() -> None:
    with page_of_fake() as (painter, tab):
        tab.click("#paint")
        job = painter.next_job()
        seed = int(tab.value(value_of("#seed")))
        want = {"prompt": "red apple", "negative_prompt": "", "width": 64, "height": 64, "steps": 30, "guidance_scale": 7.5, "seed": seed, "images": 1, "preview_every": 4}
        require(job.request == want, "the request", job.request)
        tab.wait_for("document.querySelector('.task .state').textContent === 'queued'")
        job.progress(6)
        tab.wait_for("document.querySelector('.task .state').textContent === 'step 6 of 30' && document.querySelector('.task progress').value === 0.2")
        require(tab.text("#status") == "1 job to be painted", "the status", tab.text("#status"))
        job.preview(0)
        tab.wait_for(f"{num_of('.task img.preview')} === 1 && document.querySelector('.task img').naturalWidth === 8")
        job.finish()
        tab.wait_for(f"{num_of('.task img.whole')} === 1 && document.querySelector('.task img').naturalWidth === 64")
        tab.wait_for("document.querySelector('.task .state').textContent === 'done' && document.querySelector('#status').textContent === ''")
        require(tab.value("document.querySelector('.task progress').hidden && document.querySelector('.task .cancel').hidden"), "progress of a job that is done")


def settings_of_the_form_are_what_is_asked_for() -> None:
    with page_of_fake() as (painter, tab):
        tab.fill("#description", "an old fisherman")
        tab.choose("#kind", "oil painting")
        tab.choose("#style", "minimal")
        tab.fill("#negative_prompt", "blurry")
        tab.click("#negatives button:nth-child(1)")
        tab.fill("#steps", "12")
        tab.fill("#guidance_scale", "4.5")
        tab.choose("#sampler", "euler_a")
        tab.fill("#width", "128")
        tab.click("#swap-sides")
        tab.fill("#images", "2")
        tab.fill("#seed", "77")
        tab.click("#keeps-seed")
        request = paint_one(painter, tab, 2)
        want = {"prompt": "an oil painting of an old fisherman, minimalist, clean lines, plain background", "steps": 12, "guidance_scale": 4.5, "sampler": "euler_a",
                "negative_prompt": "blurry, low quality, jpeg artifacts, noise", "width": 64, "height": 128, "images": 2, "seed": 77, "preview_every": 2}
        require(request == want, "the request", request)
        require(want["prompt"] in tab.text("#whole-prompt"), "the whole prompt is shown", tab.text("#whole-prompt"))
        require(paint_one(painter, tab, 4)["seed"] == 77, "a seed that is kept")
        tab.click("#keeps-seed")
        require(paint_one(painter, tab, 6)["seed"] != 77, "a seed that is drawn")
        tab.fill("#steps", "101")
        tab.click("#paint")
        require(tab.value("document.querySelector('#steps').validity.rangeOverflow && document.activeElement.id === 'steps'"), "a bound of the server's")
        tab.reload()
        tab.wait_for(READY)
        require(tab.value(value_of("#description")) == "an old fisherman" and tab.value(value_of("#kind")) == "oil painting", "settings are kept")
        require(len(painter.jobs) == 3, "jobs asked for", len(painter.jobs))


def jobs_are_cancelled_by_a_button_and_by_escape() -> None:
    with page_of_fake() as (painter, tab):
        tab.fill("#sweep-count", "24")  # Six jobs of four pictures: four at the server, two in the page.
        tab.click("#sweep")
        jobs = [painter.next_job() for _ in range(4)]
        first = jobs[0].request["seed"]
        require([job.request["seed"] for job in jobs] == [first, first + 4, first + 8, first + 12], "seeds in a row", [job.request["seed"] for job in jobs])
        require(tab.text("#status") == "6 jobs to be painted", "the status", tab.text("#status"))
        tab.click(".task:nth-child(1) .cancel")
        tab.wait_for("document.querySelector('.task:nth-child(1)').dataset.state === 'cancelled'")
        jobs.append(painter.next_job())  # One of the page's takes its place.
        require(jobs[4].request["seed"] == first + 16, "the next seeds", jobs[4].request["seed"])
        jobs[1].progress(3)
        tab.press("Escape")
        tab.wait_for(f"{num_of('.task[data-state=cancelled]')} === 6 && document.querySelector('#cancel-all').hidden")
        require(all(job.status == "cancelled" for job in jobs) and len(painter.jobs) == 5, "jobs of the server", [job.status for job in jobs])


def a_sweep_asks_for_no_more_pictures_at_a_time_than_the_server_takes() -> None:
    with page_of_fake() as (painter, tab):
        tab.fill("#seed", "10")
        tab.click("#keeps-seed")
        tab.fill("#sweep-count", "6")
        tab.click("#sweep")
        jobs = [painter.next_job() for _ in range(2)]
        require([(job.request["seed"], job.request["images"]) for job in jobs] == [(10, 4), (14, 2)], "the jobs", [job.request for job in jobs])
        for job in jobs:
            job.finish()
        tab.wait_for(f"{num_of('#tasks img.whole')} === 6")
        seeds = tab.value("[...document.querySelectorAll('#tasks figcaption')].map((one) => one.textContent)")
        require(seeds == [f"seed {seed}" for seed in range(10, 16)], "captions", seeds)


def what_the_server_refuses_is_a_sentence_and_a_full_queue_is_asked_again() -> None:
    with page_of_fake(allowed=("429", "400", "500", "ERR_", "Failed to load")) as (painter, tab):
        painter.refusals = [(429, "it would take too long; ask for less", {"Retry_After": "0"})] * 60
        tab.click("#paint")
        tab.wait_for("document.querySelector('#problem p').textContent === 'Refused 60 times, the last time because: It would take too long; ask for less.'")
        require(painter.refusals == [] and painter.jobs == {}, "refusals that nobody met", len(painter.refusals))
        painter.refusals = [(429, "the queue is full", {"Retry_After": "0"})] * 3
        painter.num_busy = 2
        paint_one(painter, tab)
        require((painter.refusals, painter.num_busy) == ([], 0), "refusals that nobody met", painter.refusals, painter.num_busy)
        painter.refusals = [(400, 'the field steps must be even, got: <b>30</b>', {})]
        tab.click("#paint")
        tab.wait_for("!document.querySelector('#problem').hidden")
        require(tab.text("#problem p") == "The field steps must be even, got: <b>30</b>.", "the sentence", tab.text("#problem p"))
        tab.click("#problem button")
        tab.click("#paint")
        painter.next_job().fail("painting failed; the log says why")
        tab.wait_for("!document.querySelector('#problem').hidden && document.querySelector('.task .state').textContent.startsWith('failed: painting failed')")
        painter.warnings = ["the prompt is longer than the model reads; left out: <b>tail</b>"]
        tab.click("#paint")
        painter.next_job()
        tab.wait_for("document.querySelector('.task .warnings').textContent === 'Note: the prompt is longer than the model reads; left out: <b>tail</b>'")
        painter.is_gone = True
        tab.click("#paint")
        tab.wait_for("document.querySelector('#problem p').textContent === 'The server does not answer. Does it still run?'")

def events_that_break_off_and_a_page_that_is_loaded_anew_lose_no_job() -> None:
    with page_of_fake({"image_to_image": True}, allowed=("ERR_", "Failed to load")) as (painter, tab), temporary_folder() as folder:
        tab.click("#paint")
        job = painter.next_job()
        job.progress(2)
        tab.wait_for("document.querySelector('.task .state').textContent === 'step 2 of 30'")
        with job.changed:
            job.drops = 1
            job.changed.notify_all()
        job.progress(3)
        tab.wait_for("document.querySelector('.task .state').textContent === 'step 3 of 30'")
        tab.reload()
        tab.wait_for(READY)
        tab.wait_for("document.querySelector('.task .state').textContent === 'step 3 of 30'")
        require(tab.text("#status") == "1 job to be painted", "the status after a reload", tab.text("#status"))
        job.finish()
        tab.wait_for(f"{num_of('#tasks img.whole')} === 1")
        # There is room for what is noted of a job, from 4,000 to 12,192 characters, but not for its start picture of 16,000.
        tab.value("""(() => {
          let text = "";
          for (let size = 2 ** 23; size >= 2 ** 13; size /= 2) {
            try {
              sessionStorage.setItem("filler", text + "x".repeat(size));
              text += "x".repeat(size);
            } catch {}
          }
          sessionStorage.setItem("filler", text.slice(4000));
        })()""")
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(folder / "start.png")
        tab.drop(folder / "start.png", "#start-picture")
        tab.wait_for("document.querySelector('#strength-row').checkVisibility()")
        tab.click("#paint")
        job = painter.next_job()
        require(len(job.request["init_image"]) > 16_000, "the start picture", len(job.request["init_image"]))
        job.progress(4)
        tab.wait_for("document.querySelector('.task .state').textContent === 'step 4 of 30'")
        tab.reload()
        tab.wait_for(READY)
        tab.wait_for("document.querySelector('.task .state').textContent === 'step 4 of 30'")
        job.finish()
        tab.wait_for(f"{num_of('#tasks img.whole')} === 1")


def a_network_that_is_gone_for_a_while_loses_no_job() -> None:
    state = "document.querySelector('.task .state').textContent"
    with ShakyPainter() as painter, opened(painter, ("ERR_", "Failed to load")) as tab:
        tab.value("{const whole = setTimeout; window.setTimeout = (act, time) => whole(act, time / 20);}")  # A second is short.
        for status in (0, 503, 429):  # Of all that is asked about a job while it is painted.
            tab.click("#paint")
            job = painter.next_job()
            job.progress(2)
            tab.wait_for(f"{state} === 'step 2 of 30'")
            painter.faults = [(r"GET /v1/jobs/.*", status)]
            with job.changed:
                job.drops = 1
                job.changed.notify_all()
            tab.wait_for(f"{state}.includes('asking again in')")
            require(tab.value("JSON.parse(sessionStorage.getItem('darkroom.open')).length") == 1, "the note of a job", status)
            painter.faults = []
            job.progress(5)
            tab.wait_for(f"{state} === 'step 5 of 30'")
            painter.faults = [(r"GET /v1/jobs/.*/images/.*", status)]  # Of its pictures.
            job.finish()
            tab.wait_for(f"{state}.includes('asking again in')")
            painter.faults = []
            tab.wait_for(f"{state} === 'done' && {num_of('.task:first-child img.whole')} === 1")
        require(tab.value("sessionStorage.getItem('darkroom.open')") == "[]", "notes of jobs that are done")

        tab.click("#paint")  # A cancellation that does not arrive is sent again.
        job = painter.next_job()
        job.progress(2)
        tab.wait_for(f"{state} === 'step 2 of 30'")
        painter.faults = [(r"\w+ /v1/jobs/.*", 0)]
        with job.changed:
            job.drops = 1
            job.changed.notify_all()
        tab.click(".task .cancel")
        tab.wait_for(f"{state}.includes('cancelling again in')")
        painter.faults = []
        tab.wait_for("document.querySelector('.task').dataset.state === 'cancelled'")

        tab.click("#paint")  # What is refused for another reason is not asked again, and a page that is loaded anew goes on.
        job = painter.next_job()
        painter.faults = [(r"GET /v1/jobs/.*/images/.*", 403)]
        job.finish()
        tab.wait_for(f"{state} === 'failed: This is a fault'")
        painter.faults = []
        tab.reload()
        tab.wait_for(READY)
        tab.wait_for(f"{state} === 'done' && {num_of('.task img.whole')} === 1")
        tab.click("#paint")
        job = painter.next_job()
        painter.faults = [(r"GET /v1/jobs/.*", 410)]
        job.finish()
        tab.wait_for("document.querySelector('.task').dataset.state === 'failed'")
        require(tab.value("sessionStorage.getItem('darkroom.open')") == "[]", "the note of a job that the server does not know")


def pictures_that_a_safety_checker_leaves_of_a_job_are_there() -> None:
    state = "document.querySelector('.task .state').textContent"

    def finish(painter: FakePainter, *blocked: int) -> None:
        job = painter.next_job()
        job.status = "done"
        state = job.state()
        job.say("done", {**state, "images": [None if index in blocked else path for index, path in enumerate(state["images"])]})

    with page_of_fake() as (painter, tab):
        tab.fill("#seed", "7")
        tab.click("#keeps-seed")
        tab.fill("#images", "3")
        tab.click("#paint")
        finish(painter, 1)
        tab.wait_for(f"{state} === \"done: The server's safety checker has blocked 1 of 3 pictures\" && {num_of('.task img.whole')} === 2")
        require(tab.value("[...document.querySelectorAll('.task .place')].map((one) => one.classList.contains('gone'))") == [False, True, False], "places")
        tab.click(".task figure:nth-child(3) .picture")
        tab.wait_for("document.querySelector('#viewer').open && document.querySelector('#viewer-title').textContent === 'Seed 9'")
        tab.click("#viewer-close")
        open_tab(tab, "history")
        tab.wait_for(f"{num_of('#history-list figure')} === 2")
        names = tab.value("[...document.querySelectorAll('#history-list .picture')].map((one) => one.ariaLabel.slice(-6))")
        require(names == ["seed 9", "seed 7"], "the history", names)

        open_tab(tab, "grid")
        tab.choose("#x-field", "images")
        tab.fill("#x-values", "3")
        tab.choose("#y-field", "none")
        tab.click("#grid-paint")
        finish(painter, 0)
        tab.wait_for(f"{num_of('#grid-table img.whole')} === 2 && document.querySelector('#grid-table td .dim').textContent.includes('has blocked 1 of 3')")
        tab.click("#grid-table .place:nth-child(3) .picture")
        tab.wait_for("document.querySelector('#viewer').open && document.querySelector('#viewer-title').textContent === 'Seed 9'")
        tab.click("#viewer-close")
        tab.click("#grid-image")
        _, path = tab.next_file()
        drawn = Image.open(path).convert("RGB")
        require(drawn.size == (96 + 3 * 68, 32 + 68) and [drawn.getpixel((128 + 68 * index, 64)) == (255, 255, 255) for index in range(3)] == [True, False, False],
                "the grid as one picture", drawn.size)

        open_tab(tab, "pictures")
        tab.click("#paint")
        finish(painter, 0, 1, 2)
        tab.wait_for(f"{state} === \"failed: The server's safety checker has blocked 3 of 3 pictures\"")


def a_grid_is_a_labelled_table_of_pictures() -> None:
    with page_of_fake() as (painter, tab):
        tab.fill("#seed", "5")
        tab.click("#keeps-seed")
        open_tab(tab, "grid")
        tab.choose("#x-field", "words")
        tab.fill("#x-values", 'apple, pear, "plum, ripe"')
        tab.choose("#y-field", "steps")
        tab.fill("#y-values", "10-20 (+10)")
        require(tab.text("#grid-count") == "2 x 3 = 6 pictures", "the count", tab.text("#grid-count"))
        tab.click("#grid-paint")
        asked = finished_jobs(painter, 6, "prompt", "steps", "seed", "images")
        require(asked == [(f"red {word}", steps, 5, 1) for steps in (10, 20) for word in ("apple", "pear", "plum, ripe")], "the cells", asked)
        tab.wait_for(f"{num_of('#grid-table td img.whole')} === 6")
        require(tab.value("[...document.querySelectorAll('#grid-table th[scope=col]')].map((one) => one.textContent)") == ["apple", "pear", "plum, ripe"], "columns")
        require(tab.value("[...document.querySelectorAll('#grid-table th[scope=row]')].map((one) => one.textContent)") == ["Steps 10", "Steps 20"], "rows")
        tab.click("#grid-table tbody tr:nth-child(2) td:nth-child(3) button")
        tab.wait_for("document.querySelector('#viewer').open")
        require("red pear" in tab.text("#viewer-body") and "20" in tab.text("#viewer-body"), "the cell's settings", tab.text("#viewer-body"))
        tab.click("#viewer-close")
        tab.click("#grid-image")
        name, path = tab.next_file()
        require(name == "darkroom-grid-5.png" and Image.open(path).size > (192, 128), "the grid as one picture", name)
        tab.value("{const whole = HTMLCanvasElement.prototype.toBlob; HTMLCanvasElement.prototype.toBlob = function(take) {"
                  "HTMLCanvasElement.prototype.toBlob = whole; take(null);};}")  # As of a canvas that is too large.
        tab.click("#grid-image")
        tab.wait_for("document.querySelector('#problem p').textContent.includes('as large as this table')")
        tab.click("#grid-json")
        name, path = tab.next_file()
        saved = json.loads(path.read_text())
        require(saved["x"] == {"field": "words", "values": 'apple, pear, "plum, ripe"'} and saved["settings"]["seed"] == 5, "the grid as JSON", saved)

        tab.fill("#description", "something else")
        tab.choose("#x-field", "sampler")
        tab.click("#x-all")
        require(tab.value(value_of("#x-values")) == "ddim, euler, euler_a", "all samplers")
        kept = path.with_name(name)
        path.rename(kept)
        tab.drop(kept)
        tab.wait_for(f"{value_of('#description')} === 'red apple' && {value_of('#x-field')} === 'words' && {value_of('#y-values')} === '10-20 (+10)'")


def a_wrong_axis_of_a_grid_is_a_sentence() -> None:
    with page_of_fake() as (painter, tab):
        open_tab(tab, "grid")
        tab.choose("#y-field", "none")
        for field, values, part in (("steps", "10, some", "whole number"), ("steps", "1.5", "whole number"), ("steps", "9-1", "goes up"), ("guidance_scale", "", "no values"),
                                    ("words", "pear, apple", "pear"), ("sampler", "heun", "heun"), ("size", "64", "WIDTHxHEIGHT"), ("seed", "1-101", "at most 100"),
                                    ("seed", "1-60, 1-60", "at most 100"), ("words", '"", pear', "first of the words")):
            tab.choose("#x-field", field)
            if values:
                tab.fill("#x-values", values)
            tab.click("#grid-paint")
            tab.wait_for(f"document.querySelector('#problem p').textContent.includes({json.dumps(part)}) && !document.querySelector('#problem').hidden")
            tab.click("#problem button")
        require(len(painter.jobs) == 0, "jobs of a wrong grid", len(painter.jobs))


def the_history_brings_all_settings_back_and_is_bounded() -> None:
    with page_of_fake() as (painter, tab):
        tab.fill("#description", "a first picture")
        tab.fill("#negative_prompt", "grey")
        tab.choose("#style", "studio")
        tab.choose("#sampler", "ddim")
        tab.fill("#steps", "9")
        tab.fill("#guidance_scale", "3.5")
        tab.fill("#height", "96")
        tab.fill("#images", "2")
        first = paint_one(painter, tab, 2)
        tab.click("#examples button:nth-child(3)")
        tab.fill("#steps", "20")
        tab.fill("#images", "1")
        paint_one(painter, tab, 3)
        open_tab(tab, "history")
        tab.wait_for(f"{num_of('#history-list figure')} === 3")  # Kept, before the page goes.
        tab.reload()
        tab.wait_for(READY)
        open_tab(tab, "history")
        tab.wait_for(f"{num_of('#history-list figure')} === 3")
        tab.click("#history-list figure:nth-child(3) .picture")  # The oldest.
        tab.wait_for(f"{value_of('#description')} === 'a first picture'")
        again = paint_one(painter, tab, 2)
        require(again == first, "another request than that of the history", again, first)
        open_tab(tab, "history")
        tab.wait_for(f"{num_of('#history-list figure')} === 5")
        tab.click("#history-list figure:nth-child(1) figcaption button:nth-of-type(2)")
        tab.wait_for(f"{num_of('#history-list figure')} === 4")

        kept = tab.value("""import("/page/history.js").then(async ({History, kMostPictures}) => {
          const history = new History();
          for (let index = 0; index < kMostPictures + 3; ++index) await history.add({request: {prompt: `p${index}`}, seed: index, blob: new Blob(["x"])});
          const list = await history.list();
          return [kMostPictures, list.length, list.at(0).seed, list.at(-1).seed];
        })""")
        require(kept == [200, 200, 202, 3], "what is kept (bound, number, newest, oldest)", kept)
        open_tab(tab, "pictures")
        open_tab(tab, "history")
        tab.wait_for(f"{num_of('#history-list figure')} === 200")
        tab.click("#history-clear")
        tab.wait_for(f"{num_of('#history-list figure')} === 0 && document.querySelector('#history-clear').hidden")


def a_history_that_has_no_room_lasts_as_long_as_the_page() -> None:
    shown = "[...document.querySelectorAll('#history-list .picture')].map((one) => Number(one.ariaLabel.match(/seed (.*)/)[1]))"
    with page_of_fake() as (painter, tab):
        # As a full disk does it: the record is taken, and the transaction ends without it.
        tab.value("""{window.fullFor = 0;
          const add = IDBObjectStore.prototype.add;
          IDBObjectStore.prototype.add = function(record) {
            const request = add.call(this, record);
            if (window.fullFor-- > 0) request.addEventListener("success", () => this.transaction.abort());
            return request;
          };}""")
        seeds = []

        def paint(full_for: int, *kept: int) -> None:
            tab.value(f"window.fullFor = {full_for}")
            open_tab(tab, "pictures")
            seeds.append(paint_one(painter, tab, len(seeds) + 1)["seed"])
            open_tab(tab, "history")
            tab.wait_for(f"{shown}.join() === '{','.join(str(seeds[number]) for number in kept)}'")

        paint(0, 0)
        paint(0, 1, 0)
        paint(0, 2, 1, 0)
        paint(1, 3, 2, 1)  # There is room as soon as the oldest is gone.
        paint(2, 4, 3, 2)  # There is none: it is kept by the page.
        paint(0, 5, 4, 3, 2)  # Both kinds stand in their order.
        tab.click("#history-list figure:nth-child(3) figcaption button:nth-of-type(2)")
        tab.wait_for(f"{shown}.join() === '{seeds[5]},{seeds[4]},{seeds[2]}'")
        tab.reload()
        tab.wait_for(READY)
        open_tab(tab, "history")
        tab.wait_for(f"{shown}.join() === '{seeds[5]},{seeds[2]}'")
        tab.click("#history-clear")
        tab.wait_for(f"{num_of('#history-list figure')} === 0")


PROMPTS = [
    ("a red apple", "blurry, grey"),
    ("ein Apfel für Zoë", ""),
    ("りんご 🍎 (ripe:1.3), \"quoted\"", "text: none, \\ backslash"),
    ("first line\nNegative prompt: no, this is the prompt\nSteps: 3, Seed: 4", "Negative prompt: twice\nand on"),
    ("", ""),
    (HOSTILE, HOSTILE),
]


def a_png_brings_its_settings_back() -> None:
    with page_of_fake() as (painter, tab), temporary_folder() as folder:
        tab.choose("#sampler", "euler_a")
        for index, (prompt, negative) in enumerate(PROMPTS):
            tab.value(f"{value_of('#description')} = {json.dumps(prompt)}; {value_of('#negative_prompt')} = {json.dumps(negative)}")
            tab.fill("#guidance_scale", f"{index}.25")
            request = paint_one(painter, tab, index + 1)
            require((request["prompt"], request["negative_prompt"]) == (prompt, negative), "the request", request)
            tab.click(".task:nth-child(1) .picture")
            tab.click("#viewer-save")
            name, path = tab.next_file()
            require(name == f"darkroom-{request['seed']}.png", "the name", name)
            tab.click("#viewer-close")
            picture = Image.open(path)
            picture.load()  # Pillow checks every CRC.
            require(picture.info["parameters"].startswith(prompt) and f"Seed: {request['seed']}, Size: 64x64, Model: fake" in picture.info["parameters"], "the text", picture.info)
            require(picture.size == (64, 64), "the pixels stay", picture.size)

            kept = folder / f"{index}.png"
            kept.write_bytes(path.read_bytes())
            tab.fill("#description", "something else")
            tab.fill("#negative_prompt", "something else")
            tab.fill("#seed", "1")
            tab.choose("#sampler", "")
            tab.choose("#kind", "icon")
            tab.value("document.activeElement.blur()")
            tab.drop(kept)
            tab.wait_for(f"{value_of('#seed')} === '{request['seed']}'")
            got = tab.value(f"[{value_of('#description')}, {value_of('#negative_prompt')}, {value_of('#guidance_scale')}, {value_of('#sampler')}, {value_of('#kind')}, {value_of('#prompt_syntax')}]")
            require(got == [prompt, negative, f"{index}.25", "euler_a", "as written", "plain"], "what comes back", got)
            tab.click("#keeps-seed")
        require(tab.value("window.hacked === undefined"), "a prompt became markup")


def write_png(path: pathlib.Path, size: tuple[int, int] = (8, 8), **texts: str) -> pathlib.Path:
    info = PngImagePlugin.PngInfo()
    for name, text in texts.items():
        info.add_text(name, text, zip=name == "zipped") if name != "zipped" else info.add_text("parameters", text, zip=True)
    Image.new("RGB", size).save(path, pnginfo=info)
    return path


def pictures_of_other_programs_are_read_and_bad_ones_are_refused_in_a_sentence() -> None:
    webui = "a lighthouse, storm\nNegative prompt: blurry\nSteps: 22, Sampler: DPM++ 2M Karras, CFG scale: 6.5, Seed: 9, Size: 128x96, Model hash: 6ce0161689, Model: v1-5"
    with page_of_fake() as (painter, tab), temporary_folder() as folder:
        painter.facts["samplers"].append("dpmpp_2m_karras")
        tab.reload()
        tab.wait_for(READY)
        for name, picture in (("plain", write_png(folder / "webui.png", parameters=webui)), ("zipped", write_png(folder / "zipped.png", zipped=webui))):
            tab.fill("#description", "something else")
            tab.drop(picture)
            tab.wait_for(f"{value_of('#description')} === 'a lighthouse, storm'")
            got = tab.value(f"['#negative_prompt', '#steps', '#sampler', '#guidance_scale', '#seed', '#width', '#height'].map((one) => document.querySelector(one).value)")
            require(got == ["blurry", "22", "dpmpp_2m_karras", "6.5", "9", "128", "96"], "settings of another program", name, got)
        whole = (folder / "webui.png").read_bytes()
        at = whole.index(b"lighthouse")
        bad = {
            "flipped.png": (whole[:at] + b"L" + whole[at + 1 :], "are damaged"),
            "cut.png": (whole[:60], "cut off"),
            "none.png": (write_png(folder / "none.png").read_bytes(), "no settings"),
            "other.png": (write_png(folder / "other.png", parameters="hello").read_bytes(), "no settings that could be read"),
            "long.png": (write_png(folder / "long.png", parameters="x" * 60_000 + "\nSteps: 1").read_bytes(), "too long"),
            "bomb.png": (write_png(folder / "bomb.png", zipped="x" * 5_000_000).read_bytes(), "unpack to more"),
            "text.txt": (b"hello", "PNG files"),
            "a.json": (b"{", "JSON"),
            "b.json": (b'{"format": "other"}', "no grid"),
            "c.json": (b'{"format": "darkroom-grid", "version": 1, "settings": {}, "x": {"field": "constructor", "values": ""}}', "constructor"),
        }
        for name, (data, part) in bad.items():
            (folder / name).write_bytes(data)
            tab.drop(folder / name)
            tab.wait_for(f"!document.querySelector('#problem').hidden && document.querySelector('#problem p').textContent.includes({json.dumps(part)})")
            tab.click("#problem button")
        require(tab.value(value_of("#description")) == "a lighthouse, storm", "a bad file changed the form")


def choose_file(tab, selector: str, path: pathlib.Path) -> None:
    """As a person chooses it in the window of the system's."""
    found = tab.ask("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")["result"]["objectId"]
    tab.ask("DOM.setFileInputFiles", files=[str(path)], objectId=found)


def the_same_file_is_taken_again() -> None:
    with page_of_fake({"image_to_image": True}) as (painter, tab), temporary_folder() as folder:
        picture = write_png(folder / "a.png", parameters="a lighthouse\nSteps: 22, Seed: 3")
        tab.click("details:nth-of-type(2) summary")
        for _ in range(2):
            choose_file(tab, "#open-file", picture)
            tab.wait_for(f"{value_of('#description')} === 'a lighthouse'")
            tab.fill("#description", "something else")
        (folder / "b.png").write_bytes(b"none")
        for _ in range(2):  # Also one that is mended meanwhile.
            choose_file(tab, "#open-file", folder / "b.png")
            tab.wait_for("!document.querySelector('#problem').hidden")
            tab.click("#problem button")
        for _ in range(2):
            choose_file(tab, "#start-file", picture)
            tab.wait_for(f"{num_of('#start-shown img')} === 1")
            require(tab.value(value_of("#start-file")) == "", "a file that was read", tab.value(value_of("#start-file")))
            tab.drop(picture)  # Restores settings, which have no start picture.
            tab.wait_for(f"{num_of('#start-shown img')} === 0")


def samplers_of_a_file_are_read_as_this_server_and_webui_write_them() -> None:
    with page_of_fake() as (painter, tab), temporary_folder() as folder:
        painter.facts["samplers"] += ["pndm", "dpmpp_2m", "dpmpp_2m_karras"]
        tab.reload()
        tab.wait_for(READY)
        named = (("DPM++ 2M, Schedule type: Karras", "dpmpp_2m_karras", ""), ("DPM++ 2M, Schedule type: Uniform", "dpmpp_2m", ""), ("DPM++ 2M", "dpmpp_2m", ""),
                 ("DPM++ 2M, Schedule type: Automatic", "dpmpp_2m_karras", ""), ("PLMS, Schedule type: Automatic", "pndm", ""), ("PNDM", "pndm", ""),
                 ("Euler a, Schedule type: Automatic", "euler_a", ""), ("DDIM, Schedule type: Karras", "ddim", ""), ("Euler, Schedule type: Uniform", "euler", ""),
                 ("Euler, Schedule type: Exponential", "euler", "its schedule Exponential"), ("Heun", "", "its sampler Heun"),
                 ("DPM++ 2M SDE, Schedule type: Karras", "", "its sampler DPM++ 2M SDE with schedule Karras"), ("LCM", "", "its sampler LCM"))
        for index, (text, want, unread) in enumerate(named):
            picture = write_png(folder / f"{index}.png", parameters=f"a lighthouse\nSteps: 22, Sampler: {text}, CFG scale: 6.5, Seed: {index}, Size: 64x64")
            tab.choose("#sampler", "euler_a")
            tab.drop(picture)
            tab.wait_for(f"{value_of('#seed')} === '{index}'")
            said = tab.value("document.querySelector('#problem').hidden ? '' : document.querySelector('#problem p').textContent")
            require(tab.value(value_of("#sampler")) == want and said == (unread and f"This picture is not read in full: {unread} is not known here."), text, tab.value(value_of("#sampler")), said)
        tab.choose("#sampler", "dpmpp_2m_karras")
        paint_one(painter, tab)
        tab.click(".task .picture")
        tab.click("#viewer-save")
        _, path = tab.next_file()
        require("Sampler: DPM++ 2M, Schedule type: Karras, CFG" in Image.open(path).text["parameters"], "written as the server writes it", Image.open(path).text)


def the_order_of_a_pair_is_hidden_until_the_vote() -> None:
    with page_of_fake() as (painter, tab):
        open_tab(tab, "vote")
        tab.fill("#guidance_scale", "3")
        tab.click("#take-a")
        tab.fill("#guidance_scale", "9")
        tab.click("#take-b")
        tab.fill("#vote-prompts", "a cat\n\na dog")
        tab.fill("#vote-seed", "40")
        tab.fill("#vote-count", "2")
        tab.click("#vote-start")
        asked = finished_jobs(painter, 8, "prompt", "seed", "guidance_scale")
        require(asked == [(prompt, seed, guidance) for prompt in ("a cat", "a dog") for seed in (40, 41) for guidance in (3, 9)], "the pairs", asked)
        shown = []
        num_kept = """import("/page/history.js").then(async ({History}) => (await new History().list()).length)"""
        for number, key in enumerate(("1", "2", "0", "1")):
            tab.wait_for(f"{num_of('#vote-pair img.whole')} === 2")
            markup = tab.value("document.querySelector('#vote-pair').outerHTML")
            require("guidance" not in markup.lower() and ">A<" not in markup and ">B<" not in markup and "job-" not in markup, "what tells the order", markup)
            require(tab.text(".which") == "left", "names before the vote", tab.text(".which"))
            require(tab.value(num_kept) == 2 * number, "the history tells the order before the vote", tab.value(num_kept))
            tab.value("document.activeElement.blur()")
            tab.press(key)
            tab.wait_for(f"{num_of('#vote-next')} === 1")
            names = tab.value("[...document.querySelectorAll('.which')].map((one) => one.textContent)")
            require(sorted(names) == ["A", "B"], "names after the vote", names)
            require(tab.value(num_kept) == 2 * number + 2, "what the history has after the vote", tab.value(num_kept))
            shown.append((names, key))
            tab.press(key)  # A second vote on a pair is none.
            tab.press("n")
        tab.wait_for("document.querySelector('#vote-state').textContent === 'All 4 pairs are seen.'")
        chosen = [{"1": names[0], "2": names[1], "0": "equal"}[key].lower() for names, key in shown]
        tab.reload()
        tab.wait_for(READY)
        open_tab(tab, "vote")
        counts = {choice: chosen.count(choice) for choice in ("a", "b", "equal")}
        require(tab.text("#vote-tally") == f"A {counts['a']} : B {counts['b']}, equal {counts['equal']}, of 4 votes.", "the tally is kept", tab.text("#vote-tally"))
        tab.click("#vote-export")
        name, path = tab.next_file()
        saved = json.loads(path.read_text())
        require(name == "darkroom-votes.json" and saved["tally"] == counts, "the export", name, saved["tally"])
        require([vote["choice"] for vote in saved["votes"]] == chosen and [vote["left"].upper() for vote in saved["votes"]] == [names[0] for names, _ in shown], "the votes", saved)
        require([(vote["prompt"], vote["seed"]) for vote in saved["votes"]] == [("a cat", 40), ("a cat", 41), ("a dog", 40), ("a dog", 41)], "what was voted on")
        require(all((vote["a"]["guidance_scale"], vote["b"]["guidance_scale"]) == (3, 9) for vote in saved["votes"]), "the two settings", saved["votes"])


def a_click_on_a_picture_of_a_pair_does_what_its_name_says() -> None:
    names = "[...document.querySelectorAll('#vote-pair .picture')].map((one) => one.ariaLabel)"
    with page_of_fake() as (painter, tab):
        open_tab(tab, "vote")
        tab.fill("#vote-count", "1")
        tab.click("#vote-start")
        for _ in range(2):
            painter.next_job().finish()
        tab.wait_for(f"{num_of('#vote-pair img.whole')} === 2")
        require(tab.value(names) == ["Left is better", "Right is better"], "before the vote", tab.value(names))
        tab.click("#vote-pair figure:nth-child(2) .picture")
        tab.wait_for(f"{num_of('#vote-next')} === 1 && document.querySelector('.which.chosen') === document.querySelectorAll('.which')[1]")
        require(tab.value(names) == ["Open the picture of seed 1"] * 2, "after the vote", tab.value(names))
        tab.click("#vote-pair figure:nth-child(1) .picture")
        tab.wait_for("document.querySelector('#viewer').open && document.querySelector('#viewer-title').textContent === 'Seed 1'")
        require("of 1 votes" in tab.text("#vote-tally"), "a second vote on a pair", tab.text("#vote-tally"))


def a_browser_that_keeps_nothing_paints_and_votes_all_the_same() -> None:
    with page_of_fake() as (painter, tab):
        tab.value("{Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };}")
        tab.fill("#guidance_scale", "3")
        paint_one(painter, tab)
        open_tab(tab, "vote")
        tab.fill("#vote-count", "1")
        tab.click("#vote-start")
        for _ in range(2):
            painter.next_job().finish()
        tab.wait_for(f"{num_of('#vote-pair img.whole')} === 2")
        tab.click("#vote-equal")
        tab.wait_for(f"{num_of('#vote-next')} === 1 && document.querySelector('#problem p').textContent.includes('no room to keep the votes')")
        require("of 1 votes" in tab.text("#vote-tally"), "the tally", tab.text("#vote-tally"))


def two_models_are_compared_by_their_names() -> None:
    with FakePainter(PAGE) as painter:
        painter.facts["models"] = ["fake", "other"]
        painter.facts_of["other"] = {**painter.facts, "model": "other"}
        with opened(painter) as tab:
            require(paint_one(painter, tab)["model"] == "fake", "the model of a request")
            open_tab(tab, "vote")
            tab.choose("#model-choice", "other")
            tab.click("#take-b")
            tab.fill("#vote-count", "1")
            tab.click("#vote-start")
            jobs = [painter.next_job() for _ in range(2)]
            require([job.request["model"] for job in jobs] == ["fake", "other"], "the models of a pair", [job.request for job in jobs])
            jobs[0].finish()
            jobs[1].fail("there is no memory for it")
            tab.wait_for("document.querySelector('#vote-pair').textContent.includes('there is no memory for it')")
            tab.click("#vote-next")
            tab.wait_for("document.querySelector('#vote-state').textContent === 'All 1 pairs are seen.'")
            require(tab.text("#vote-tally") == "No votes yet.", "a pair without a picture has no vote", tab.text("#vote-tally"))


def a_model_that_is_chosen_has_its_own_samplers_and_sizes() -> None:
    with FakePainter(PAGE) as painter:
        painter.facts["models"] = ["fake", "other"]
        defaults = {"sampler": "lcm", "width": 128, "height": 128}  # The server's bound on sides is below this model's size.
        other = {**painter.facts, "model": "other", "native_size": 1024, "size_multiple": 16, "samplers": ["euler", "lcm"], "defaults": defaults}
        samplers = "[...document.querySelector('#sampler').options].map((one) => one.value)"
        with opened(painter, ("409", "Failed to load")) as tab:
            tab.choose("#sampler", "ddim")
            tab.fill("#height", "72")
            tab.choose("#model-choice", "other")  # Nothing is known of it yet.
            tab.wait_for("document.querySelector('#model-note').textContent.startsWith('Not loaded yet') && document.querySelector('#model').textContent === 'other'")
            require(tab.value(samplers) == ["", "ddim", "euler", "euler_a"] and tab.value(value_of("#width")) == "64", "what the first has")
            painter.facts_of["other"] = other
            require(paint_one(painter, tab)["model"] == "other", "the model of a request")
            tab.wait_for(f"{samplers}.join() === ',euler,lcm' && document.querySelector('#model-note').textContent === ''")
            require(tab.value("document.querySelector('#sampler').options[0].textContent") == "the model's own (lcm)", "its own sampler")
            require(tab.value(value_of("#sampler")) == "" and tab.value(value_of("#width")) == "64", "a size of one's own stays", tab.value(value_of("#width")))
            require(tab.value("document.querySelector('#width').step") == "16" and tab.text("#model").startswith("other - 1024 px"), "its sizes", tab.text("#model"))
            tab.choose("#model-choice", "fake")
            tab.wait_for("document.querySelector('#model').textContent.startsWith('fake - 64 px')")
            tab.choose("#model-choice", "other")
            tab.wait_for(f"{value_of('#width')} === '128' && {value_of('#height')} === '72'")
            tab.choose("#sampler", "lcm")
            open_tab(tab, "grid")
            tab.choose("#x-field", "sampler")
            tab.click("#x-all")
            require(tab.value(value_of("#x-values")) == "euler, lcm", "samplers of a grid", tab.value(value_of("#x-values")))
            tab.choose("#model-choice", "fake")
            tab.wait_for("document.querySelector('#grid-count').textContent.includes('lcm')")
            tab.choose("#model-choice", "other")
            tab.wait_for("document.querySelector('#grid-count').textContent.endsWith(' pictures')")
            tab.choose("#sampler", "lcm")
            tab.reload()
            tab.wait_for(READY)
            tab.wait_for(f"{value_of('#sampler')} === 'lcm' && document.querySelector('#model').textContent.startsWith('other')")
            del painter.facts_of["other"]  # What is wanted of a model that is not loaded stays wanted.
            tab.reload()
            tab.wait_for(READY)
            tab.wait_for("document.querySelector('#model-note').textContent.startsWith('Not loaded yet')")
            require(tab.value(samplers) == ["", "ddim", "euler", "euler_a", "lcm"], "samplers of a model that is not loaded", tab.value(samplers))
            require(paint_one(painter, tab)["sampler"] == "lcm", "a sampler that was kept is lost")
            tab.choose("#model-choice", "fake")
            tab.wait_for(f"{samplers}.join() === ',ddim,euler,euler_a'")


def a_key_is_asked_for_and_kept_in_the_tab_alone() -> None:
    key = "a-key-of-more-than-16-characters"
    with FakePainter(PAGE) as painter:
        painter.key = key
        with browser().tab(painter.address) as tab:
            tab.wait_for("document.querySelector('#key-dialog').open")
            tab.fill("#key-text", "another")
            tab.press("Enter")
            tab.wait_for("document.querySelector('#key-dialog').open && document.querySelector('#key-note').textContent.includes('does not know')")
            tab.value("document.querySelector('#key-note').textContent = ''")
            tab.fill("#key-text", "a-key-with-\u2013-dashes")  # What no header can hold.
            tab.click("#key-send")
            tab.wait_for("document.querySelector('#key-dialog').open && document.querySelector('#key-note').textContent.includes('does not know')")
            tab.fill("#key-text", key)
            tab.click("#key-send")
            tab.wait_for(READY)
            paint_one(painter, tab)
            require(tab.value("!JSON.stringify(localStorage).includes('more-than-16')"), "the key lies in localStorage")
            require(tab.value(f"Object.values(sessionStorage).includes({json.dumps(key)})"), "the key is not in sessionStorage")
            require(not any("more-than-16" in address for address in tab.addresses), "the key is in an address")
            tab.reload()
            tab.wait_for(READY)
            painter.key = "a-new-key-of-the-servers"
            tab.click("#paint")
            tab.wait_for("document.querySelector('#key-dialog').open")
            tab.click("#key-cancel")
            tab.wait_for("!document.querySelector('#problem').hidden && document.querySelector('#problem p').textContent.includes('key is needed')")
            tab.require_quiet("401")


def a_phone_shows_one_column() -> None:
    with page_of_fake(width=390, height=844) as (painter, tab):
        tab.fill("#description", "a long prompt of " + "many words " * 20 + "word" * 40)
        tab.fill("#images", "3")
        tab.click("#paint")
        painter.next_job().finish()
        tab.wait_for(f"{num_of('#tasks img.whole')} === 3")
        require(tab.value("document.querySelector('#work').getBoundingClientRect().top < 10"), "the pictures come into view")
        require(tab.value("document.querySelector('#work').getBoundingClientRect().top >= document.querySelector('#settings').getBoundingClientRect().bottom - 1"), "two columns")
        for name in ("pictures", "grid", "vote", "history"):
            open_tab(tab, name)
            wide = tab.value("document.documentElement.scrollWidth")
            require(wide == 390, "the page is wider than the phone", name, wide)
        small = tab.value("[...document.querySelectorAll('#settings input:not([type=file]), #settings textarea')].filter((one) => parseFloat(getComputedStyle(one).fontSize) < 16).map((one) => one.id)")
        require(small == [], "a phone would zoom into these fields", small)


def lines_of(steps: range, loss: float = 0.5, **more) -> list[dict]:
    return [{"step": step, "loss": loss / step, "lr": 0.001, "images_per_second": 30, "seconds": 2.0 * step, **more} for step in steps]


def said_at(tab, chart: str) -> str:
    return tab.text(f"#chart-{chart} + output")


def hover(tab, selector: str) -> None:
    x, y = tab.place_of(selector)
    tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


@contextlib.contextmanager
def page_of_runs(runs: dict[str, FakeRun], allowed: tuple[str, ...] = (), features: dict | None = None, **view):
    """(painter, tab) with the runs' view open."""
    with FakePainter(PAGE) as painter:
        painter.facts["features"] = features or {}
        painter.runs = runs
        with opened(painter, allowed, **view) as tab:
            open_tab(tab, "training")
            yield painter, tab


def a_server_without_runs_has_no_view_of_them() -> None:
    with page_of_fake() as (_, tab):
        require(tab.value("document.querySelector('#tab-training').hidden"), "a tab of nothing")
        tab.click("#tab-history")
        tab.press("ArrowRight")  # From the last tab that is there to the first.
        tab.wait_for("!document.querySelector('#pictures').hidden && document.activeElement.id === 'tab-pictures'")


def curves_of_a_run_are_read_on_while_it_trains() -> None:
    run = FakeRun(lines_of(range(1, 41), validation_loss=0.25))
    run.most_lines = 15
    with page_of_runs({"tiny": run}) as (_, tab):
        tab.wait_for("document.querySelector('#training-state').textContent.startsWith('step 40 of 1,000 - 1 min 20 s')")
        require(run.asked[:3] == [0, 15, 30], "pieces", run.asked)
        require(tab.value(num_of("#chart-loss path.curve")) == 3 and tab.value(num_of("#chart-lr path.curve")) == 1, "curves")
        tab.value("document.querySelector('#chart-loss').focus()")
        tab.press("Home")
        require(said_at(tab, "loss").startswith("step 1: loss 0.5, smoothed 0.5, validation 0.25"), "values of the first step", said_at(tab, "loss"))
        tab.press("ArrowRight")
        require("step 2: loss 0.25" in said_at(tab, "loss") and said_at(tab, "lr") == "step 2: learning rate 0.001", "values of the second", said_at(tab, "loss"), said_at(tab, "lr"))
        tab.press("End")
        require("step 40: loss 0.0125" in said_at(tab, "loss"), "values of the last step", said_at(tab, "loss"))
        hover(tab, "#chart-speed")
        require(said_at(tab, "speed").startswith(("step 1", "step 2")) and ": pictures/s 30" in said_at(tab, "speed"), "values in the middle", said_at(tab, "speed"))

        run.lines += lines_of(range(41, 44))
        tab.click("#training-refresh")
        tab.wait_for("document.querySelector('#training-state').textContent.startsWith('step 43 ')")
        require(run.asked[-1] in (40, 43) and 0 not in run.asked[1:], "only what is new is read", run.asked)
        run.lines = lines_of(range(1, 31), loss=0.8)  # It went on from a checkpoint.
        tab.click("#training-refresh")
        tab.wait_for("document.querySelector('#training-state').textContent.startsWith('step 30 ')")
        tab.value("document.querySelector('#chart-loss').focus()")
        tab.press("Home")
        require(said_at(tab, "loss").startswith("step 1: loss 0.8"), "lines that were replaced stay", said_at(tab, "loss"))


def a_run_of_several_ranks_says_what_all_of_them_do_in_a_second() -> None:
    alone, together = FakeRun(lines_of(range(1, 4))), FakeRun(lines_of(range(1, 4)))
    together.last_start = {"device": "cpu", "ranks": 4}
    with page_of_runs({"together": together, "alone": alone}) as (_, tab):
        tab.wait_for("document.querySelector('#training-state').textContent === 'step 3 of 1,000 - 6 s - 30 pictures/s of 4 ranks: 3.75 steps/s, 15 it/s world-scaled'")
        tab.choose("#training-run", "alone")
        tab.wait_for("document.querySelector('#training-state').textContent === 'step 3 of 1,000 - 6 s'")


def a_view_that_is_open_looks_again_of_itself() -> None:
    run = FakeRun([])
    with page_of_runs({"tiny": run}) as (_, tab):
        tab.wait_for("document.querySelector('#training-state').textContent === 'No metrics yet.'")
        run.lines = lines_of(range(1, 8))
        tab.wait_for("document.querySelector('#training-state').textContent.startsWith('step 7 ')")


def two_runs_lie_over_each_other() -> None:
    with page_of_runs({"first": FakeRun(lines_of(range(1, 31)), (10, 20, 30), ("red apple", "a dog")),
                       "second": FakeRun(lines_of(range(1, 21), loss=0.9), (15,), ("red apple", "a dog"))}) as (_, tab):
        tab.wait_for(f"{num_of('#sample-rows img')} === 2")
        tab.choose("#training-other", "second")
        tab.wait_for(f"{num_of('#chart-lr path.second')} === 1 && {num_of('#sample-rows img')} === 4")
        require(tab.value("[...document.querySelectorAll('#sample-rows h3')].map((one) => one.textContent)") == ["first, step 30", "second, step 15"], "whose pictures these are")
        tab.value("document.querySelector('#chart-loss').focus()")
        tab.press("Home")
        require(said_at(tab, "loss") == "step 1: first loss 0.5, first smoothed 0.5, second loss 0.9, second smoothed 0.9", "values of both", said_at(tab, "loss"))
        tab.choose("#training-run", "second")
        tab.wait_for(f"{num_of('#chart-lr path.curve')} === 1 && document.querySelector('#training-state').textContent.startsWith('step 20 ')")


def colors_of_samples(tab) -> list[list[int]]:
    return tab.value("""Promise.all([...document.querySelectorAll('#sample-rows img')].map(async (image) => {
      const canvas = document.createElement('canvas'); await image.decode();
      canvas.getContext('2d').drawImage(image, 0, 0);
      return [...canvas.getContext('2d').getImageData(0, 0, 1, 1).data].slice(0, 3);
    }))""")


def two_runs_are_compared_by_a_prompt_and_not_by_its_place() -> None:
    runs = {"first": FakeRun(lines_of(range(1, 31)), (10, 20), ("red apple", "a dog", "", "a dog")), "second": FakeRun(lines_of(range(1, 21)), (15,), ("a dog", ""))}
    rows = "[...document.querySelectorAll('#sample-rows [data-run]')].map((row) => row.querySelectorAll('img').length).join()"
    with page_of_runs(runs) as (_, tab):
        tab.wait_for(f"{num_of('#sample-rows img')} === 4")
        tab.choose("#training-other", "second")
        tab.wait_for(f"{num_of('#sample-rows img')} === 6")
        names = tab.value("[...document.querySelector('#sample-prompt').options].map((one) => one.textContent)")
        require(names == ["all, at one step", "red apple, at all steps", "a dog, at all steps", "(no prompt), at all steps"], "the prompts", names)
        for prompt, first, second in (("a dog", [(step, index) for step in (10, 20) for index in (1, 3)], [(15, 0)]),
                                      ("", [(10, 2), (20, 2)], [(15, 1)]), ("red apple", [(10, 0), (20, 0)], [])):
            tab.choose("#sample-prompt", f"prompt {prompt}")
            tab.wait_for(f"{rows} === '{len(first)},{len(second)}'")
            want = [list(color_of(run, step, f"prompt-00{index}.png")) for run, shown in (("first", first), ("second", second)) for step, index in shown]
            require(colors_of_samples(tab) == want, "pictures of the prompt", prompt)
        require("second has no samples of this prompt." in tab.text("#sample-rows"), "a run without the prompt", tab.text("#sample-rows"))
        tab.choose("#sample-prompt", "prompt a dog")
        tab.wait_for(f"{rows} === '4,1'")
        captions = tab.value("[...document.querySelectorAll('#sample-rows figcaption')].map((one) => [...one.children].map(({textContent}) => textContent))")
        require(captions == [["step 10", "seed 1"], ["step 10", "seed 3"], ["step 20", "seed 1"], ["step 20", "seed 3"], ["step 15", "seed 0"]], "captions", captions)


def smoothing_and_a_logarithm_change_what_is_drawn() -> None:
    with page_of_runs({"tiny": FakeRun([*lines_of(range(1, 40)), {"step": 40, "loss": 0}, {"step": 41}])}) as (_, tab):
        tab.wait_for(f"{num_of('#chart-loss path.raw')} === 1")
        linear = tab.value("document.querySelector('#chart-loss path.raw').getAttribute('d')")
        tab.click("#training-log")
        tab.wait_for(f"document.querySelector('#chart-loss path.raw').getAttribute('d') !== {json.dumps(linear)}")
        tab.value("document.querySelector('#chart-loss').focus()")
        tab.press("End")
        require(said_at(tab, "loss").startswith("step 39: loss 0.01282"), "a loss of 0 has no logarithm", said_at(tab, "loss"))
        tab.value("document.querySelector('#training-smoothing').focus()")
        tab.press("Home")
        tab.wait_for(f"{num_of('#chart-loss path.curve')} === 1 && {num_of('#chart-loss path.raw')} === 0")


def samples_are_seen_by_step_and_by_prompt() -> None:
    run = FakeRun(lines_of(range(1, 31)), (10, 20, 30), ("red apple", HOSTILE))
    with page_of_runs({"a run/é": run}) as (_, tab):
        tab.wait_for(f"{num_of('#sample-rows img')} === 2 && document.querySelector('#sample-said').textContent === '30'")
        shown = lambda: colors_of_samples(tab)
        want = lambda step: [list(color_of("a run/é", step, f"prompt-00{index}.png")) for index in range(2)]
        require(shown() == want(30), "pictures of the newest step", shown())
        tab.click("#sample-earlier")
        tab.wait_for("document.querySelector('#sample-said').textContent === '20'")
        require(shown() == want(20), "pictures of the step before", shown())
        tab.value("document.querySelector('#sample-step').focus()")
        tab.press("Home")
        tab.wait_for("document.querySelector('#sample-said').textContent === '10' && document.querySelector('#sample-earlier').disabled")
        require(shown() == want(10), "pictures of the first step", shown())
        tab.choose("#sample-prompt", "prompt red apple")
        tab.wait_for(f"{num_of('#sample-rows img')} === 3")
        require(shown() == [want(step)[0] for step in (10, 20, 30)], "a prompt from step to step", shown())
        require(tab.value("[...document.querySelectorAll('#sample-rows .clip')].map((one) => one.textContent)") == ["step 10", "step 20", "step 30"], "their steps")
        tab.choose("#sample-prompt", "")
        tab.wait_for(f"{num_of('#sample-rows img')} === 2")
        require(HOSTILE in tab.text("#sample-rows") and tab.value("window.hacked === undefined"), "a prompt became markup")


def a_report_is_a_page_or_a_file() -> None:
    run = FakeRun(lines_of(range(1, 3)), has_report=True)
    with page_of_runs({"tiny": run}) as (painter, tab):
        tab.wait_for("!document.querySelector('#training-report').hidden")
        require(tab.value("document.querySelector('#training-report').href") == f"{painter.address}v1/runs/tiny/report", "the report's address")
    with page_of_runs({"tiny": run}, features={"keys": True}) as (_, tab):
        tab.click("#training-save-report")
        name, path = tab.next_file()
        require(name == "tiny-report.html" and path.read_bytes() == b"<h1>report</h1>", "the report as a file", name)
        require(tab.value("document.querySelector('#training-report').hidden"), "a link that sends no key")


def a_long_run_is_bounded_in_the_page() -> None:
    with page_of_fake() as (_, tab):
        kept = tab.value("""import("/page/curves.js").then(async ({Curves, kMostPoints, smoothed}) => {
          const lines = Array.from({length: 50_000}, (_, index) => ({step: index + 1, loss: index % 2, ...(index % 1000 === 999 && {validation_loss: index})}));
          const curves = new Curves({metrics: async () => ({lines, next: "", anew: false, more: false, unreadable: 0})}, "run");
          await curves.read(() => {});
          const points = curves.points("loss");
          const sum = points.reduce((whole, [, value]) => whole + value, 0);
          const level = smoothed([[1, 5], [2, 5], [3, 5]], 0.9).map(([, value]) => value.toFixed(9));
          return [kMostPoints, points.length, points[0][0], sum / points.length, curves.points("validation_loss").length, level];
        })""")
        require(kept[0] == 20_000 and 10_000 <= kept[1] <= 20_000, "points", kept)
        require(kept[2] > 1 and abs(kept[3] - 0.5) < 0.01, "means of neighbours", kept)
        require(kept[4] == 50 and kept[5] == ["5.000000000"] * 3, "validations, and an average of equal values", kept)


def axes_have_round_values() -> None:
    with page_of_fake() as (_, tab):
        ticks = tab.value("""import("/page/chart.js").then(({ticksOf, nearest}) => [
          ticksOf(0, 1000, false), ticksOf(0.13, 0.14, false).length, ticksOf(0.09, 1.2, true), ticksOf(1e-8, 1e3, true), ticksOf(2.1, 4.9, true),
          [-5, 1, 14, 15.5, 16, 99].map((step) => nearest([[1, 0], [14, 0], [17, 0]], step)), nearest([[7, 0]], 3)])""")
        require(ticks[0] == [0, 200, 400, 600, 800, 1000] and ticks[1] in range(2, 7), "ticks", ticks)
        require(np.allclose(ticks[2], [0.1, 0.2, 0.5, 1]) and 2 <= len(ticks[3]) <= 6 and len(ticks[4]) >= 2, "ticks of a logarithm", ticks)
        require(ticks[5] == [0, 0, 1, 1, 2, 2] and ticks[6] == 0, "the nearest point", ticks)


def runs_are_seen_on_a_phone() -> None:
    with page_of_runs({"first": FakeRun(lines_of(range(1, 31)), (10, 20), ("red apple", "a long prompt " * 20)), "second": FakeRun(lines_of(range(1, 9)))}, width=390, height=844) as (_, tab):
        tab.choose("#training-other", "second")
        tab.wait_for(f"{num_of('#chart-lr path.second')} === 1 && {num_of('#sample-rows img')} === 2")
        require(tab.value("document.documentElement.scrollWidth") == 390, "the page is wider than the phone", tab.value("document.documentElement.scrollWidth"))
        x, y = tab.place_of("#chart-loss")
        tab.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        tab.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        tab.wait_for("document.querySelector('#chart-loss + output').textContent.startsWith('step 1')")


def a_run_that_cannot_be_read_is_a_sentence() -> None:
    with page_of_runs({"tiny": FakeRun(lines_of(range(1, 3)))}, allowed=("404", "Failed to load")) as (painter, tab):
        tab.wait_for("document.querySelector('#training-state').textContent.startsWith('step 2 ')")
        painter.runs = {}
        tab.click("#training-refresh")
        tab.wait_for("document.querySelector('#problem p').textContent === 'No such run is served.'")


@contextlib.contextmanager
def page_of_datasets(datasets: dict[str, FakeDataset], allowed: tuple[str, ...] = (), **view):
    """(painter, tab) with the datasets' view open and its first rows shown."""
    with FakePainter(PAGE) as painter:
        painter.datasets = datasets
        with opened(painter, allowed, **view) as tab:
            open_tab(tab, "dataset")
            tab.wait_for(shown_rows(0))
            yield painter, tab


def shown_rows(first: int, count: int | None = None) -> str:
    """Whether the cards begin with this row; and how many they are."""
    cards = "document.querySelectorAll('#dataset-rows .row-card')"
    return f"{cards}[0]?.dataset.row === '{first}'" + (f" && {cards}.length === {count}" if count is not None else "")


def rows_of_a_dataset_are_seen_page_by_page() -> None:
    dataset = FakeDataset([f"picture {number}" for number in range(30)], rows_by_error={"timeout": 4, "not_an_image": 1})
    with page_of_datasets({"my data": dataset, "other": FakeDataset(["the only one"])}) as (_, tab):
        tab.wait_for(shown_rows(0, 12))
        require("image dataset, 30 rows" in tab.text("#dataset-kind"), "the kind", tab.text("#dataset-kind"))
        require("picture 0" in tab.text("#dataset-rows .row-card") and "score" in tab.text("#dataset-rows .row-card"), "caption and columns")
        tab.wait_for("document.querySelector('#dataset-rows img').naturalWidth === 8")
        require(tab.value("document.querySelector('#dataset-back').disabled"), "back from the first page")
        tab.click("#dataset-on")
        tab.wait_for(shown_rows(12, 12))
        tab.click("#dataset-on")
        tab.wait_for(shown_rows(24, 6) + " && document.querySelector('#dataset-on').disabled")
        tab.click("#dataset-back")
        tab.wait_for(shown_rows(12, 12) + " && !document.querySelector('#dataset-on').disabled")
        tab.fill("#dataset-go", "20")
        tab.press("Enter")
        tab.wait_for(shown_rows(20, 10))
        require("timeout" in tab.text("#dataset-errors") and "4" in tab.text("#dataset-errors"), "rows by error", tab.text("#dataset-errors"))
        tab.choose("#dataset-name", "other")
        tab.wait_for(shown_rows(0, 1) + " && document.querySelector('#dataset-errors').textContent === ''")


def a_dataset_is_searched_to_its_end_a_part_at_a_time() -> None:
    dataset = FakeDataset([f"{'red apple' if number % 50 == 49 else 'grey stone'} {number}" for number in range(1000)], rows_by_error={"stone": 2})
    dataset.most_searched = 100
    with page_of_datasets({"data": dataset}) as (_, tab):
        tab.fill("#dataset-search", "APPLE red")
        tab.press("Enter")
        tab.wait_for(shown_rows(49, 12))
        require(all(int(query["count"]) <= 12 for query in dataset.asked), "rows of a request", dataset.asked)
        tab.click("#dataset-on")
        tab.wait_for(shown_rows(649, 8) + " && document.querySelector('#dataset-on').disabled")
        tab.fill("#dataset-search", "pear")
        tab.click("#dataset-find")
        tab.wait_for(f"{num_of('#dataset-rows .row-card')} === 0 && document.querySelector('#dataset-state').textContent === 'No such rows.'")
        tab.click("#dataset-errors button")  # Rows that failed and were kept have the error's name in a column.
        tab.wait_for(shown_rows(0, 12) + f" && {value_of('#dataset-search')} === 'stone'")


def latents_are_decoded_one_row_at_a_time_where_a_model_can() -> None:
    with page_of_datasets({"data": FakeDataset(["one", "two", "three"], channels=4)}) as (painter, tab):
        tab.wait_for(f"{num_of('#dataset-rows .row-card img')} === 15")
        asked = [query for query in painter.datasets["data"].asked if "decode" in query]
        require([(query["from"], query["count"]) for query in asked] == [("0", "1"), ("1", "1"), ("2", "1")], "what was asked", asked)
        tab.click("#dataset-decodes")
        tab.wait_for(f"{num_of('#dataset-rows .row-card img')} === 12")


class HeldDataset(FakeDataset):
    """The rows of the search "held" come once they are released."""

    released = threading.Event()

    def rows(self, query: dict[str, str]) -> dict:
        if query.get("q") == "held":
            self.released.wait()
            return {"rows": [], "next": None}
        return super().rows(query)


def an_answer_that_nobody_waits_for_any_more_changes_nothing() -> None:
    dataset = HeldDataset([f"picture {number}" for number in range(30)])
    with page_of_datasets({"data": dataset}) as (_, tab):
        tab.fill("#dataset-search", "held")
        tab.click("#dataset-find")
        tab.fill("#dataset-search", "picture")
        tab.click("#dataset-find")
        tab.wait_for(shown_rows(0, 12) + " && document.querySelector('#dataset-state').textContent === 'Rows 0 to 11'")
        dataset.released.set()
        tab.wait_for("performance.getEntriesByType('resource').some((entry) => entry.name.includes('q=held'))")
        tab.click("#dataset-on")
        tab.wait_for(shown_rows(12, 12))


class ShakyDataset(FakeDataset):
    """Its rows from 700 on do not come as long as `fails`, and not before they are released."""

    fails = True

    def __init__(self, captions: list[str]) -> None:
        super().__init__(captions)
        self.released = threading.Event()

    def rows(self, query: dict[str, str]) -> dict:
        if int(query["from"]) >= 700:
            require(not self.fails, "a fault")
            self.released.wait()
        return super().rows(query)


def a_search_that_fails_or_takes_long_loses_no_rows() -> None:
    dataset = ShakyDataset([f"{'red apple' if number % 50 == 49 else 'grey stone'} {number}" for number in range(1000)])
    dataset.most_searched = 100
    with page_of_datasets({"data": dataset}, allowed=("ERR_", "Failed to load")) as (_, tab):
        tab.fill("#dataset-search", "apple")
        tab.press("Enter")
        tab.wait_for(shown_rows(49, 12))
        tab.fill("#dataset-search", "not asked for yet")
        tab.click("#dataset-on")  # Finds two rows, then fails.
        tab.wait_for("document.querySelector('#problem p').textContent.startsWith('The server does not answer')")
        tab.wait_for("!document.querySelector('#dataset-on').disabled && document.querySelector('#dataset-back').disabled")
        dataset.fails = False
        tab.click("#dataset-on")
        tab.wait_for("document.querySelector('#dataset-state').textContent === 'Looked through 700 rows'")
        tab.click("#dataset-on")  # In the middle of a search.
        require(tab.value("document.querySelector('#dataset-on').disabled && document.querySelector('#dataset-back').disabled"), "the next page of a search that is not done")
        dataset.released.set()
        tab.wait_for(shown_rows(649, 8) + " && document.querySelector('#dataset-on').disabled")
        require({query.get("q", "") for query in dataset.asked} == {"", "apple"}, "words of another search", dataset.asked)
        tab.click("#dataset-back")
        tab.wait_for(shown_rows(49, 12) + " && document.querySelector('#dataset-back').disabled && !document.querySelector('#dataset-on').disabled")
        tab.fill("#dataset-search", "stone")
        tab.click("#dataset-find")
        tab.wait_for(shown_rows(0, 12))
        tab.value("document.querySelector('#dataset-on').focus()")
        for first in (12, 24):
            tab.press("Enter")
            tab.wait_for(shown_rows(first, 12) + " && document.activeElement.id === 'dataset-on'")


def a_dataset_that_cannot_be_read_is_a_sentence() -> None:
    with page_of_datasets({"data": FakeDataset([f"picture {number}" for number in range(30)])}, allowed=("404", "Failed to load")) as (painter, tab):
        tab.fill("#dataset-go", "13.7")
        tab.press("Enter")
        tab.wait_for(shown_rows(13, 12))
        painter.datasets = {}
        tab.click("#dataset-on")
        tab.wait_for("document.querySelector('#problem p').textContent === 'No such dataset is served.'"
                     " && document.querySelector('#dataset-state').textContent === ''")


def a_server_without_datasets_has_no_view_of_them() -> None:
    with page_of_fake() as (_, tab):
        require(tab.value("document.querySelector('#tab-dataset').hidden"), "a tab of nothing")
    with page_of_datasets({"data": FakeDataset(["one"])}) as (_, tab):
        tab.press("ArrowRight")  # Past the tab of runs, which is not there, to the first one.
        tab.wait_for("!document.querySelector('#pictures').hidden")
        tab.press("ArrowLeft")
        tab.wait_for("!document.querySelector('#dataset').hidden && document.activeElement.id === 'tab-dataset'")


def what_a_dataset_says_is_text() -> None:
    dataset = FakeDataset([HOSTILE], rows_by_error={HOSTILE: 1})
    with page_of_datasets({HOSTILE: dataset}) as (_, tab):
        require(HOSTILE in tab.text("#dataset-rows") and HOSTILE in tab.text("#dataset-errors"), "as text", tab.text("#dataset-rows"))
        require(tab.value(f"window.hacked === undefined && {num_of('body script, [onerror]')} === 0"), "text became markup")


def what_others_write_is_text() -> None:
    with FakePainter(PAGE) as painter:
        painter.facts["model"] = f"model {HOSTILE}"
        with opened(painter) as tab:
            tab.fill("#description", HOSTILE)
            tab.fill("#negative_prompt", HOSTILE)
            paint_one(painter, tab)
            require(tab.text(".task .prompt") == HOSTILE, "the prompt as text", tab.text(".task .prompt"))
            tab.click(".task .picture")
            require(HOSTILE in tab.text("#viewer-body"), "the viewer", tab.text("#viewer-body"))
            tab.click("#viewer-close")
            open_tab(tab, "history")
            tab.wait_for(f"{num_of('#history-list figure')} === 1")
            open_tab(tab, "grid")
            tab.choose("#x-field", "words")
            tab.fill("#x-values", "script, <u>u</u>")
            tab.choose("#y-field", "none")
            tab.click("#grid-paint")
            for _ in range(2):
                painter.next_job().finish()
            tab.wait_for(f"{num_of('#grid-table img.whole')} === 2")
            open_tab(tab, "vote")
            tab.click("#take-a")
            tab.fill("#vote-prompts", HOSTILE)
            tab.fill("#vote-count", "1")
            tab.click("#vote-start")
            for _ in range(2):
                painter.next_job().finish()
            tab.wait_for(f"{num_of('#vote-pair img.whole')} === 2")
            tab.click("#tab-pictures")
            tab.click("#paint")
            painter.next_job().fail(HOSTILE)
            tab.wait_for("!document.querySelector('#problem').hidden")
            require(tab.text("#model").startswith(f"model {HOSTILE}"), "the model's name", tab.text("#model"))
            require(tab.value(f"window.hacked === undefined && {num_of('body script, body u, [onerror]')} === 0"), "text became markup")


def keys_do_what_the_mouse_does() -> None:
    with page_of_fake({"weighted_prompts": True}) as (painter, tab):
        tab.press("Enter")
        painter.next_job().finish()
        tab.wait_for(f"{num_of('#tasks img.whole')} === 1")
        tab.fill("#description", "a red apple on wood")
        tab.press("Shift+Enter")
        tab.press("Enter")
        job = painter.next_job()
        require(job.request["prompt"] == "a red apple on wood\n", "Enter paints, with Shift it begins a line", job.request)
        job.finish()
        tab.fill("#description", "a red apple on wood")
        tab.value("document.querySelector('#description').setSelectionRange(3, 3)")
        for _ in range(3):
            tab.press("Ctrl+ArrowUp")
        require(tab.value(value_of("#description")) == "a (red:1.3) apple on wood", "a word's weight", tab.value(value_of("#description")))
        for _ in range(3):
            tab.press("Ctrl+ArrowDown")
        require(tab.value(value_of("#description")) == "a red apple on wood", "a weight of 1", tab.value(value_of("#description")))
        tab.value("document.querySelector('#description').setSelectionRange(2, 11)")
        tab.press("Ctrl+ArrowDown")
        require(tab.value(value_of("#description")) == "a (red apple:0.9) on wood", "the weight of selected words", tab.value(value_of("#description")))
        tab.value("document.querySelector('#style').focus()")
        tab.press("Ctrl+Enter")
        job = painter.next_job()
        require((job.request["prompt"], job.request["prompt_syntax"]) == ("a (red apple:0.9) on wood", "weighted"), "Ctrl+Enter paints anywhere", job.request)
        tab.press("Escape")
        tab.wait_for(f"{num_of('.task[data-state=cancelled]')} === 1")
        tab.value("document.querySelector('#tab-pictures').focus()")
        for name in ("grid", "vote", "history", "pictures"):
            tab.press("ArrowRight")
            tab.wait_for(f"document.activeElement.id === 'tab-{name}' && !document.querySelector('#{name}').hidden")
        nameless = tab.value("""[...document.querySelectorAll("input, select, textarea, button")].filter((one) =>
          !(one.labels?.length || one.ariaLabel || one.textContent.trim())).map((one) => one.outerHTML)""")
        require(nameless == [], "controls without a name", nameless)


def what_the_server_lacks_is_not_offered() -> None:
    with page_of_fake() as (painter, tab), temporary_folder() as folder:
        hidden = tab.value("['#start-picture', '#weights-hint', '#model-row', '#change-key'].map((one) => document.querySelector(one).checkVisibility())")
        require(hidden == [False] * 4, "controls of what is not there", hidden)
        require(not tab.value("document.querySelector('#syntax-row').checkVisibility()"), "a choice of syntax of a server without it")
        tab.fill("#description", "red apple")
        tab.press("Ctrl+ArrowUp")
        require(tab.value(value_of("#description")) == "red apple", "weights of a server without them")
        painter.facts["features"] = {"image_to_image": True}
        tab.reload()
        tab.wait_for(READY)
        picture = folder / "start.png"
        picture.write_bytes(png_of((1, 2, 3), 64, 64))
        require(not tab.value("document.querySelector('#strength-row').checkVisibility()"), "the strength of no picture")
        tab.drop(picture, "#start-picture")
        tab.wait_for("document.querySelector('#strength-row').checkVisibility()")
        tab.fill("#strength", "0.6")
        request = paint_one(painter, tab)
        require(request["strength"] == 0.6, "the strength", request["strength"])
        require(np.array_equal(pixels(base64.b64decode(request["init_image"])), pixels(picture.read_bytes())), "the start picture")
        tab.click("#start-remove")
        require("init_image" not in paint_one(painter, tab, 2), "a start picture that was removed")
        tab.click(".task .picture")
        tab.click("#viewer-start")
        tab.wait_for(f"{num_of('#start-shown img')} === 1")
        require(Image.open(io.BytesIO(base64.b64decode(paint_one(painter, tab, 3)["init_image"]))).size == (64, 64), "a picture that was painted begins another")


def a_strength_that_is_not_shown_stops_nothing() -> None:
    with page_of_fake({"image_to_image": True}) as (painter, tab), temporary_folder() as folder:
        picture = folder / "start.png"
        picture.write_bytes(png_of((1, 2, 3), 64, 64))
        for index, strength in enumerate(("0", "2", ""), 1):
            tab.drop(picture, "#start-picture")
            tab.wait_for("document.querySelector('#strength-row').checkVisibility()")
            tab.choose("#strength", strength)  # Also an empty one.
            tab.click("#paint")
            require(tab.value("document.activeElement.id === 'strength' && !document.querySelector('#strength').validity.valid"), "a strength that is none", strength)
            tab.click("#start-remove")
            paint_one(painter, tab, index)
        tab.fill("#description", "kept")
        tab.drop(picture, "#start-picture")
        tab.wait_for("document.querySelector('#strength-row').checkVisibility()")
        tab.fill("#strength", "0")
        tab.reload()
        tab.wait_for(READY)
        require(tab.value(value_of("#description")) == "kept" and tab.value(value_of("#strength")) == "0.8", "a strength that is none is kept", tab.value(value_of("#strength")))
        tab.drop(write_png(folder / "webui.png", parameters="a lighthouse\nSteps: 22, Seed: 3, Denoising strength: 0"))
        tab.wait_for(f"{value_of('#description')} === 'a lighthouse'")
        require(tab.value(value_of("#strength")) == "0.8", "a strength that is none is read", tab.value(value_of("#strength")))
        paint_one(painter, tab)


def a_start_picture_goes_out_as_it_is_seen_and_without_what_its_file_says() -> None:
    secret = "a place that nobody is told"
    said = Image.Exif()
    said[0x010F], said[0x0112] = secret, 6  # The camera; turned by a quarter.
    said.get_ifd(0x8825).update({1: "N", 2: (52.0, 30.0, 0.0)})
    text = PngImagePlugin.PngInfo()
    text.add_text("parameters", secret)
    halves = Image.fromarray(np.repeat(np.array([[[200, 40, 40]] * 48 + [[40, 40, 200]] * 48], np.uint8), 64, axis=0))
    with page_of_fake({"image_to_image": True}) as (painter, tab), temporary_folder() as folder:
        halves.save(folder / "photo.jpg", exif=said, comment=secret.encode(), quality=95)
        halves.save(folder / "drawn.png", pnginfo=text, exif=said)
        for count, name in enumerate(("photo.jpg", "drawn.png"), 1):
            require(secret.encode() in (folder / name).read_bytes(), "the file says it", name)
            tab.drop(folder / name, "#start-picture")
            tab.wait_for("document.querySelector('#start-shown img')?.naturalHeight === 96")
            sent = base64.b64decode(paint_one(painter, tab, count)["init_image"])
            got = Image.open(io.BytesIO(sent))
            require(secret.encode() not in sent and b"Exif" not in sent and not got.getexif() and not (got.info.keys() & {"parameters", "comment", "exif"}), "what goes out", name, got.info)
            seen = np.asarray(halves.transpose(Image.Transpose.ROTATE_270)).astype(np.int32)
            require(got.size == (64, 96) and np.abs(pixels(sent) - seen).mean() <= (4 if name == "photo.jpg" else 0), "another picture", name, got.size)
            tab.click("#start-remove")
        np.save(folder / "none.png", np.zeros(3))
        tab.drop(folder / "none.png", "#start-picture")
        tab.wait_for("document.querySelector('#problem p').textContent.includes('no picture that the browser can read')")


def a_grid_has_any_field_of_the_form_as_an_axis() -> None:
    with page_of_fake({"weighted_prompts": True}) as (painter, tab):
        tab.fill("#seed", "5")
        tab.click("#keeps-seed")
        open_tab(tab, "grid")
        tab.choose("#x-field", "prompt_syntax")
        tab.click("#x-all")
        tab.choose("#y-field", "negative_prompt")
        tab.fill("#y-values", 'blurry, "blurry, grey", ""')
        require(tab.text("#grid-count") == "3 x 2 = 6 pictures", "the count", tab.text("#grid-count"))
        tab.click("#grid-paint")
        asked = finished_jobs(painter, 6, "negative_prompt", "prompt_syntax")
        require(asked == [(negative, syntax) for negative in ("blurry", "blurry, grey", "") for syntax in ("weighted", "plain")], "the cells", asked)
        rows = tab.value("[...document.querySelectorAll('#grid-table th[scope=row]')].map((one) => one.textContent)")
        require(rows == ["Negative prompt blurry", "Negative prompt blurry, grey", "Negative prompt none"], "rows", rows)

        tab.choose("#x-field", "images")
        tab.fill("#x-values", "1, 3")
        tab.choose("#y-field", "steps")
        tab.fill("#y-values", "10, 20")
        require(tab.text("#grid-count") == "2 x 2 cells = 8 pictures", "the count", tab.text("#grid-count"))
        tab.click("#grid-paint")
        for steps, images in ((10, 1), (10, 3), (20, 1), (20, 3)):
            job = painter.next_job()
            require((job.request["steps"], job.request["images"], job.request["seed"]) == (steps, images, 5), "a cell", job.request)
            job.finish()
        tab.wait_for(f"{num_of('#grid-table td img.whole')} === 8")
        tab.click("#grid-table tbody tr:nth-child(2) td:nth-child(3) .place:nth-child(3) button")
        tab.wait_for("document.querySelector('#viewer').open")
        require("7" in tab.text("#viewer-body"), "the third picture's seed", tab.text("#viewer-body"))
        tab.click("#viewer-close")
        tab.click("#grid-image")
        _, path = tab.next_file()
        require(Image.open(path).size == (96 + 4 * 68, 32 + 2 * 68), "the grid as one picture", Image.open(path).size)
        tab.fill("#x-values", "50, 51")
        tab.click("#grid-paint")
        tab.wait_for("document.querySelector('#problem p').textContent === 'A grid has at most 100 pictures, and this one 202.'")
    with page_of_fake() as (_, tab):
        require(tab.value("![...document.querySelector('#x-field').options].some(({value}) => value === 'prompt_syntax')"), "a syntax of a server without it")


def the_program_serves_the_page_and_paints_what_it_asks_for() -> None:
    with page_of_program() as (server, tab), temporary_folder() as folder:
        tab.wait_for(READY)
        require(tab.text("#model").startswith("tiny - 64 px"), "the model", tab.text("#model"))
        tab.fill("#description", "a red apple")
        tab.fill("#negative_prompt", "grey")
        tab.choose("#sampler", "euler")
        tab.fill("#steps", "6")
        tab.fill("#images", "2")
        tab.fill("#seed", "11")
        tab.click("#keeps-seed")
        tab.click("#paint")
        tab.wait_for(f"{num_of('#tasks img.whole')} === 2")
        for index, seed in enumerate((11, 12)):
            tab.click(f".task figure:nth-child({index + 1}) .picture")
            tab.click("#viewer-save")
            name, path = tab.next_file()
            tab.click("#viewer-close")
            want = server.paint({"negative_prompt": "grey", "sampler": "euler", "num_inference_steps": 6, "seed": seed})
            require(name == f"darkroom-{seed}.png" and np.abs(pixels(path.read_bytes()) - want).max() <= 1, "another picture than the server's", seed)
        picture = gradient(100, 60)
        (folder / "start.png").write_bytes(picture)
        tab.fill("#description", "a red apple")
        tab.value("document.querySelector('#description').setSelectionRange(3, 3)")
        for _ in range(4):
            tab.press("Ctrl+ArrowUp")
        tab.drop(folder / "start.png", "#start-picture")
        tab.wait_for("document.querySelector('#strength-row').checkVisibility()")
        tab.fill("#strength", "0.5")
        tab.fill("#images", "1")
        for syntax, is_alike in (("weighted", True), ("plain", False)):
            tab.choose("#prompt_syntax", syntax)
            tab.click("#paint")
            tab.wait_for(f"document.querySelector('.task').dataset.state === 'done' && {num_of('.task:first-child img.whole')} === 1")
            tab.click(".task .picture")
            tab.click("#viewer-save")
            _, path = tab.next_file()
            tab.click("#viewer-close")
            body = {"prompt": "a (red:1.4) apple", "negative_prompt": "grey", "sampler_name": "Euler", "steps": 6, "seed": 11, "cfg_scale": 7.5,
                    "init_images": [base64_of(picture)], "denoising_strength": 0.5}
            want = pixels(base64.b64decode(json.loads(server.ask("POST", IMG2IMG, body)[2])["images"][0]))
            require(np.array_equal(pixels(path.read_bytes()), want) == is_alike, "a picture from a picture with weights, as A1111's", syntax)
            require(f"Prompt syntax: {syntax}" in Image.open(path).text["parameters"], "the syntax of a picture's prompt", syntax)
            path.unlink()
        tab.click("#start-remove")
        open_tab(tab, "grid")
        tab.choose("#x-field", "sampler")
        tab.click("#x-all")
        tab.choose("#y-field", "none")
        tab.click("#grid-paint")
        cells = int(tab.value("document.querySelector('#sampler').options.length")) - 1
        tab.wait_for(f"{num_of('#grid-table img.whole')} === {cells}")
        tab.require_quiet("429")


def a_job_of_the_program_is_cancelled_while_it_is_painted() -> None:
    with page_of_program("--queue-cost", "1000000000000", "--deadline", "3600") as (_, tab):
        tab.wait_for(READY)
        for field, value in (("#width", "512"), ("#height", "512"), ("#steps", "500")):  # Minutes, if nobody cancelled it.
            tab.fill(field, value)
        tab.click("#paint")
        tab.wait_for("document.querySelector('.task .state').textContent.startsWith('step ')")
        tab.press("Escape")
        tab.wait_for("document.querySelector('.task').dataset.state === 'cancelled'")
        for field, value in (("#width", "64"), ("#height", "64"), ("#steps", "4")):
            tab.fill(field, value)
        tab.click("#paint")
        tab.wait_for(f"{num_of('#tasks img.whole')} === 1")
        tab.require_quiet()


def the_program_asks_the_page_for_its_key() -> None:
    with temporary_folder() as folder:
        keys = folder / "keys"
        keys.write_text(f"{KEY}\n")
        with page_of_program("--keys", keys) as (_, tab):
            tab.wait_for("document.querySelector('#key-dialog').open")
            tab.fill("#key-text", KEY)
            tab.press("Enter")
            tab.wait_for(READY)
            tab.fill("#steps", "4")
            tab.click("#paint")
            tab.wait_for(f"{num_of('#tasks img.whole')} === 1")
            tab.require_quiet("401")


def the_program_shows_a_run_that_grows() -> None:
    with temporary_folder() as folder:
        run = folder / "tiny run"
        samples = run / "samples" / "step-00000002"
        samples.mkdir(parents=True)
        write_png(samples / "prompt-000.png", (64, 64))
        (samples / "samples.json").write_text(json.dumps({"step": 2, "pictures": [{"file": "prompt-000.png", "prompt": "red apple", "seed": 0}]}))
        (run / "run.json").write_text(json.dumps({"component": "unet", "parameters": 1000, "recipe": {"schedule": {"max_steps": 9}}}))
        (run / "report.html").write_text("<title>of the run</title><script>document.title = 'it ran'</script>")
        metrics = run / "metrics.jsonl"
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines_of(range(1, 3))) + '{"step": 3, "lo')
        with page_of_program("--run", run) as (server, tab):
            tab.wait_for(READY)
            open_tab(tab, "training")
            tab.wait_for(f"document.querySelector('#training-state').textContent.startsWith('step 2 of 9 ') && {num_of('#sample-rows img')} === 1")
            with metrics.open("a") as file:
                file.write('ss": 0.1}\n')
            tab.click("#training-refresh")
            tab.wait_for("document.querySelector('#training-state').textContent.startsWith('step 3 of 9')")
            tab.require_quiet()
            # A browser that may not run a document's scripts answers no questions about it: the header is what holds.
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/runs/tiny%20run/report") as report:
                policy = report.headers["Content-Security-Policy"]
                require(policy.startswith("sandbox; default-src 'none'") and b"of the run" in report.read(), "scripts of a report may run", policy)


def the_program_shows_datasets_of_images_and_of_latents() -> None:
    with temporary_folder() as folder:
        images, latents = write_datasets(folder)
        with page_of_program("--dataset", images, latents) as (_, tab):
            tab.wait_for(READY)
            open_tab(tab, "dataset")
            tab.wait_for(shown_rows(0, 12) + " && document.querySelector('#dataset-rows img').naturalWidth === 256")
            require("image dataset, 20 rows" in tab.text("#dataset-kind"), "the kind", tab.text("#dataset-kind"))
            tab.fill("#dataset-search", "picture width>500")
            tab.press("Enter")
            tab.wait_for(shown_rows(11, 9))
            tab.choose("#dataset-name", latents.name)
            tab.wait_for(f"{shown_rows(0, 2)} && {num_of('#dataset-rows img')} === 10")  # Four channels of each, and what the model decodes.
            tab.require_quiet()


class DemoServer(Server):
    """What `make serve-demo` starts, over a demo's folder."""

    def __init__(self, demo: pathlib.Path) -> None:
        self.tls = None
        environment = {**os.environ, "PROGRAM": str(PROGRAM), "DEMO": str(demo)}
        self.process = subprocess.Popen([ROOT / "tools" / "build" / "serve_demo.sh", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
        self.await_start()


def write_demo(demo: pathlib.Path) -> None:
    """As `make demo` leaves it, but that next to nothing was learnt."""
    demo.mkdir()
    images, _ = write_datasets(demo)
    settings = ["batch.global=2", "batch.micro=2", "schedule.warmup_steps=1", "samples.every_steps=0"]
    run("train", "recipes/tiny.toml", "--raw-data", images, "--model", "models/tiny", "--output", demo / "run", "--max-steps", "2", *(word for one in settings for word in ("--set", one)))
    images.rename(demo / "images")


def a_new_user_of_the_demo_has_a_picture_by_a_click_and_sweeps_and_compares_the_two_models() -> None:
    browser()
    with temporary_folder() as folder:
        write_demo(folder / "demo")
        with DemoServer(folder / "demo") as server, browser().tab(f"http://127.0.0.1:{server.port}/") as tab:
            tab.wait_for(READY)
            models = tab.value("[...document.querySelector('#model-choice').options].map((one) => one.value)")
            require(models == ["tiny", "trained"] and tab.value("document.querySelector('#model-choice').checkVisibility()"), "both models stand beside each other", models)
            tab.click("#paint")  # The first of three clicks that a picture may take.
            tab.wait_for(f"{num_of('#tasks img.whole')} === 1 && document.querySelector('.task img').naturalWidth === 64")

            tab.fill("#steps", "4")
            tab.fill("#sweep-count", "3")
            tab.click("#sweep")
            tab.wait_for(f"{num_of('#tasks img.whole')} === 4")
            seeds = tab.value("[...document.querySelectorAll('#tasks figcaption')].map((one) => Number(one.textContent.match(/[0-9]+/)[0]))")
            swept = sorted(seeds)
            require(any(swept[index:index + 3] == list(range(swept[index], swept[index] + 3)) for index in range(2)), "seeds in a row", seeds)

            open_tab(tab, "vote")
            tab.click("#take-a")
            tab.choose("#model-choice", "trained")
            tab.wait_for("document.querySelector('#model').textContent.startsWith('trained')")
            tab.click("#take-b")
            sides = [tab.text(f"#side-{side}") for side in "ab"]
            require("tiny" in sides[0] and "trained" in sides[1], "the two sides", sides)
            tab.fill("#vote-prompts", "red apple")
            tab.fill("#vote-seed", "7")
            tab.fill("#vote-count", "1")
            tab.click("#vote-start")
            tab.wait_for(f"{num_of('#vote-pair img.whole')} === 2")
            tab.value("document.activeElement.blur()")
            tab.press("1")
            tab.wait_for(f"{num_of('#vote-next')} === 1")
            drawn = """Promise.all([...document.querySelectorAll('#vote-pair img.whole')].map(async (image) => {
              await image.decode();
              const canvas = document.createElement('canvas');
              [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
              canvas.getContext('2d').drawImage(image, 0, 0);
              return canvas.toDataURL().split(',')[1];
            }))"""
            names = tab.value("[...document.querySelectorAll('.which')].map((one) => one.textContent)")
            shown = dict(zip(names, (pixels(base64.b64decode(one)) for one in tab.value(drawn)), strict=True))
            for side, name in (("A", "tiny"), ("B", "trained")):
                want = server.paint({"prompt": "red apple", "model": name, "seed": 7, "num_inference_steps": 4})
                require(np.abs(shown[side] - want).max() <= 1, "another picture than the model's", name)
            require(np.abs(shown["A"] - shown["B"]).max() > 1, "two models paint alike")

            open_tab(tab, "training")
            tab.wait_for("document.querySelector('#training-state').textContent.startsWith('step 2 of 2')")
            open_tab(tab, "dataset")
            tab.wait_for(shown_rows(0, 12))
            tab.require_quiet("409")  # What is asked of a model that has not been loaded.


if __name__ == "__main__":
    try:
        main([
            one_click_paints_and_shows_how_far_it_is,
            settings_of_the_form_are_what_is_asked_for,
            jobs_are_cancelled_by_a_button_and_by_escape,
            a_sweep_asks_for_no_more_pictures_at_a_time_than_the_server_takes,
            what_the_server_refuses_is_a_sentence_and_a_full_queue_is_asked_again,
            events_that_break_off_and_a_page_that_is_loaded_anew_lose_no_job,
            a_network_that_is_gone_for_a_while_loses_no_job,
            pictures_that_a_safety_checker_leaves_of_a_job_are_there,
            a_grid_is_a_labelled_table_of_pictures,
            a_wrong_axis_of_a_grid_is_a_sentence,
            a_grid_has_any_field_of_the_form_as_an_axis,
            a_strength_that_is_not_shown_stops_nothing,
            a_start_picture_goes_out_as_it_is_seen_and_without_what_its_file_says,
            the_history_brings_all_settings_back_and_is_bounded,
            a_history_that_has_no_room_lasts_as_long_as_the_page,
            a_png_brings_its_settings_back,
            pictures_of_other_programs_are_read_and_bad_ones_are_refused_in_a_sentence,
            samplers_of_a_file_are_read_as_this_server_and_webui_write_them,
            the_same_file_is_taken_again,
            the_order_of_a_pair_is_hidden_until_the_vote,
            a_click_on_a_picture_of_a_pair_does_what_its_name_says,
            a_browser_that_keeps_nothing_paints_and_votes_all_the_same,
            two_models_are_compared_by_their_names,
            a_model_that_is_chosen_has_its_own_samplers_and_sizes,
            a_key_is_asked_for_and_kept_in_the_tab_alone,
            a_phone_shows_one_column,
            a_server_without_runs_has_no_view_of_them,
            curves_of_a_run_are_read_on_while_it_trains,
            a_run_of_several_ranks_says_what_all_of_them_do_in_a_second,
            a_view_that_is_open_looks_again_of_itself,
            two_runs_lie_over_each_other,
            two_runs_are_compared_by_a_prompt_and_not_by_its_place,
            smoothing_and_a_logarithm_change_what_is_drawn,
            samples_are_seen_by_step_and_by_prompt,
            a_report_is_a_page_or_a_file,
            a_long_run_is_bounded_in_the_page,
            axes_have_round_values,
            runs_are_seen_on_a_phone,
            a_run_that_cannot_be_read_is_a_sentence,
            rows_of_a_dataset_are_seen_page_by_page,
            a_dataset_is_searched_to_its_end_a_part_at_a_time,
            latents_are_decoded_one_row_at_a_time_where_a_model_can,
            an_answer_that_nobody_waits_for_any_more_changes_nothing,
            a_search_that_fails_or_takes_long_loses_no_rows,
            a_dataset_that_cannot_be_read_is_a_sentence,
            a_server_without_datasets_has_no_view_of_them,
            what_a_dataset_says_is_text,
            what_others_write_is_text,
            keys_do_what_the_mouse_does,
            what_the_server_lacks_is_not_offered,
            the_program_serves_the_page_and_paints_what_it_asks_for,
            a_job_of_the_program_is_cancelled_while_it_is_painted,
            the_program_asks_the_page_for_its_key,
            the_program_shows_a_run_that_grows,
            the_program_shows_datasets_of_images_and_of_latents,
            a_new_user_of_the_demo_has_a_picture_by_a_click_and_sweeps_and_compares_the_two_models,
        ])
    finally:
        if model.cache_info().currsize:
            shutil.rmtree(pathlib.Path(model()).parent, ignore_errors=True)
