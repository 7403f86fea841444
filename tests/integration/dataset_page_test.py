#!/usr/bin/env python3
"""The page of `inspect --html` in a real browser: its search and its order, without a network."""

import pathlib
import re
import shutil
import subprocess
import tempfile

import pyarrow.parquet as pq

from workbench import Skipped, Workbench, main, require, run

ROWS = 12
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def shown_by_browser(page: pathlib.Path, search: str) -> str:
    """The page as it stands after its script has run."""
    browser = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if browser is None:
        raise Skipped("no browser is installed here (Debian's package chromium)")
    with tempfile.TemporaryDirectory(prefix="darkroom-test-", ignore_cleanup_errors=True) as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--dump-dom", f"file://{page}{search}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "</html>" not in done.stdout:
        raise Skipped(f"the browser does not start here: {done.stderr.strip()[-200:]}")
    return done.stdout


def cards_of(dom: str) -> list[tuple[bool, str]]:
    """(is shown, HTML) of every card."""
    return [("hidden" not in head, body) for head, body in re.findall(r'<article class="card"([^>]*)>(.*?)</article>', dom, re.DOTALL)]


def the_page_of_a_dataset_is_searched_in_a_browser() -> None:
    with Workbench(ROWS) as bench:
        images = bench.write_image_dataset("images", ROWS, {3: b"no picture"})
        page = pathlib.Path(bench.path("page.html"))
        run("inspect", images, "--rows", str(ROWS), "--html", str(page))
        captions = pq.read_table(images, columns=["caption"])["caption"].to_pylist()
        word = captions[0].split()[0].lower()

        dom = shown_by_browser(page, "")
        require(len(cards_of(dom)) == ROWS and all(shown for shown, _ in cards_of(dom)), "cards", len(cards_of(dom)))
        require(f"{ROWS} rows" in dom and "not_an_image" in dom, "count and refused picture")
        require('id="finder" class="finder">' in dom, "the search box stays hidden")

        dom = shown_by_browser(page, f"#q={word}")
        want = [word in (caption + "image/png").lower() or word in body.lower() for caption, (_, body) in zip(captions, cards_of(dom))]
        require([shown for shown, _ in cards_of(dom)] == want, "cards with the word", word)
        require(sum(want) == ROWS or f"{sum(want)} of {ROWS} rows" in dom, "count of the found")

        dom = shown_by_browser(page, "#q=width%3E100000")
        require(not any(shown for shown, _ in cards_of(dom)) and f"0 of {ROWS} rows" in dom, "a comparison that no row meets")
        dom = shown_by_browser(page, "#q=width%3E1%20" + "key%3D5")
        require([shown for shown, _ in cards_of(dom)].count(True) == 1, "two comparisons at once")


if __name__ == "__main__":
    main([the_page_of_a_dataset_is_searched_in_a_browser])
