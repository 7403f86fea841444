#!/usr/bin/env python3
"""The page of `inspect --html` in a real browser, without a network: its search and its order, its pictures, its counts of errors; what strangers wrote is text."""

import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from workbench import ROOT, LoopbackWeb, Workbench, main, require, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from browser import Browser, Tab  # noqa: E402

ROWS = 12
MARKUP = """</p><script>document.title = "taken over"</script><img src="x" onerror="document.title = 'taken over'"> <b class="theirs">bold</b> & "so" &lt;on&gt;"""
SHOWN_CARDS = "[...document.querySelectorAll('.card')].filter((card) => card.checkVisibility())"
# Of each picture whose label is this one: its true width, and how many colours it has.
PICTURES = """Promise.all([...document.querySelectorAll('.card .pic')].filter((pic) => (pic.querySelector('span')?.textContent ?? '') === %r).map(async (pic) => {
  const image = pic.querySelector('img');
  image.loading = 'eager';
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return {width: image.naturalWidth, colours: new Set(pixels).size, pixels: pixels.join()};
}))"""


def page_of(bench: Workbench, dataset: str, *flags: str) -> str:
    page = bench.path("page.html")
    run("inspect", dataset, "--rows", str(ROWS), "--html", page, *flags)
    return f"file://{page}"


def captions_shown(tab: Tab) -> list[str]:
    return tab.value(f"{SHOWN_CARDS}.map((card) => card.querySelector('p')?.textContent ?? '')")


def search(tab: Tab, words: str) -> list[str]:
    """Types into the search box: the captions that stay."""
    tab.fill("#search", words)
    tab.wait_for(f"document.getElementById('search').value === {json.dumps(words)}")
    return captions_shown(tab)


def facts_of(tab: Tab) -> dict[str, str]:
    """The page's two-column tables."""
    return dict(tab.value("[...document.querySelectorAll('tr')].filter((row) => row.cells.length === 2).map((row) => [...row.cells].map((cell) => cell.textContent.trim()))"))


def with_caption(dataset: str, row: int, caption: str) -> None:
    path = pathlib.Path(dataset) / "part-000000.parquet"
    table = pq.read_table(path)
    captions = table["caption"].to_pylist()
    captions[row] = caption
    pq.write_table(table.set_column(table.schema.get_field_index("caption"), "caption", pa.array(captions)), path)


def the_page_of_a_dataset_is_searched_in_a_browser() -> None:
    with Workbench(ROWS) as bench, Browser() as browser:
        address = page_of(bench, bench.write_image_dataset("images", ROWS, {3: b"no picture"}))
        captions = pq.read_table(bench.path("images"), columns=["caption"])["caption"].to_pylist()
        captions[3] = f"[not_an_image] {captions[3]}"
        with browser.tab(address) as tab:
            tab.wait_for("document.getElementById('finder').checkVisibility()")
            require(captions_shown(tab) == captions, "captions", captions_shown(tab))
            require(tab.text("#count") == f"{ROWS} rows", "count of all")
            words = captions[0].lower().split()
            for asked in (words[0], words[-1], captions[5], " ".join(reversed(words)), captions[0].upper()):
                found = search(tab, asked)
                want = [text for text, card in zip(captions, tab.value("[...document.querySelectorAll('.card')].map((card) => card.textContent.toLowerCase())")) if all(word in card for word in asked.lower().split())]
                require(found == want and len(want) > 0, "rows that are found", asked, found, want)
                require(tab.text("#count") == (f"{ROWS} rows" if len(want) == ROWS else f"{len(want)} of {ROWS} rows"), "count of the found", tab.text("#count"))
            require(len(search(tab, captions[5])) < ROWS, "a whole caption leaves out nothing")
            require(search(tab, "nobody wrote this") == [] and tab.text("#count") == f"0 of {ROWS} rows", "words that no row has")
            tab.require_quiet()
        with browser.tab(f"{address}#q=width%3E100000") as tab:
            tab.wait_for("document.getElementById('search').value === 'width>100000'")
            require(captions_shown(tab) == [] and tab.text("#count") == f"0 of {ROWS} rows", "a comparison that no row meets")
        with browser.tab(f"{address}#q=width%3E1%20key%3D5") as tab:
            tab.wait_for("document.getElementById('search').value === 'width>1 key=5'")
            require(captions_shown(tab) == [captions[5]], "two comparisons at once", captions_shown(tab))


def the_page_counts_the_errors_of_a_download() -> None:
    with Workbench(ROWS) as bench, LoopbackWeb(bench.path("corpus")) as web, Browser() as browser:
        table = pq.read_table(bench.write_url_table(web.port))
        urls = table["URL"].to_pylist()
        (bench.folder / "corpus" / "pictures" / "text.png").write_text("no picture")
        urls[1] = urls[4] = urls[7] = f"http://127.0.0.1:{web.port}/pictures/nowhere.png"
        urls[2] = urls[9] = f"http://127.0.0.1:{web.port}/pictures/text.png"
        path = bench.path("broken.parquet")
        pq.write_table(table.set_column(table.schema.get_field_index("URL"), "URL", pa.array(urls)), path)
        flags = ["--metadata", path, "--rows-per-file", "5", "--allow-private", f"127.0.0.1/32:{web.port}", "--error-budget", "100"]
        run("download", bench.path("images"), *flags)
        with browser.tab(page_of(bench, bench.path("images"))) as tab:
            tab.wait_for("document.getElementById('finder').checkVisibility()")
            facts = facts_of(tab)
            require(facts.get("rows by error") == "http_404 3, not_an_image 2", "rows by error", facts)
            require(facts.get("rows in") == str(ROWS) and facts.get("rows out") == str(ROWS - 5), "rows in and out", facts)
            require(tab.value("[...document.querySelectorAll('td')].find((cell) => cell.textContent.includes('http_404')).checkVisibility()") is True, "the errors are hidden")
            pictures = tab.value(PICTURES % "")
            require(len(pictures) == ROWS - 5 and all(one["width"] > 0 and one["colours"] > 1 for one in pictures), "pictures", [one["width"] for one in pictures])
            tab.require_quiet()


def latents_are_shown_decoded() -> None:
    with Workbench(ROWS) as bench, Browser() as browser:
        model = str(ROOT / "models" / "tiny")
        run("process", bench.write_image_dataset("images", ROWS, {3: b"no picture"}), bench.path("latents"), "--model", model, "--resolution", "64")
        with browser.tab(page_of(bench, bench.path("latents"), "--model", model)) as tab:
            tab.wait_for("document.getElementById('finder').checkVisibility()")
            require(facts_of(tab).get("rows by error") == "not_an_image 1", "rows by error", facts_of(tab))
            pictures = tab.value(PICTURES % "decoded")
            require(len(pictures) == ROWS - 1, "decoded pictures", len(pictures))
            require(all(one["width"] == 64 and one["colours"] > 16 for one in pictures), "width and colours of decoded pictures", [(one["width"], one["colours"]) for one in pictures])
            require(len({one["pixels"] for one in pictures}) == len(pictures), "decoded pictures of different rows are one")
            channels = tab.value(PICTURES % "channel 1")
            require(len(channels) == ROWS - 1 and all(one["width"] > 0 and one["colours"] > 1 for one in channels), "channels", len(channels))
            tab.require_quiet()


def a_caption_with_markup_is_text() -> None:
    with Workbench(ROWS) as bench, Browser() as browser:
        images = bench.write_image_dataset("images", ROWS)
        with_caption(images, 2, MARKUP)
        with browser.tab(page_of(bench, images)) as tab:
            tab.wait_for("document.getElementById('finder').checkVisibility()")
            require(captions_shown(tab)[2] == MARKUP, "the caption", captions_shown(tab)[2])
            require(tab.value("document.querySelectorAll('.theirs, .card script, .card img[onerror]').length") == 0, "markup of a caption is markup of the page")
            require("taken over" not in tab.value("document.title"), "a caption's script ran")
            require(tab.value("document.querySelectorAll('.card').length") == ROWS, "cards")
            require(search(tab, 'class="theirs">bold</b>') == [MARKUP], "the caption is not found by its markup", captions_shown(tab))
            tab.require_quiet()


if __name__ == "__main__":
    main([the_page_of_a_dataset_is_searched_in_a_browser, the_page_counts_the_errors_of_a_download, latents_are_shown_decoded, a_caption_with_markup_is_text])
