#!/usr/bin/env python3
"""Takes the pictures of the page that docs/page.md and docs/serve.md show: a grid on a desktop, a training run, a phone.

  page_screenshots.py [OUT=docs] [--demo demo-run] [--program build/darkroom]

Wants Chromium (requirements/apt_test.txt), the packages of requirements/test.txt, and a demo's folder (`make demo`), whose run, trained model and
datasets stand beside the shipped model as `make serve-demo` has them. The pictures are whatever the models paint: look at them before they are
committed.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import threading

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "integration")]

from browser import Browser, Tab  # noqa: E402: it lies with the tests' support.

COLOURS = 128  # A page has few, and its pictures are small.


def serve(demo: pathlib.Path, program: pathlib.Path) -> tuple[subprocess.Popen, str]:
    """What `make serve-demo` starts, at a free port, and its address."""
    environment = {**os.environ, "DEMO": str(demo.resolve()), "PROGRAM": str(program.resolve())}
    process = subprocess.Popen([ROOT / "tools" / "build" / "serve_demo.sh", "0"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if found := re.search(r"at (http://\S+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, found[1]
    sys.exit("page_screenshots: the server did not start")


def keep_seed(tab: Tab, settings: dict[str, str]) -> None:
    tab.wait_for("'ready' in document.documentElement.dataset")
    for field, text in {**settings, "seed": "1"}.items():
        tab.fill(f"#{field}", text)
    tab.choose("#sampler", "ddim")
    tab.click("#keeps-seed")


def num_painted(selector: str) -> str:
    return f"document.querySelectorAll('{selector} img.whole').length"


def take(tab: Tab, path: pathlib.Path, top: str | None = None) -> None:
    """A picture of the page from its beginning on, or from the element `top`."""
    tab.value("document.activeElement.blur()")
    tab.value("document.querySelectorAll('*').forEach((one) => (one.scrollTop = 0))")
    if top is not None:
        tab.value(f"document.querySelector('{top}').scrollIntoView({{block: 'start', behavior: 'instant'}})")
    tab.picture(path)
    Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


def take_grid(browser: Browser, address: str, path: pathlib.Path) -> None:
    with browser.tab(address, 1280, 860, prefers_color_scheme="dark") as tab:
        keep_seed(tab, {"steps": "25", "guidance_scale": "3"})
        tab.click("#tab-grid")
        tab.choose("#x-field", "words")
        tab.fill("#x-values", "red apple, cat face, red heart, sun")
        tab.choose("#y-field", "guidance_scale")
        tab.fill("#y-values", "1, 3, 7.5")
        tab.click("#grid-paint")
        tab.wait_for(f"{num_painted('#grid-table')} === 12")
        take(tab, path)


def take_training(browser: Browser, address: str, path: pathlib.Path) -> None:
    with browser.tab(address, 1280, 1250, prefers_color_scheme="dark") as tab:
        tab.wait_for("'ready' in document.documentElement.dataset")
        tab.click("#tab-training")
        tab.wait_for("document.querySelectorAll('#sample-rows img').length > 0 && [...document.querySelectorAll('#sample-rows img')].every((one) => one.complete)")
        tab.value("document.querySelector('#chart-loss').focus()")
        for key in ("Home", "ArrowRight", "ArrowRight"):
            tab.press(key)
        take(tab, path)


def take_phone(browser: Browser, address: str, path: pathlib.Path) -> None:
    with browser.tab(address, 390, 844, prefers_color_scheme="light") as tab:
        keep_seed(tab, {"steps": "25", "guidance_scale": "3", "images": "4"})
        tab.click("#paint")
        tab.wait_for(f"{num_painted('#tasks')} === 4")
        take(tab, path, ".seeds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, nargs="?", default=ROOT / "docs")
    parser.add_argument("--demo", type=pathlib.Path, default=ROOT / "demo-run")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "darkroom")
    options = parser.parse_args()
    process, address = serve(options.demo, options.program)
    try:
        with Browser() as browser:
            take_grid(browser, address, options.out / "page_desktop.png")
            take_training(browser, address, options.out / "page_training.png")
            take_phone(browser, address, options.out / "page_phone.png")
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
